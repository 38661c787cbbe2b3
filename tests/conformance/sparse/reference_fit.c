/* What sparse allreduces should give, by definition: those that cut by thresholds. */
#include <math.h>
#include <string.h>

#include "tests/conformance/sparse/reference.h"

/* At most so many entries are chosen by a threshold: the largest. */
static uint64_t limit(const struct sparse_reference *reference)
{
    const uint64_t most = 4 * reference->k + 1024;
    return reference->k == 0 ? 0 : most < reference->count ? most : reference->count;
}

static void pick_above(struct sparse_reference *reference, int rank, double threshold)
{
    const struct sparse_choice choice = {
        .n = reference->count, .k = limit(reference), .threshold = threshold};
    reference->selected[rank] = sparse_reference_top(reference, reference->acc[rank], choice,
                                                     reference->picked[rank], NULL);
}

/* The k largest; their smallest magnitude becomes the threshold. */
static void pick_exactly(struct sparse_reference *reference, int rank)
{
    reference->selected[rank] =
        sparse_reference_top(reference, reference->acc[rank], sparse_reference_all(reference),
                             reference->picked[rank], &reference->local[rank]);
}

/* A threshold above which nothing lay in so many calls is not used in the next one. */
enum { IDLE_CALLS = 4 };

static void count_idle(struct sparse_reference *reference, int rank)
{
    int *idle = &reference->idle[rank];
    *idle = reference->selected[rank] == 0 ? *idle + 1 : 0;
}

void sparse_reference_topkaopt(struct sparse_reference *reference)
{
    for (int rank = 0; rank < reference->size; rank++) {
        if (!reference->known[rank] || reference->step % 32 == 0 ||
            reference->idle[rank] >= IDLE_CALLS)
            pick_exactly(reference, rank);
        else
            pick_above(reference, rank, reference->local[rank]);
        reference->known[rank] = reference->local[rank] > 0;
        count_idle(reference, rank);
    }
    sparse_reference_add_up(reference);
    sparse_reference_update_residual(reference);
}

/* ---------------------------------------------------------------------------------- gaussiank */

/* z with P(|Z| > z) = d, by bisection. */
static double quantile(double d)
{
    double low = 0, high = 40;
    for (int i = 0; i < 200; i++) {
        const double z = (low + high) / 2;
        *(erfc(z / sqrt(2)) > d ? &low : &high) = z;
    }
    return low;
}

struct rule {
    const char *name;
    double begin, below, lower; /* if fewer than begin * k: divide while fewer than below * k */
    int lower_steps;
    double above, raise; /* before: multiply while more than above * k */
    int raise_steps;
};

/* Parts of k are thirds, quarters, fifths, sixths: never nearer to a number than this. */
static const double hair = 1e-6;

static bool fewer(uint64_t found, double part, uint64_t k)
{
    return (double)found < part * (double)k - hair;
}

static bool more(uint64_t found, double part, uint64_t k)
{
    return (double)found > part * (double)k + hair;
}

static const struct rule rules[] = {{"vgg", 3. / 4, 3. / 4, 1.02, 20, 5. / 4, 1.02, 20},
                                    {"lstm", 3. / 4, 3. / 4, 1.012, 50, 0, 1, 0},
                                    {"bert", 3. / 4, 5. / 6, 1.012, 20, 0, 1, 0}};

static double gauss(const struct sparse_reference *reference, const double *acc)
{
    const double n = (double)reference->count;
    double mean = 0, square = 0;
    for (size_t i = 0; i < reference->count; i++)
        mean += acc[i] / n;
    for (size_t i = 0; i < reference->count; i++)
        square += (acc[i] - mean) * (acc[i] - mean) / n;
    const double threshold = mean + quantile((double)reference->k / n) * sqrt(square);
    return sparse_round(threshold > 0 ? threshold : 0, reference->acc_dtype);
}

static double fit(const struct sparse_reference *reference, const struct rule *rule,
                  const double *acc, double threshold)
{
    const size_t n = reference->count;
    const uint64_t k = reference->k;
    for (int i = 0; i < rule->raise_steps; i++)
        if (more(sparse_reference_above(acc, n, threshold), rule->above, k))
            threshold = sparse_round(threshold * rule->raise, reference->acc_dtype);
    if (fewer(sparse_reference_above(acc, n, threshold), rule->begin, k))
        for (int i = 0; i < rule->lower_steps; i++)
            if (fewer(sparse_reference_above(acc, n, threshold), rule->below, k))
                threshold = sparse_round(threshold / rule->lower, reference->acc_dtype);
    return threshold;
}

