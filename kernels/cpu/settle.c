/* settle: take applied entries out of the residual, or give dropped ones back. */
#include "kernels/cpu/sparse_cpu.h"

static void settle_one(const struct tri_accumulator *acc, const struct tri_entries *entries,
                       uint32_t i, int sign)
{
    const uint32_t index = entries->index[i];
    float *const f32 = tri_residual_of(acc);
    double *const f64 = tri_residual_of(acc);
    if (acc->dtype == TRIB_F64 && sign == 0)
        f64[index] = 0;
    else if (sign == 0)
        f32[index] = 0;
    else if (acc->dtype == TRIB_F64)
        f64[index] += sign * tri_load_f64(entries->value, entries->dtype, i);
    else
        f32[index] += (float)sign * tri_load_f32(entries->value, entries->dtype, i);
}

/* Both lists ascend, so one walk through them finds what they share. */
static uint32_t settle(const struct tri_accumulator *acc, const struct tri_entries *entries,
                       int sign, const struct tri_entries *among)
{
    const uint32_t n = tri_entries_count(entries);
    const uint32_t m = among == NULL ? 0 : tri_entries_count(among);
    uint32_t at = 0, found = 0;
    for (uint32_t i = 0; i < n; i++) {
        while (at < m && among->index[at] < entries->index[i])
            at++;
        if (among != NULL && (at == m || among->index[at] != entries->index[i]))
            continue;
        settle_one(acc, entries, i, sign);
        found++;
    }
    return found;
}

trib_status tri_cpu_sparse_settle(const struct tri_accumulator *acc,
                                  const struct tri_entries *entries, int sign,
                                  const struct tri_entries *among, const uint32_t *decision,
                                  uint32_t *matched, trib_stream stream)
{
    (void)stream;
    const uint32_t found = *decision == 0 ? 0 : settle(acc, entries, sign, among);
    if (matched != NULL)
        *matched = found;
    return TRIB_OK;
}
