/* index_select: the values of acc at given indices. Indices of ranks that differ may lie beyond
 * acc; then the value is 0, and the call will not be applied. */
#include "kernels/cpu/sparse_cpu.h"

trib_status tri_cpu_sparse_index_select(const struct tri_accumulator *acc,
                                        const struct tri_entries *entries, trib_stream stream)
{
    (void)stream;
    const float *f32 = tri_acc_of(acc);
    const double *f64 = tri_acc_of(acc);
    const uint32_t n = tri_entries_count(entries);
    if (acc->dtype == TRIB_F64)
        for (uint32_t i = 0; i < n; i++)
            tri_store_f64(entries->value, entries->dtype, i,
                          entries->index[i] < acc->count ? f64[entries->index[i]] : 0);
    else
        for (uint32_t i = 0; i < n; i++)
            tri_store_entry_f32(entries->value, entries->dtype, i,
                                entries->index[i] < acc->count ? f32[entries->index[i]] : 0);
    return TRIB_OK;
}