static const struct rule *rule_of(const char *constants)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (constants != NULL && strcmp(rules[i].name, constants) == 0)
            return &rules[i];
    return &rules[0];
}

void sparse_reference_gaussiank(struct sparse_reference *reference)
{
    const struct rule *rule = rule_of(reference->constants);
    for (int rank = 0; rank < reference->size; rank++) {
        const double *acc = reference->acc[rank];
        const bool estimate = reference->k > 0;
        if (reference->idle[rank] >= IDLE_CALLS)
            pick_exactly(reference, rank);
        else
            pick_above(reference, rank,
                       estimate ? fit(reference, rule, acc, gauss(reference, acc)) : 0);
        count_idle(reference, rank);
    }
    sparse_reference_add_up(reference);
    sparse_reference_update_residual(reference);
}

/* ------------------------------------------------------------------------ oktopk as published */

struct schedule {
    const char *name;
    uint64_t every; /* calls from one exact threshold to the next */
    double clamp;   /* while more than clamp * k, 5 steps at most: times 1.03; 0: no */
    double few, less, many, more;     /* local: fewer than few * k, divide by less; ... */
    double gfew, gless, gmany, gmore; /* global */
};

static const struct schedule schedules[] = {
    {"vgg", 32, 4. / 3, 2. / 3, 1.012, 5. / 4, 1.012, 2. / 3, 1.008, 4. / 3, 1.008},
    {"lstm", 32, 3. / 2, 3. / 4, 1.012, 5. / 4, 1.012, 3. / 4, 1.01, 5. / 4, 1.008},
    {"bert", 128, 0, 4. / 5, 1.025, 5. / 4, 1.025, 4. / 5, 1.036, 5. / 4, 1.025}};

static double adjust_threshold(const struct sparse_reference *reference, double threshold,
                               uint64_t found, double few, double less, double many, double raise)
{
    if (fewer(found, few, reference->k))
        threshold /= less;
    else if (more(found, many, reference->k))
        threshold *= raise;
    return sparse_round(threshold, reference->acc_dtype);
}

static double clamped(const struct sparse_reference *reference, const struct schedule *schedule,
                      const double *acc, double threshold)
{
    for (int i = 0; i < 5 && schedule->clamp > 0; i++)
        if (more(sparse_reference_above(acc, reference->count, threshold), schedule->clamp,
                 reference->k))
            threshold = sparse_round(threshold * 1.03, reference->acc_dtype);
    return threshold;
}

/* G, and its threshold; where there are fewer than k sums there is none (0), and the next call cuts
 * again. */
static void keep_sums(struct sparse_reference *reference, const struct schedule *schedule, bool cut)
{
    const uint64_t sums = sparse_reference_above(reference->sum, reference->count, 0);
    double least = 0;
    memcpy(reference->room, reference->sum, reference->count * sizeof(double));
    const struct sparse_choice choice = {.n = reference->count,
                                         .k = cut ? reference->k : limit(reference),
                                         .threshold = cut ? 0 : reference->global};
    const uint64_t kept =
        sparse_reference_top(reference, reference->room, choice, reference->support, &least);
    for (size_t i = 0; i < reference->count; i++)
        if (!reference->support[i])
            reference->sum[i] = 0;
    reference->idle_sums = kept == 0 ? reference->idle_sums + 1 : 0;
    if (cut)
        reference->global = sums >= reference->k ? least : 0;
    else
        reference->global = adjust_threshold(reference, reference->global, kept, schedule->gfew,
                                             schedule->gless, schedule->gmany, schedule->gmore);
}

void sparse_reference_oktopk(struct sparse_reference *reference)
{
    const struct schedule *schedule = &schedules[0];
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        if (strcmp(schedules[i].name, reference->constants) == 0)
            schedule = &schedules[i];
    const bool anew = reference->step % schedule->every == 0;
    for (int rank = 0; rank < reference->size; rank++) {
        double *local = &reference->local[rank];
        const bool exact = anew || !reference->known[rank] || reference->idle[rank] >= IDLE_CALLS;
        reference->known[rank] = *local > 0;
        if (exact) {
            pick_exactly(reference, rank);
            reference->known[rank] = reference->selected[rank] > 0;
        } else {
            *local = clamped(reference, schedule, reference->acc[rank], *local);
            pick_above(reference, rank, *local);
        }
        *local = adjust_threshold(reference, *local, reference->selected[rank], schedule->few,
                                  schedule->less, schedule->many, schedule->more);
        count_idle(reference, rank);
    }
    sparse_reference_add_up(reference);
    keep_sums(reference, schedule,
              anew || reference->global == 0 || reference->idle_sums >= IDLE_CALLS);
    sparse_reference_update_residual(reference);
}
