/* How far reductions of floats are from the exact results: no further than ROUNDING in the header says, and
 * on all ranks the same. The inputs have as many bits as their type has, so that nearly all results are
 * rounded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum {
    PERIOD = 1021, /* inputs repeat: the exact results of so many are all */
    SMALL = 1000,
    MIDDLE_BYTES = 2000000, /* of 2 ranks in two shots of push, of all types */
    LARGE = 2100001,        /* more than push takes, of 2 bytes too; pull takes it of 8 */
    LARGE_RANKS = 8
};

enum kind { ALLREDUCE, REDUCE, REDUCE_SCATTER, KINDS, WEIGHTED = KINDS };
static const char *const kinds[KINDS] = {"allreduce", "reduce", "reduce_scatter"};

/* NEARLY_TWO: in rank order the total drops all weights but the first two. */
enum weighting { OF_ALL_SIZES, SOME_ARE_0, NEARLY_TWO, WEIGHTINGS };
static const char *const weightings[WEIGHTINGS] = {
    "average by weights of all sizes", "average by weights of which some are 0",
    "average by weights of which two are nearly all"};

struct exact {
    long double sum, magnitudes, product; /* magnitudes: the sum of them; WEIGHTED: averages */
};

struct rounding {
    struct suite *suite;
    trib_dtype dtype;
    trib_op op;
    enum kind kind;
    enum weighting weighting;
    int weigh; /* WEIGHTED: how many ranks weigh more than 0 */
    trib_variant variant;
    size_t count;
    long double worst; /* error so far, in parts of its bound */
    struct exact exact[PERIOD];
    void *found[TEAM_MAX]; /* of each rank, `count` elements; NULL: none */
};

/* ---- inputs and exact results */

/* Digits of the significand. */
static int digits_of(trib_dtype dtype)
{
    return dtype == TRIB_F64 ? 53 : dtype == TRIB_F32 ? 24 : dtype == TRIB_F16 ? 11 : 8;
}

/* A number of the type with all digits: from 1/8 to 4 and of both signs, but a factor is from 3/4 to 3/2, so
 * that products of 64 neither overflow nor vanish. */
static double input(const struct rounding *r, int rank, size_t position)
{
    const uint64_t bits = reference_bits(r->suite->seed, (uint64_t)rank, position % PERIOD);
    const int digits = digits_of(r->dtype);
    const double fraction =
        1 + ldexp((double)(bits >> 8 & ((UINT64_C(1) << (digits - 1)) - 1)), 1 - digits);
    if (r->op == TRIB_PROD)
        return fraction >= 1.5 ? fraction / 2 : fraction;
    return (bits & 1 ? -1 : 1) * ldexp(fraction, (int)(bits >> 1 & 127) % 5 - 3);
}

static void compute(struct rounding *r)
{
    for (size_t i = 0; i < PERIOD; i++) {
        struct exact *exact = &r->exact[i];
        *exact = (struct exact){.product = 1};
        for (int rank = 0; rank < r->suite->team.size; rank++) {
            const long double value = input(r, rank, i);
            exact->sum += value;
            exact->magnitudes += fabsl(value);
            exact->product *= value;
        }
    }
}

/* Of all sizes: from 2^-20 to 2^21. */
static float weight_of(const struct rounding *r, int rank)
{
    const uint64_t bits = reference_bits(r->suite->seed, (uint64_t)rank, PERIOD);
    if (r->weighting == SOME_ARE_0 && rank % 3 == 1)
        return 0;
    if (r->weighting == NEARLY_TWO)
        return rank < 2 ? 1.25F - 0.25F * (float)rank : ldexpf(1, r->dtype == TRIB_F64 ? -52 : -23);
    return ldexpf((float)((bits >> 8 & 0x7fffff) + 0x800000), (int)(bits & 127) % 41 - 43);
}

