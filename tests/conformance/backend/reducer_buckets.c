/* Which gradients share a bucket of a reducer, seen by where the views lie: a bucket begins at a multiple
 * of 256 bytes from the first one, and a gradient here takes 240 or 480. */
#include "tests/conformance/backend/backend.h"

enum { ONE = 60, BUCKET = 1000, FIRST = 500, MOST = 12 };

/* Counts in units of ONE floats, and the number of gradients in each bucket. */
static const struct plan {
    const char *of;
    int counts[MOST], buckets[MOST];
} plans[] = {
    {"nothing", {0}, {0}},
    {"one", {1}, {1}},
    {"one that is larger than a bucket", {9}, {1}},
    {"what fits into the first", {1, 1}, {2}},
    {"a first one, and a last one as it comes", {1, 1, 1, 1}, {2, 2}},
    {"a last one that is split", {1, 1, 1, 1, 1, 1}, {2, 2, 2}},
    {"a full one between small ones", {1, 1, 1, 1, 1, 1, 1, 1}, {2, 4, 2}},
    {"the last gradient alone, because it is large", {1, 1, 1, 3}, {2, 1, 1}},
    {"the last gradient alone, which has a bucket", {1, 1, 1, 1, 1, 1, 4}, {2, 4, 1}},
    {"a small gradient before a large one stays", {2, 1, 3, 1}, {1, 2, 1}},
};

static size_t count_of(const int *numbers)
{
    size_t n = 0;
    while (n < MOST && numbers[n] != 0)
        n++;
    return n;
}

/* Every gradient lies right behind the one before, if that shares its bucket. */
static void check_views(trib_reducer *reducer, const struct plan *plan)
{
    size_t i = 0;
    const char *end = NULL;
    for (size_t b = 0; b < count_of(plan->buckets); b++)
        for (int of = 0; of < plan->buckets[b]; of++, i++) {
            void *view = NULL;
            if (!CHECK_OK(trib_reducer_view(&view, reducer, i)))
                return;
            CHECK_MSG(i == 0 || ((const char *)view == end) == (of > 0),
                      "%s: gradient %zu is in the wrong bucket", plan->of, i);
            end = (const char *)view + (size_t)plan->counts[i] * ONE * sizeof(float);
        }
    CHECK(i == count_of(plan->counts));
}

/* NULL, and a failed check, if it cannot be made. */
static trib_reducer *reducer_of(struct suite *suite, int rank, const size_t *counts, size_t n,
                                uint64_t first_bytes, uint64_t bucket_bytes)
{
    trib_reducer *reducer = NULL;
    trib_tensor tensors[MOST];
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = TRIB_REDUCER_VIEWS;
    options.first_bytes = first_bytes;
    options.bucket_bytes = bucket_bytes;
    for (size_t i = 0; i < n; i++)
        tensors[i] = (trib_tensor){NULL, counts[i], TRIB_F32, 0};
    CHECK_OK(trib_reducer_create(&reducer, suite->team.comms[rank], tensors, n, &options));
    return reducer;
}

static void check_plan(struct suite *suite, int rank, const struct plan *plan)
{
    size_t counts[MOST];
    const size_t n = count_of(plan->counts);
    for (size_t i = 0; i < n; i++)
        counts[i] = (size_t)plan->counts[i] * ONE;
    trib_reducer *reducer = reducer_of(suite, rank, counts, n, FIRST, BUCKET);
    if (reducer == NULL)
        return;
    CHECK_MSG((size_t)trib_reducer_buckets(reducer) == count_of(plan->buckets), "%s: %d buckets",
              plan->of, (int)trib_reducer_buckets(reducer));
    check_views(reducer, plan);
    CHECK_OK(trib_reducer_destroy(reducer));
}

/* With other limits than those of the plans. */
static void check_number(struct suite *suite, int rank, const size_t *counts, size_t n,
                         uint64_t first_bytes, uint64_t bucket_bytes, uint64_t expected)
{
    trib_reducer *reducer = reducer_of(suite, rank, counts, n, first_bytes, bucket_bytes);
    if (reducer == NULL)
        return;
    CHECK_MSG(trib_reducer_buckets(reducer) == expected, "%d buckets, expected %d",
              (int)trib_reducer_buckets(reducer), (int)expected);
    CHECK_OK(trib_reducer_destroy(reducer));
}

static void planning_rank(int rank, int size, void *argument)
{
    static const size_t counts[] = {64, 400, 300, 300, 64, 64};
    static const size_t large[] = {1024, 1 << 18, 1 << 18, 1024};
    static const size_t quarters[] = {1 << 16, 1 << 16, 1 << 16, 1 << 16}; /* 256 KiB each */
    struct suite *suite = argument;
    (void)size;
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
        check_plan(suite, rank, &plans[p]);
    check_number(suite, rank, counts, 6, 512, 4096, 3);
    check_number(suite, rank, counts, 6, 256, 4096, 4); /* 4,256 in between */
    check_number(suite, rank, counts, 6, 512, 2048, 5);
    check_number(suite, rank, counts, 6, 1 << 20, 4096, 2); /* not 4,768 in one */
    check_number(suite, rank, large, 4, 0, 0, 3);
    check_number(suite, rank, quarters, 4, 0, 0, 3);
}

void backend_reducer_buckets(struct suite *suite)
{
    check_begin("%s, %d ranks, by %s: buckets of reducers", suite->team.backend, suite->team.size,
                suite->how);
    check_ranks(suite->team.size, planning_rank, suite);
    check_end();
}
