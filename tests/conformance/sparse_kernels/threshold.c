/* gauss, norm, fit, adjust_threshold. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

static const size_t counts[] = {0, 1, 2, 31, 33, 4095, 4097, 8193, 65537, 262147, 1000003};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static size_t how_many(const struct sparse_rig *rig)
{
    return rig->quick ? COUNTS - 3 : COUNTS;
}

/* ------------------------------------------------------------------------------ gauss and norm */

/* Both are sums in an order that the cpu table defines: here within 1e-12, on the twin the bits. */
struct summing {
    struct sparse_state state;
    size_t out;
    trib_dtype dtype; /* of out */
    double z;         /* of gauss */
    bool norm, alike; /* alike: all elements are, and rounding makes some deviation */
};

static trib_status queue_summing(const struct sparse_target *target, const void *argument)
{
    const struct summing *s = argument;
    const struct tri_accumulator acc = sparse_accumulator(&s->state, target->memory);
    void *out = sparse_at(target->memory, s->out);
    if (s->norm)
        return target->kernels->norm(&acc, out, target->scratch, target->stream);
    return target->kernels->gauss(&acc, s->z, out, target->scratch, target->stream);
}

static void expect_summing(struct sparse_rig *rig, const void *argument)
{
    (void)rig;
    (void)argument;
}

struct moments {
    long double sum, squares, mean, sigma;
    long double size; /* the mean of their absolute values */
    bool finite;
};

static struct moments measure(const struct sparse_rig *rig, const struct summing *s)
{
    const size_t size = trib_dtype_size(s->state.dtype), n = s->state.count;
    const unsigned char *image = rig->arena.image;
    const unsigned char *data =
        image + (s->norm ? sparse_residual_at(rig, &s->state) : sparse_acc_at(rig, &s->state));
    struct moments m = {.finite = true};
    for (size_t i = 0; i < n; i++) {
        const long double x = (long double)kernels_get(data + i * size, s->state.dtype);
        m.finite = m.finite && isfinite((double)x);
        m.sum += x;
        m.squares += x * x;
        m.size += fabsl(x) / (long double)n;
    }
    if (n == 0)
        return m; /* 0 */
    m.mean = m.sum / (long double)n;
    long double around = 0;
    for (size_t i = 0; i < n; i++) {
        const long double x = (long double)kernels_get(data + i * size, s->state.dtype) - m.mean;
        around += x * x;
    }
    m.sigma = sqrtl(around / (long double)n);
    return m;
}

static void adopt_summing(struct sparse_rig *rig, const void *argument)
{
    const struct summing *s = argument;
    struct arena *arena = &rig->arena;
    const size_t size = trib_dtype_size(s->dtype);
    const struct moments m = measure(rig, s);
    const double found = kernels_get(arena->found + s->out, s->dtype);
    long double expected = s->norm ? sqrtl(m.squares) : m.mean + (long double)s->z * m.sigma;
    const long double scale =
        s->norm ? expected : fabsl(m.mean) + fabsl((long double)s->z) * m.sigma;
    if (expected < 0)
        expected = 0;
    /* Squares below 2^-1074 are lost in f64. */
    const long double lost = sqrtl((long double)s->state.count) * 0x1p-536L;
    const long double rounding = s->dtype == TRIB_F32 ? expected * 0x1p-24L + 0x1p-150L : 0;
    const long double noise = s->alike ? scale * 1e-7L : 0;
    /* A sum that nearly cancels out has the rounding errors of its terms. */
    const long double terms = s->norm ? 0 : m.size * 0x1p-52L;
    if (m.finite)
        CHECK_MSG(fabsl((long double)found - expected) <=
                      1e-12L * scale + rounding + lost + noise + terms,
                  "%.17g, expected %.17Lg", found, expected);
    memcpy(arena->image + s->out, arena->found + s->out, size);
}

static void summing_case(struct sparse_rig *rig, size_t n, trib_dtype dtype, trib_dtype gradient,
                         int kind, double z, bool norm)
{
    if (sparse_leaves_out(rig, 3))
        return;
    struct summing s = {.z = z, .norm = norm, .dtype = norm ? TRIB_F64 : dtype};
    check_begin("%s %s %zu %s, %s, z %g", rig->arena.place->kernels->name, norm ? "norm" : "gauss",
                n, trib_dtype_name(dtype), sparse_kind_name(kind), z);
    arena_reset(&rig->arena);
    s.state = sparse_state_place(rig, n, dtype, gradient, rig->calls);
    sparse_fill(rig->arena.image +
                    (norm ? sparse_residual_at(rig, &s.state) : sparse_acc_at(rig, &s.state)),
                dtype, n, kind, 5);
    s.out = sparse_number(rig, s.dtype, -3);
    const struct sparse_call call = {
        norm ? "norm" : "gauss", queue_summing, expect_summing, adopt_summing, &s, n, 0, 0, dtype};
    sparse_run(rig, &call);
    check_end();
}

