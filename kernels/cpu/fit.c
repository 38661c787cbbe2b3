/* fit, nudge: thresholds that are moved until about as many magnitudes lie above as are wanted.
 *
 * A step is (type of acc)((double)threshold * raise), or / lower. A magnitude lies above a threshold
 * if its key does: so NaNs do. */
#include "kernels/cpu/sparse_cpu.h"

static double load(const void *value, trib_dtype dtype)
{
    return dtype == TRIB_F64 ? *(const double *)value : (double)*(const float *)value;
}

static void store(void *to, trib_dtype dtype, double value)
{
    if (dtype == TRIB_F64)
        *(double *)to = value;
    else
        *(float *)to = (float)value;
}

static double round_to(trib_dtype dtype, double value)
{
    return dtype == TRIB_F64 ? value : (double)(float)value;
}

static size_t count_above(const struct tri_accumulator *acc, double threshold)
{
    const float *f32 = tri_acc_of(acc);
    const double *f64 = tri_acc_of(acc);
    const uint64_t key64 = tri_key_f64(threshold);
    const uint32_t key32 = tri_key_f32((float)threshold);
    size_t found = 0;
    if (acc->dtype == TRIB_F64)
        for (size_t i = 0; i < acc->count; i++)
            found += tri_key_f64(f64[i]) > key64;
    else
        for (size_t i = 0; i < acc->count; i++)
            found += tri_key_f32(f32[i]) > key32;
    return found;
}

trib_status tri_cpu_sparse_fit(const struct tri_accumulator *acc, const struct tri_fit *fit,
                               const void *start, void *threshold, void *scratch,
                               trib_stream stream)
{
    (void)scratch;
    (void)stream;
    double at = load(start, acc->dtype);
    size_t above = count_above(acc, at);
    for (uint32_t step = 0; step < fit->raise_steps && above > fit->above; step++) {
        at = round_to(acc->dtype, at * fit->raise);
        above = count_above(acc, at);
    }
    const uint32_t enough = above >= fit->below         ? 0
                            : fit->enough > fit->below ? fit->enough
                                                       : fit->below;
    for (uint32_t step = 0; step < fit->lower_steps && above < enough; step++) {
        at = round_to(acc->dtype, at / fit->lower);
        above = count_above(acc, at);
    }
    store(threshold, acc->dtype, at);
    return TRIB_OK;
}

trib_status tri_cpu_sparse_nudge(void *kept, const void *threshold, trib_dtype dtype,
                                 const uint32_t *count, const struct tri_fit *fit,
                                 const uint32_t *decision, trib_stream stream)
{
    (void)stream;
    double at = load(threshold, dtype);
    if (*decision == 0)
        return TRIB_OK;
    if (fit != NULL && *count < fit->below)
        at /= fit->lower;
    else if (fit != NULL && *count > fit->above)
        at *= fit->raise;
    store(kept, dtype, at);
    return TRIB_OK;
}
