/* residual_update: subtract, add or clear the residual of entries. */
#include "kernels/cpu/sparse_cpu.h"

/* An index beyond acc, which only a list that is not this rank's can have, changes nothing. */
static void update_one(const struct tri_accumulator *acc, const struct tri_entries *entries,
                       uint32_t i, enum tri_update how)
{
    const uint32_t index = entries->index[i];
    if (index >= acc->count)
        return;
    const int sign = how == TRI_UPDATE_ADD ? 1 : -1;
    float *const f32 = tri_residual_of(acc);
    double *const f64 = tri_residual_of(acc);
    if (acc->dtype == TRIB_F64 && how == TRI_UPDATE_CLEAR)
        f64[index] = 0;
    else if (how == TRI_UPDATE_CLEAR)
        f32[index] = 0;
    else if (acc->dtype == TRIB_F64)
        f64[index] += sign * tri_load_f64(entries->value, entries->dtype, i);
    else
        f32[index] += (float)sign * tri_load_f32(entries->value, entries->dtype, i);
}

/* Both lists ascend, so one walk through them finds what they share. */
static uint32_t update(const struct tri_accumulator *acc, const struct tri_entries *entries,
                       enum tri_update how, const struct tri_entries *among)
{
    const uint32_t n = tri_entries_count(entries);
    const uint32_t m = among == NULL ? 0 : tri_entries_count(among);
    uint32_t at = 0, found = 0;
    for (uint32_t i = 0; i < n; i++) {
        while (at < m && among->index[at] < entries->index[i])
            at++;
        if (among != NULL && (at == m || among->index[at] != entries->index[i]))
            continue;
        update_one(acc, entries, i, how);
        found++;
    }
    return found;
}

trib_status tri_cpu_sparse_residual_update(const struct tri_accumulator *acc,
                                           const struct tri_entries *entries, enum tri_update how,
                                           const struct tri_entries *among,
                                           const uint32_t *decision, uint32_t *matched,
                                           trib_stream stream)
{
    (void)stream;
    const uint32_t found = *decision == 0 ? 0 : update(acc, entries, how, among);
    if (matched != NULL)
        *matched = found;
    return TRIB_OK;
}