/* A variance that rounding makes negative is 0. */
static void alike(struct sparse_rig *rig)
{
    check_begin("%s gauss of numbers that are alike", rig->arena.place->kernels->name);
    for (size_t n = 1; n < 60; n++) {
        struct summing s = {.z = 3, .alike = true, .dtype = TRIB_F64};
        arena_reset(&rig->arena);
        s.state = sparse_state_place(rig, n, TRIB_F64, 0, 0);
        for (size_t i = 0; i < n; i++)
            kernels_put(rig->arena.image + s.state.buffer[0] + i * 8, TRIB_F64, 0.1 * (double)n);
        s.out = sparse_number(rig, TRIB_F64, -3);
        const struct sparse_call call = {
            "gauss", queue_summing, expect_summing, adopt_summing, &s, n, 0, 0, TRIB_F64};
        sparse_run(rig, &call);
    }
    check_end();
}

static void summing(struct sparse_rig *rig, bool norm)
{
    static const int kinds[] = {SPARSE_GAUSS, SPARSE_LAYERS,  SPARSE_EQUAL,    SPARSE_UP,
                                SPARSE_ZERO,  SPARSE_STUDENT, SPARSE_DENORMAL, SPARSE_INFINITIES};
    static const double zs[] = {2.3263478740408408, 0, -1.5, 3.0902323061678132, 8};
    for (size_t c = 0; c < how_many(rig); c++)
        for (size_t i = 0; i < (counts[c] > 100000 ? 2u : 8u); i++) {
            const bool f64 = (c + i) % 3 == 0, in_place = i % 2 == 0;
            const trib_dtype dtype = f64 ? TRIB_F64 : TRIB_F32;
            summing_case(rig, counts[c], dtype, in_place ? 0 : dtype, kinds[i], zs[(c + i) % 5],
                         norm);
        }
}

/* ---------------------------------------------------------------------------------------- fit */

struct fitting {
    struct sparse_state state;
    struct tri_fit fit;
    size_t start, threshold;
};

static trib_status queue_fit(const struct sparse_target *target, const void *argument)
{
    const struct fitting *f = argument;
    const struct tri_accumulator acc = sparse_accumulator(&f->state, target->memory);
    return target->kernels->fit(&acc, &f->fit, sparse_at(target->memory, f->start),
                                sparse_at(target->memory, f->threshold), target->scratch,
                                target->stream);
}

static uint32_t fit_count(const struct sparse_rig *rig, const struct fitting *f, double threshold)
{
    unsigned char element[8] = {0};
    kernels_put(element, f->state.dtype, threshold);
    return sparse_count_above(rig->arena.image + sparse_acc_at(rig, &f->state), f->state.count,
                              f->state.dtype, sparse_key(element, f->state.dtype));
}

static void expect_fit(struct sparse_rig *rig, const void *argument)
{
    const struct fitting *f = argument;
    const trib_dtype dtype = f->state.dtype;
    double threshold = kernels_get(rig->arena.image + f->start, dtype);
    for (uint32_t i = 0; i < f->fit.raise_steps && fit_count(rig, f, threshold) > f->fit.above; i++)
        threshold = sparse_rounded(threshold * f->fit.raise, dtype);
    const uint32_t enough = f->fit.enough > f->fit.below ? f->fit.enough : f->fit.below;
    if (fit_count(rig, f, threshold) < f->fit.below)
        for (uint32_t i = 0; i < f->fit.lower_steps && fit_count(rig, f, threshold) < enough; i++)
            threshold = sparse_rounded(threshold / f->fit.lower, dtype);
    kernels_put(rig->arena.image + f->threshold, dtype, threshold);
}

static void fit_case(struct sparse_rig *rig, size_t n, trib_dtype dtype, int kind, double start,
                     const struct tri_fit *fit)
{
    if (sparse_leaves_out(rig, 7))
        return;
    struct fitting f = {.fit = *fit};
    check_begin("%s fit %zu %s, %s, from %g, %u to %u, / %g %u times, * %g %u times",
                rig->arena.place->kernels->name, n, trib_dtype_name(dtype), sparse_kind_name(kind),
                start, fit->below, fit->above, fit->lower, fit->lower_steps, fit->raise,
                fit->raise_steps);
    arena_reset(&rig->arena);
    f.state = sparse_state_place(rig, n, dtype, rig->calls % 2 ? dtype : 0, rig->calls);
    sparse_fill(rig->arena.image + sparse_acc_at(rig, &f.state), dtype, n, kind, 5);
    f.start = sparse_number(rig, dtype, start);
    f.threshold = sparse_number(rig, dtype, -1);
    const struct sparse_call call = {"fit", queue_fit, expect_fit, NULL, &f, n, 0, 0, dtype};
    sparse_run(rig, &call);
    check_end();
}

