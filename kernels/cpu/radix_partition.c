/* radix_partition: entries on the two sides of a cut. */
#include "kernels/cpu/sparse_cpu.h"

static void append(const struct tri_entries *out, uint32_t *count,
                   const struct tri_entries *entries, uint32_t i)
{
    if (*count == out->capacity) /* only where ranks differ, and the cut is of other lists */
        return;
    const uint32_t at = (*count)++;
    out->index[at] = entries->index[i];
    if (entries->dtype == TRIB_F64)
        tri_store_f64(out->value, out->dtype, at, tri_load_f64(entries->value, TRIB_F64, i));
    else
        tri_store_f32(out->value, out->dtype, at, tri_load_f32(entries->value, TRIB_F32, i));
}

trib_status tri_cpu_sparse_radix_partition(const struct tri_entries *entries,
                                           const struct tri_cut *cut,
                                           const struct tri_entries *kept,
                                           const struct tri_entries *dropped, void *scratch,
                                           trib_stream stream)
{
    (void)scratch;
    (void)stream;
    const uint32_t n = tri_entries_count(entries);
    uint32_t nkept = 0, ndropped = 0, ties = cut->key == 0 ? 0 : cut->ties;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t key = tri_key_at(entries->value, entries->dtype, i);
        const bool tie = key == cut->key && ties != 0;
        ties -= tie;
        if (key > cut->key || tie)
            append(kept, &nkept, entries, i);
        else if (dropped != NULL)
            append(dropped, &ndropped, entries, i);
    }
    tri_entries_set_count(kept, nkept);
    if (dropped != NULL)
        tri_entries_set_count(dropped, ndropped);
    return TRIB_OK;
}