static void compute_weighted(struct rounding *r)
{
    long double total = 0;
    r->weigh = 0;
    for (int rank = 0; rank < r->suite->team.size; rank++) {
        total += weight_of(r, rank);
        r->weigh += weight_of(r, rank) > 0;
    }
    for (size_t i = 0; i < PERIOD; i++) {
        struct exact *exact = &r->exact[i];
        *exact = (struct exact){0};
        for (int rank = 0; rank < r->suite->team.size; rank++) {
            const long double value = input(r, rank, i) * (weight_of(r, rank) / total);
            exact->sum += value;
            exact->magnitudes += fabsl(value);
        }
    }
}

/* ---- bounds */

/* What `n` roundings of unit `u` can add up to, relative to what is rounded (Higham, Accuracy and Stability
 * of Numerical Algorithms, section 3.1). */
static long double roundings(int n, long double u)
{
    return (long double)n * u / (1 - (long double)n * u);
}

static long double unit_of(trib_dtype dtype)
{
    return ldexpl(1, -digits_of(dtype));
}

/* Does NCCL reduce, in an order of its own and in the type itself; or kernels of the library? A small call is
 * small enough for every machine only as an allreduce. */
static bool is_of_engine(const struct rounding *r)
{
    const struct suite *suite = r->suite;
    if (strcmp(suite->team.backend, "nccl") != 0)
        return false;
    if (r->variant != TRIB_VARIANT_AUTO)
        return r->variant == TRIB_VARIANT_NCCL;
    if (suite->reach == BACKEND_REACHES_ALL)
        return r->kind == REDUCE;
    return suite->reach == BACKEND_REACHES_NONE || r->kind != ALLREDUCE || r->count != SMALL;
}

/* A product, and an addition for each other rank; as many additions of weights, and the quotient. In
 * whatever order, and f16 and bf16 in f32, on every backend. A result of f16 may be subnormal. */
static long double bound_weighted(const struct rounding *r, const struct exact *exact)
{
    const bool narrow = r->dtype == TRIB_F16 || r->dtype == TRIB_BF16;
    const long double u = unit_of(r->dtype), inner = narrow ? ldexpl(1, -24) : u;
    const long double inside = roundings(2 * r->weigh, inner) * exact->magnitudes;
    const long double last = narrow ? u * (fabsl(exact->sum) + inside) : 0;
    const long double least = r->dtype == TRIB_F16 ? ldexpl(1, -25) : 0;
    return inside + fmaxl(last, least) + ldexpl(exact->magnitudes, -57);
}

/* The exact result, and how far the found one may be from it. */
static long double bound(const struct rounding *r, const struct exact *exact, long double *out)
{
    const int n = r->suite->team.size;
    const bool engine = is_of_engine(r);
    const bool narrow = r->dtype == TRIB_F16 || r->dtype == TRIB_BF16;
    const long double u = unit_of(r->dtype), inner = narrow && !engine ? ldexpl(1, -24) : u;
    const int steps = r->op == TRIB_AVG ? (engine ? n + 1 : n) : n - 1;
    const long double share = r->op == TRIB_AVG ? (long double)n : 1;
    const bool multiplies = r->op == TRIB_PROD;
    *out = multiplies ? exact->product : exact->sum / share;
    const long double base = multiplies ? fabsl(exact->product) : exact->magnitudes / share;
    const long double inside = roundings(steps, inner) * base;
    const long double last = narrow && !engine ? u * (fabsl(*out) + inside) : 0;
    return inside + last + ldexpl(base, -58); /* the references' own */
}

static long double bound_of(const struct rounding *r, const struct exact *exact, long double *out)
{
    if (r->kind != WEIGHTED)
        return bound(r, exact, out);
    *out = exact->sum;
    return bound_weighted(r, exact);
}

/* ---- calls */

static size_t sent_blocks(const struct rounding *r)
{
    return r->kind == REDUCE_SCATTER ? (size_t)r->suite->team.size : 1;
}

