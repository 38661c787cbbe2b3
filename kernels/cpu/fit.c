/* fit, adjust_threshold: move a threshold until about as many magnitudes lie above as are wanted.
 *
 * A step is (type of acc)((double)threshold * raise), or / lower. Both factors are at least 1, so
 * the thresholds of one way are in order. A magnitude lies above a threshold if its key does: so
 * NaNs do. All thresholds of one way are counted in one pass, before the way is gone. */
#include "kernels/cpu/sparse_cpu.h"

enum { MOST_STEPS = 64, GROUP = 16 };

/* The thresholds of one way, in ascending order, and how many magnitudes lie above each. */
struct ladder {
    uint32_t n;
    double threshold[MOST_STEPS + 1];
    uint64_t keys[MOST_STEPS + 1];
    size_t above[MOST_STEPS + 1];
};

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

/* The number of thresholds below a key. */
static uint32_t find(const struct ladder *ladder, uint64_t key)
{
    uint32_t low = 0, high = ladder->n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (ladder->keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* passed[p] = how many keys have p thresholds below them, p > 0. Group by group: in most of them
 * not even the lowest threshold is passed. */
#define DEFINE_PASS(name, real, key, key_of)                                                       \
    static void name(const struct ladder *ladder, const real *values, size_t count,                \
                     size_t *passed)                                                               \
    {                                                                                              \
        const key lowest = (key)ladder->keys[0];                                                   \
        const size_t whole = count - count % GROUP;                                                \
        for (size_t first = 0; first < whole; first += GROUP) {                                    \
            key any = 0;                                                                           \
            for (size_t i = 0; i < GROUP; i++)                                                     \
                any |= (key)((key)key_of(values[first + i]) > lowest);                             \
            for (size_t i = 0; i < GROUP && any != 0; i++)                                         \
                if ((key)key_of(values[first + i]) > lowest)                                       \
                    passed[find(ladder, key_of(values[first + i]))]++;                             \
        }                                                                                          \
        for (size_t i = whole; i < count; i++)                                                     \
            passed[find(ladder, key_of(values[i]))]++;                                             \
    }
DEFINE_PASS(pass_f32, float, int32_t, tri_key_f32)
DEFINE_PASS(pass_f64, double, int64_t, tri_key_f64)

static void count_above(struct ladder *ladder, const struct tri_accumulator *acc)
{
    size_t passed[MOST_STEPS + 2] = {0}, above = 0;
    for (uint32_t i = 0; i < ladder->n; i++)
        ladder->keys[i] = acc->dtype == TRIB_F64 ? tri_key_f64(ladder->threshold[i])
                                                 : tri_key_f32((float)ladder->threshold[i]);
    if (acc->dtype == TRIB_F64)
        pass_f64(ladder, tri_acc_of(acc), acc->count, passed);
    else
        pass_f32(ladder, tri_acc_of(acc), acc->count, passed);
    for (uint32_t i = ladder->n; i-- > 0;)
        ladder->above[i] = above += passed[i + 1];
}

static uint32_t steps_of(uint32_t steps)
{
    return steps < MOST_STEPS ? steps : MOST_STEPS;
}

/* The way up from `start`, as far as it goes; *above = how many lie above its end. */
static double raise(const struct tri_accumulator *acc, const struct tri_fit *fit, double start,
                    size_t *above)
{
    struct ladder up = {.n = steps_of(fit->raise_steps) + 1, .threshold = {start}};
    uint32_t at = 0;
    for (uint32_t i = 1; i < up.n; i++)
        up.threshold[i] = round_to(acc->dtype, up.threshold[i - 1] * fit->raise);
    count_above(&up, acc);
    while (at + 1 < up.n && up.above[at] > fit->above)
        at++;
    *above = up.above[at];
    return up.threshold[at];
}

/* The way down from `start`, above which lie too few. */
static double lower(const struct tri_accumulator *acc, const struct tri_fit *fit, double start)
{
    const uint32_t enough = fit->enough > fit->below ? fit->enough : fit->below;
    struct ladder down = {.n = steps_of(fit->lower_steps) + 1};
    uint32_t at = down.n - 1;
    down.threshold[at] = start;
    for (uint32_t i = at; i-- > 0;)
        down.threshold[i] = round_to(acc->dtype, down.threshold[i + 1] / fit->lower);
    count_above(&down, acc);
    while (at > 0 && down.above[at] < enough)
        at--;
    return down.threshold[at];
}

trib_status tri_cpu_sparse_fit(const struct tri_accumulator *acc, const struct tri_fit *fit,
                               const void *start, void *threshold, void *scratch,
                               trib_stream stream)
{
    (void)scratch;
    (void)stream;
    size_t above;
    double at = raise(acc, fit, load(start, acc->dtype), &above);
    if (above < fit->below && fit->lower_steps != 0)
        at = lower(acc, fit, at);
    store(threshold, acc->dtype, at);
    return TRIB_OK;
}

trib_status tri_cpu_sparse_adjust_threshold(void *kept, const void *threshold, trib_dtype dtype,
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