/* `fit` may be called with its threshold as start. */
static void fit_in_place(struct sparse_rig *rig)
{
    const struct tri_fit fit = {200, 300, 1.1, 1.02, 20, 40, 0};
    struct fitting f = {.fit = fit};
    check_begin("%s fit of its own start", rig->arena.place->kernels->name);
    arena_reset(&rig->arena);
    f.state = sparse_state_place(rig, 20000, TRIB_F32, 0, 0);
    sparse_fill(rig->arena.image + sparse_acc_at(rig, &f.state), TRIB_F32, 20000, SPARSE_GAUSS, 5);
    f.start = f.threshold = sparse_number(rig, TRIB_F32, 3);
    const struct sparse_call call = {"fit", queue_fit, expect_fit, NULL, &f, 20000, 0, 0, TRIB_F32};
    sparse_run(rig, &call);
    check_end();
}

static void fits(struct sparse_rig *rig)
{
    static const int kinds[] = {SPARSE_GAUSS,   SPARSE_EQUAL, SPARSE_LAYERS,
                                SPARSE_STUDENT, SPARSE_ZERO,  SPARSE_INFINITIES};
    static const double starts[] = {3, 0.01, 1, 0.75, 0, 50};
    for (size_t c = 0; c < how_many(rig) - (rig->quick ? 2 : 1); c++)
        for (size_t i = 0; i < 6; i++) {
            const uint32_t n = (uint32_t)counts[c], k = n / 50 + 1;
            const trib_dtype dtype = (c + i) % 3 == 0 ? TRIB_F64 : TRIB_F32;
            const struct tri_fit fits[] = {
                {2 * k / 3, 4 * k / 3, 1.3, 1.3, 3, 0, 0},
                {0, 4 * k / 3, 1, 1.03, 0, 5, 0},
                {k, k, 1.5, 1.02, 10, 54, 0},
                {k, UINT32_MAX, 1.012, 1, 64, 0, 0},
                {0, UINT32_MAX, 2, 2, 32, 32, 9},
                {n + 1, 0, 2, 3, 7, 9, 0},
                {2 * k, k / 2, 1.1, 1.01, 0, 64, 0},
                {k / 2, 2 * k, 1.05, 1.3, 30, 30, k},
                {k / 2, UINT32_MAX, 1.02, 1, 64, 0, 3 * k},
            };
            for (size_t which = 0; which < sizeof fits / sizeof fits[0]; which++)
                if (n < 50000 || which == (c + i) % 9)
                    fit_case(rig, n, dtype, kinds[i], starts[(i + which) % 6], &fits[which]);
        }
    fit_in_place(rig);
}

/* --------------------------------------------------------------------------- adjust_threshold */

struct adjusting {
    size_t kept, threshold, count, decision;
    trib_dtype dtype;
    const struct tri_fit *fit;
};

static trib_status queue_adjust(const struct sparse_target *target, const void *argument)
{
    const struct adjusting *n = argument;
    return target->kernels->adjust_threshold(
        sparse_at(target->memory, n->kept), sparse_at(target->memory, n->threshold), n->dtype,
        sparse_at(target->memory, n->count), n->fit, sparse_at(target->memory, n->decision),
        target->stream);
}

static void expect_adjust(struct sparse_rig *rig, const void *argument)
{
    const struct adjusting *n = argument;
    unsigned char *image = rig->arena.image;
    double threshold = kernels_get(image + n->threshold, n->dtype);
    const uint32_t count = sparse_word_get(image, n->count);
    if (sparse_word_get(image, n->decision) == 0)
        return;
    if (n->fit != NULL && count < n->fit->below)
        threshold /= n->fit->lower;
    else if (n->fit != NULL && count > n->fit->above)
        threshold *= n->fit->raise;
    kernels_put(image + n->kept, n->dtype, threshold);
}

static void adjust_threshold(struct sparse_rig *rig)
{
    static const struct tri_fit fit = {100, 200, 1.012, 1.025, 7, 9, 0};
    static const uint32_t found[] = {0, 99, 100, 150, 200, 201, UINT32_MAX};
    for (int f64 = 0; f64 < 2; f64++)
        for (int without = 0; without < 2; without++)
            for (uint32_t decision = 0; decision < 2; decision++)
                for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
                    const trib_dtype dtype = f64 ? TRIB_F64 : TRIB_F32;
                    struct adjusting n = {.dtype = dtype, .fit = without ? NULL : &fit};
                    check_begin("%s adjust_threshold %s, %u found, decision %u",
                                rig->arena.place->kernels->name, trib_dtype_name(dtype), found[i],
                                decision);
                    arena_reset(&rig->arena);
                    n.kept = sparse_number(rig, dtype, 0.125);
                    n.threshold = sparse_number(rig, dtype, 0.7);
                    n.count = sparse_word(rig, found[i]);
                    n.decision = sparse_word(rig, decision);
                    const struct sparse_call call = {
                        "adjust_threshold", queue_adjust, expect_adjust, NULL, &n, 1, 0, 0, dtype};
                    sparse_run(rig, &call);
                    check_end();
                }
}

void sparse_threshold_suite(struct sparse_rig *rig)
{
    summing(rig, false);
    summing(rig, true);
    alike(rig);
    fits(rig);
    adjust_threshold(rig);
}