static trib_status call(const struct rounding *r, int rank, const void *send, void *recv)
{
    trib_comm *comm = r->suite->team.comms[rank];
    trib_stream stream = r->suite->team.streams[rank];
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = r->variant;
    if (r->kind == WEIGHTED)
        return trib_weighted_average(comm, &(trib_tensor){recv, r->count, r->dtype, 0}, 1,
                                     weight_of(r, rank), NULL, NULL, stream);
    if (r->kind == ALLREDUCE)
        return trib_allreduce_with(comm, send, recv, r->count, r->dtype, r->op, &options, stream);
    if (r->kind == REDUCE)
        return trib_reduce(comm, send, recv, r->count, r->dtype, r->op, 0, stream);
    return trib_reduce_scatter(comm, send, recv, r->count, r->dtype, r->op, stream);
}

static bool run(const struct rounding *r, int rank, void *send, void *recv, char *image)
{
    trib_device *device = r->suite->team.devices[rank];
    trib_stream stream = r->suite->team.streams[rank];
    const size_t block = r->count * trib_dtype_size(r->dtype);
    void *input_at = r->kind == WEIGHTED ? recv : send;
    for (size_t i = 0; i < sent_blocks(r) * r->count; i++)
        reference_store(image, r->dtype, i, input(r, rank, i));
    return CHECK_OK(trib_device_copy(device, input_at, image, sent_blocks(r) * block, stream)) &&
           CHECK_OK(trib_stream_wait(device, stream)) && CHECK_OK(call(r, rank, send, recv)) &&
           CHECK_OK(trib_device_copy(device, image, recv, block, stream)) &&
           CHECK_OK(trib_stream_wait(device, stream)) &&
           CHECK_OK(trib_comm_status(r->suite->team.comms[rank]));
}

static void run_rank(int rank, int size, void *argument)
{
    struct rounding *r = argument;
    trib_device *device = r->suite->team.devices[rank];
    void *send = NULL, *recv = NULL;
    const size_t block = r->count * trib_dtype_size(r->dtype);
    char *image = malloc(sent_blocks(r) * block);
    (void)size;
    const bool ready = CHECK(image != NULL) &&
                       CHECK_OK(trib_device_alloc(&send, device, sent_blocks(r) * block)) &&
                       CHECK_OK(trib_device_alloc(&recv, device, block));
    const bool good = backend_go_on(r->suite, rank, ready && run(r, rank, send, recv, image));
    CHECK_OK(trib_device_free(device, send));
    CHECK_OK(trib_device_free(device, recv));
    if (good && (r->kind != REDUCE || rank == 0))
        r->found[rank] = image;
    else
        free(image);
}

/* ---- comparisons */

static const char *name_of(const struct rounding *r)
{
    return r->kind == WEIGHTED ? weightings[r->weighting] : kinds[r->kind];
}

static bool check_rank(struct rounding *r, int rank)
{
    const size_t first = r->kind == REDUCE_SCATTER ? (size_t)rank * r->count : 0;
    for (size_t i = 0; i < r->count; i++) {
        long double right = 0;
        const long double most = bound_of(r, &r->exact[(first + i) % PERIOD], &right);
        const long double found = reference_load(r->found[rank], r->dtype, i);
        const long double off = fabsl(found - right);
        if (off > r->worst * most)
            r->worst = off / most;
        if (!(off <= most))
            return CHECK_MSG(false,
                             "%s of %zu by %s, rank %d: element %zu is %.17Lg, exactly %.17Lg: off "
                             "by %Lg, at most %Lg is allowed",
                             name_of(r), r->count, trib_variant_name(r->variant), rank, i, found,
                             right, off, most);
    }
    return r->kind == REDUCE || r->kind == REDUCE_SCATTER ||
           CHECK_MSG(memcmp(r->found[0], r->found[rank], r->count * trib_dtype_size(r->dtype)) == 0,
                     "ranks 0 and %d have different bits", rank);
}

