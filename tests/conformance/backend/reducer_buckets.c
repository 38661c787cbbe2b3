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

static void planning_rank(int rank, int size, void *argument)
{
    struct suite *suite = argument;
    (void)size;
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        trib_reducer *reducer = NULL;
        trib_tensor tensors[MOST];
        trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
        const size_t n = count_of(plans[p].counts);
        options.flags = TRIB_REDUCER_VIEWS;
        options.bucket_bytes = BUCKET;
        options.first_bytes = FIRST;
        for (size_t i = 0; i < n; i++)
            tensors[i] = (trib_tensor){NULL, (size_t)plans[p].counts[i] * ONE, TRIB_F32, 0};
        if (!CHECK_OK(trib_reducer_create(&reducer, suite->team.comms[rank], tensors, n, &options)))
            return;
        CHECK_MSG((size_t)trib_reducer_buckets(reducer) == count_of(plans[p].buckets),
                  "%s: %d buckets", plans[p].of, (int)trib_reducer_buckets(reducer));
        check_views(reducer, &plans[p]);
        CHECK_OK(trib_reducer_destroy(reducer));
    }
}

void backend_reducer_buckets(struct suite *suite)
{
    check_begin("%s, %d ranks, by %s: buckets of reducers", suite->team.backend, suite->team.size,
                suite->how);
    check_ranks(suite->team.size, planning_rank, suite);
    check_end();
}
