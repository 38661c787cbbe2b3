/* deliver, deliver_dense: sums become the result, divided and rounded once.
 *
 * The divisor is rounded to the type of the sums first. */
#include "kernels/cpu/sparse_cpu.h"

#define DEFINE_DIVIDE(name, real, load, store)                                                     \
    static void name(const void *sum, trib_dtype dtype, size_t n, void *out, trib_dtype out_dtype, \
                     real divisor)                                                                 \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            store(out, out_dtype, i, load(sum, dtype, i) / divisor);                               \
    }
DEFINE_DIVIDE(divide_f32, float, tri_load_f32, tri_store_f32)
DEFINE_DIVIDE(divide_f64, double, tri_load_f64, tri_store_f64)

static void divide(const void *sum, trib_dtype dtype, size_t n, void *out, trib_dtype out_dtype,
                   double divisor)
{
    if (dtype == TRIB_F64)
        divide_f64(sum, dtype, n, out, out_dtype, divisor);
    else
        divide_f32(sum, dtype, n, out, out_dtype, (float)divisor);
}

trib_status tri_cpu_sparse_deliver(const struct tri_entries *entries, uint32_t *index, void *value,
                                   trib_dtype out_dtype, uint32_t *count, double divisor,
                                   const uint32_t *decision, trib_stream stream)
{
    (void)stream;
    const uint32_t n = *decision == 0 ? 0 : tri_entries_count(entries);
    for (uint32_t i = 0; i < n; i++)
        index[i] = entries->index[i];
    divide(entries->value, entries->dtype, n, value, out_dtype, divisor);
    *count = n;
    return TRIB_OK;
}

trib_status tri_cpu_sparse_deliver_dense(const void *sum, trib_dtype dtype, size_t count, void *out,
                                         trib_dtype out_dtype, double divisor,
                                         const uint32_t *decision, trib_stream stream)
{
    (void)stream;
    if (*decision != 0)
        divide(sum, dtype, count, out, out_dtype, divisor);
    else if (count != 0)
        memset(out, 0, count * trib_dtype_size(out_dtype));
    return TRIB_OK;
}