static void try_kind(struct rounding *r, enum kind kind, size_t count, trib_variant variant)
{
    r->kind = kind;
    r->count = count;
    r->variant = variant;
    memset(r->found, 0, sizeof r->found);
    check_ranks(r->suite->team.size, run_rank, r);
    bool good = r->found[0] != NULL;
    for (int rank = 0; rank < r->suite->team.size && good; rank++)
        good = r->found[rank] == NULL || check_rank(r, rank);
    for (int rank = 0; rank < r->suite->team.size; rank++)
        free(r->found[rank]);
}

/* Where all ranks have every variant but those of symmetric memory: by name, and what pull serves besides, of 3
 * ranks nothing of the size. */
static void try_variants(struct rounding *r)
{
    if (r->suite->team.size != 3)
        try_kind(r, REDUCE_SCATTER, LARGE, TRIB_VARIANT_AUTO);
    try_kind(r, ALLREDUCE, SMALL, TRIB_VARIANT_PUSH);
    for (trib_variant variant = TRIB_VARIANT_NCCL; variant <= TRIB_VARIANT_TWO_SHOT; variant++)
        if (variant != TRIB_VARIANT_PUSH)
            try_kind(r, ALLREDUCE, LARGE, variant);
}

static void try_all(struct rounding *r)
{
    const struct suite *suite = r->suite;
    for (int kind = 0; kind < KINDS; kind++)
        try_kind(r, (enum kind)kind, SMALL, TRIB_VARIANT_AUTO);
    if (suite->team.size <= LARGE_RANKS && suite->depth == BACKEND_WHOLE) {
        if (suite->reach != BACKEND_REACHES_NONE)
            try_kind(r, ALLREDUCE, MIDDLE_BYTES / trib_dtype_size(r->dtype), TRIB_VARIANT_AUTO);
        try_kind(r, ALLREDUCE, LARGE, TRIB_VARIANT_AUTO);
        if (suite->reach == BACKEND_REACHES_ALL)
            try_variants(r);
    }
}

/* Lists of one tensor. Of 2 to 64 ranks on host the worst error of f32 and f64 is 0.49 to 0.73 of its bound,
 * that of f16 and bf16, mostly of the last rounding, 0.88 to 1. If it were less
 * than half a rounding, these inputs would not be rounded at all. */
static void try_weights(struct rounding *r)
{
    const struct suite *suite = r->suite;
    r->op = TRIB_SUM;
    r->worst = 0;
    for (int i = 0; i < WEIGHTINGS; i++) {
        r->weighting = (enum weighting)i;
        compute_weighted(r);
        try_kind(r, WEIGHTED, SMALL, TRIB_VARIANT_AUTO);
    }
    if (suite->team.size <= LARGE_RANKS && suite->depth == BACKEND_WHOLE)
        try_kind(r, WEIGHTED, LARGE / 2, TRIB_VARIANT_AUTO); /* sums have 4 bytes at least */
    CHECK_MSG(suite->team.size == 1 || r->worst * 4 * suite->team.size >= 1,
              "no error is more than %Lg of its bound", r->worst);
}

void backend_rounding(struct suite *suite)
{
    static const trib_op ops[] = {TRIB_SUM, TRIB_PROD, TRIB_AVG};
    struct rounding r = {.suite = suite};
    for (r.dtype = TRIB_F16; r.dtype <= TRIB_F64; r.dtype++)
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
            r.op = ops[i];
            check_begin("%s, %d ranks by %s: rounding of %s %s", suite->team.backend,
                        suite->team.size, suite->how, trib_dtype_name(r.dtype), trib_op_name(r.op));
            compute(&r);
            try_all(&r);
            suite->seed += 10000;
            check_end();
        }
    for (r.dtype = TRIB_F16; r.dtype <= TRIB_F64; r.dtype++) {
        check_begin("%s, %d ranks by %s: rounding of %s weighted averages", suite->team.backend,
                    suite->team.size, suite->how, trib_dtype_name(r.dtype));
        try_weights(&r);
        suite->seed += 10000;
        check_end();
    }
}
