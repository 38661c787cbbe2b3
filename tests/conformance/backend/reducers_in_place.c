/* Reducers of gradients that lie in buckets of the caller's: in which order buckets are filled and
 * queued, what an export has in which order, and what is left of a step that is not applied. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum { GRADIENTS = 8, BYTES = 512, BUCKETS = 5, QUEUED = 4 };

/* In the order of the buckets. */
static const struct place {
    uint64_t gradient;
    trib_dtype dtype;
    size_t count, at;
} places[GRADIENTS] = {
    {5, TRIB_F32, 17, 8},   {4, TRIB_F32, 3, 76}, /* right behind it */
    {6, TRIB_F32, 0, 0},                          /* nothing, and nowhere */
    {0, TRIB_F32, 10, 88},                        /* right behind, but in a bucket of its own */
    {1, TRIB_F16, 6, 128},  {7, TRIB_F16, 1, 140},
    {3, TRIB_F64, 0, 0}, /* alone in a bucket, which so is none */
    {2, TRIB_F32, 30, 272},
};
static const uint64_t order[GRADIENTS] = {5, 4, 6, 0, 1, 7, 3, 2};
static const uint64_t buckets[BUCKETS] = {3, 1, 2, 1, 1};

struct placing {
    struct suite *suite;
    int rank, size;
    trib_comm *comm;
    trib_device *device;
    trib_stream stream;
    trib_reducer *reducer;
    struct guarded memory;
    uint64_t seed;
};

enum step { ALL_READY, SOME_ABSENT, ALL_ABSENT, STEPS };

static bool is_ready(enum step step, int rank, size_t turn)
{
    return step == ALL_READY || (step == SOME_ABSENT && (turn + (size_t)rank) % 3 != 0);
}

static int input_of(const struct placing *placing, int rank, size_t turn, size_t element)
{
    return (int)((placing->seed + (uint64_t)rank * 5 + turn * 3 + element) % 7) - 3;
}

static void put(struct placing *placing)
{
    guarded_reset(&placing->memory, BYTES, 0);
    for (size_t t = 0; t < GRADIENTS; t++)
        for (size_t e = 0; e < places[t].count; e++)
            reference_store(guarded_image(&placing->memory, places[t].at), places[t].dtype, e,
                            input_of(placing, placing->rank, t, e));
    CHECK(guarded_push(&placing->memory, placing->stream));
}

/* Of what was put: what has become of it is fetched. */
static bool run_step(struct placing *placing, enum step step)
{
    for (size_t t = 0; t < GRADIENTS; t++)
        if (is_ready(step, placing->rank, t))
            CHECK_OK(trib_reducer_ready(placing->reducer, places[t].gradient, placing->stream));
    return CHECK_OK(trib_reducer_finish(placing->reducer, placing->stream)) &&
           CHECK(guarded_pull(&placing->memory, placing->stream)) &&
           CHECK_OK(trib_stream_wait(placing->device, placing->stream));
}

/* ------------------------------------------------------------------------------------- creation */

/* As it is passed: gradient 0 first. */
static trib_status create(struct placing *placing, const trib_reducer_options *options)
{
    trib_tensor tensors[GRADIENTS];
    guarded_reset(&placing->memory, BYTES, 0); /* from now on it lies where it does */
    for (size_t t = 0; t < GRADIENTS; t++)
        tensors[places[t].gradient] = (trib_tensor){guarded_data(&placing->memory, places[t].at),
                                                    places[t].count, places[t].dtype, 0};
    return trib_reducer_create(&placing->reducer, placing->comm, tensors, GRADIENTS, options);
}

static trib_reducer_options plain(void)
{
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = TRIB_REDUCER_SUM;
    return options;
}

static trib_reducer_options ordered(void)
{
    trib_reducer_options options = plain();
    options.order = order;
    return options;
}

static trib_reducer_options in_place(void)
{
    trib_reducer_options options = ordered();
    options.buckets = buckets;
    options.nbuckets = BUCKETS;
    return options;
}

static void destroy(struct placing *placing)
{
    CHECK_OK(trib_reducer_destroy(placing->reducer));
    placing->reducer = NULL;
}

/* ---------------------------------------------------------------------------------------- dense */

static void expect(struct placing *placing, enum step step)
{
    for (size_t t = 0; t < GRADIENTS; t++)
        for (size_t e = 0; e < places[t].count; e++) {
            double sum = 0;
            for (int rank = 0; rank < placing->size; rank++)
                sum += is_ready(step, rank, t) ? input_of(placing, rank, t, e) : 0;
            reference_store(guarded_image(&placing->memory, places[t].at), places[t].dtype, e, sum);
        }
}

static bool dense_step(struct placing *placing, enum step step)
{
    placing->seed++;
    put(placing);
    if (!run_step(placing, step))
        return false;
    expect(placing, step);
    return backend_compare(placing->suite, placing->rank, &placing->memory, NULL,
                           "a reducer in place");
}

static uint64_t calls_of(const struct placing *placing)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, placing->comm));
    return counters.calls;
}

/* A bucket is queued with the last gradient of it, and the last bucket by the finish. */
static void check_queued(struct placing *placing)
{
    static const uint64_t queued[GRADIENTS] = {0, 1, 1, 2, 2, 3, 3, 3};
    const uint64_t before = calls_of(placing);
    for (size_t t = 0; t < GRADIENTS; t++) {
        CHECK_OK(trib_reducer_ready(placing->reducer, places[t].gradient, placing->stream));
        CHECK_MSG(calls_of(placing) - before == queued[t], "%d calls after %d gradients",
                  (int)(calls_of(placing) - before), (int)t + 1);
    }
    CHECK_OK(trib_reducer_finish(placing->reducer, placing->stream));
    CHECK(calls_of(placing) - before == trib_reducer_buckets(placing->reducer));
}

static bool dense(struct placing *placing)
{
    const trib_reducer_options options = in_place();
    bool good = CHECK_OK(create(placing, &options));
    void *view = NULL;
    if (!good)
        return false;
    CHECK(trib_reducer_buckets(placing->reducer) == QUEUED);
    CHECK_STATUS(trib_reducer_view(&view, placing->reducer, 0), TRIB_ERR_INVALID_USAGE);
    for (int step = 0; good && step < STEPS; step++)
        good = dense_step(placing, (enum step)step);
    if (good)
        check_queued(placing);
    destroy(placing);
    return good;
}

/* Buckets of the reducer's own are filled in the order, too: those of f32, in which views lie in it. */
static bool views(struct placing *placing)
{
    trib_reducer_options options = ordered();
    const char *previous = NULL;
    options.flags = TRIB_REDUCER_VIEWS;
    if (!CHECK_OK(create(placing, &options)))
        return false;
    for (size_t t = 0; t < GRADIENTS; t++) {
        void *view = NULL;
        CHECK_OK(trib_reducer_view(&view, placing->reducer, places[t].gradient));
        if (view == NULL || places[t].dtype != TRIB_F32)
            continue;
        CHECK(previous == NULL || previous < (char *)view);
        previous = view;
    }
    destroy(placing);
    return true;
}

/* --------------------------------------------------------------------------------------- sparse */

static trib_status create_sparse(struct placing *placing, bool copies, double density)
{
    trib_reducer_options options = copies ? plain() : in_place();
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    sparse.algorithm = "topka";
    sparse.density = density;
    options.sparse = &sparse;
    options.bucket_bytes = options.first_bytes = 1; /* of copies: a bucket for each gradient */
    return create(placing, &options);
}

/* Every gradient, whose elements are all `value`, but one of the last rank is NaN if `nan`. */
static void sparse_step(struct placing *placing, double value, bool nan)
{
    guarded_reset(&placing->memory, BYTES, 0);
    for (size_t t = 0; t < GRADIENTS; t++)
        for (size_t e = 0; e < places[t].count; e++)
            reference_store(guarded_image(&placing->memory, places[t].at), places[t].dtype, e,
                            value);
    if (nan && placing->rank == placing->size - 1)
        reference_store(guarded_image(&placing->memory, places[4].at), places[4].dtype, 1,
                        (double)NAN);
    CHECK(guarded_push(&placing->memory, placing->stream));
    (void)run_step(placing, ALL_READY);
}

static void *export(const struct placing *placing, size_t *bytes)
{
    *bytes = trib_reducer_export_bytes(placing->reducer);
    void *data = calloc(*bytes + 1, 1);
    if (data == NULL)
        abort();
    CHECK_OK(trib_reducer_export(placing->reducer, data, *bytes));
    return data;
}

/* What a reducer of copies has kept of a step, in the order in which its gradients were passed. */
static void *kept_of_copies(struct placing *placing, size_t *bytes)
{
    if (!CHECK_OK(create_sparse(placing, true, 0.25)))
        return NULL;
    put(placing);
    (void)run_step(placing, ALL_READY);
    void *data = export(placing, bytes);
    destroy(placing);
    return data;
}

/* All residuals are sent: what they sum to is left in `memory`. */
static bool send_all(struct placing *placing, bool copies, const void *kept, size_t bytes)
{
    const bool good = CHECK_OK(create_sparse(placing, copies, 1)) &&
                      CHECK_OK(trib_reducer_import(placing->reducer, kept, bytes, 0));
    if (good)
        sparse_step(placing, 0, false);
    destroy(placing);
    return good;
}

/* Residuals belong to gradients, wherever these lie. */
static bool exports(struct placing *placing)
{
    unsigned char sums[BYTES];
    size_t bytes;
    bool good = true;
    void *kept = kept_of_copies(placing, &bytes);
    if (kept == NULL)
        return false;
    good = send_all(placing, true, kept, bytes);
    memcpy(sums, guarded_found(&placing->memory, 0), BYTES);
    good = good && send_all(placing, false, kept, bytes);
    for (size_t t = 0; good && t < GRADIENTS; t++)
        CHECK_MSG(memcmp(guarded_found(&placing->memory, places[t].at), sums + places[t].at,
                         places[t].count * trib_dtype_size(places[t].dtype)) == 0,
                  "the residual of gradient %d", (int)places[t].gradient);
    free(kept);
    return good;
}

/* A step that is not applied: zeros, and nothing around them. */
static bool fails(struct placing *placing)
{
    size_t bytes;
    if (!CHECK_OK(create_sparse(placing, false, 0.25)))
        return false;
    sparse_step(placing, 2, false);
    void *before = export(placing, &bytes);
    sparse_step(placing, 3, true);
    CHECK_STATUS(trib_reducer_status(placing->reducer), TRIB_ERR_NON_FINITE);
    void *after = export(placing, &bytes);
    CHECK(memcmp(before, after, bytes) == 0);
    for (size_t t = 0; t < GRADIENTS; t++)
        memset(guarded_image(&placing->memory, places[t].at), 0,
               places[t].count * trib_dtype_size(places[t].dtype));
    const bool good = backend_compare(placing->suite, placing->rank, &placing->memory, NULL,
                                      "a step in place that is not applied");
    free(before);
    free(after);
    destroy(placing);
    return good;
}

/* ------------------------------------------------------------------------------------- mistakes */

static void refused(struct placing *placing, const trib_reducer_options *options, const char *words)
{
    CHECK_STATUS(create(placing, options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL(words);
    CHECK(placing->reducer == NULL);
}

static void wrong_orders(struct placing *placing)
{
    uint64_t wrong[GRADIENTS];
    trib_reducer_options options = ordered();
    options.order = wrong;
    memcpy(wrong, order, sizeof wrong);
    wrong[7] = 5;
    refused(placing, &options, "options.order[7] is 5");
    wrong[7] = GRADIENTS;
    refused(placing, &options, "options.order[7] is 8");
    options.order = order;
    options.flags = TRIB_REDUCER_LEARN_ORDER;
    refused(placing, &options, "options.order and TRIB_REDUCER_LEARN_ORDER");
}

/* Arrays are not read before it is known that they can be there. */
static void unread(struct placing *placing)
{
    const trib_reducer_options options = in_place();
    CHECK_STATUS(
        trib_reducer_create(&placing->reducer, placing->comm, NULL, (size_t)1 << 45, &options),
        TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("`gradients` is NULL");
    CHECK(placing->reducer == NULL);
}

/* No gradients, and none that has elements. */
static void nothing(struct placing *placing)
{
    static const uint64_t both[] = {1, 0}, two[] = {2};
    const trib_tensor tensors[] = {{NULL, 0, TRIB_F32, 0}, {NULL, 0, TRIB_F64, 0}};
    trib_reducer_options options = in_place();
    options.order = both;
    options.buckets = two;
    for (size_t n = 0; n <= 2; n += 2) {
        options.nbuckets = n / 2;
        if (!CHECK_OK(trib_reducer_create(&placing->reducer, placing->comm, tensors, n, &options)))
            return;
        CHECK(trib_reducer_buckets(placing->reducer) == 0);
        CHECK_OK(trib_reducer_finish(placing->reducer, placing->stream));
        CHECK_OK(trib_stream_wait(placing->device, placing->stream));
        destroy(placing);
    }
}

static void wrong_buckets(struct placing *placing)
{
    static const uint64_t more[] = {4, 2, 3}, none[] = {4, 0, 4}, gap[] = {5, 2, 1};
    static const uint64_t types[] = {5, 1, 2}, last_before[] = {5, 4, 6, 0, 2, 1, 7, 3};
    trib_reducer_options options = in_place();
    options.nbuckets--;
    refused(placing, &options, "options.buckets has 7 gradients, of 8");
    options.buckets = more;
    options.nbuckets = 3;
    refused(placing, &options, "options.buckets[2] is 3");
    options.buckets = none;
    refused(placing, &options, "options.buckets[1] is 0");
    options.buckets = types;
    refused(placing, &options, "`gradients[1]` shares a bucket");
    options.buckets = gap;
    options.order = last_before;
    refused(placing, &options, "`gradients[2]` shares a bucket");
    options.buckets = NULL;
    refused(placing, &options, "options.nbuckets is not 0");
}

static void wrong_flags(struct placing *placing)
{
    trib_reducer_options options = in_place();
    options.order = NULL;
    options.flags |= TRIB_REDUCER_LEARN_ORDER;
    refused(placing, &options, "options.buckets with");
    options.flags = TRIB_REDUCER_VIEWS;
    refused(placing, &options, "options.buckets with");
    options.flags = 0;
    options.device_weight = guarded_data(&placing->memory, 0);
    refused(placing, &options, "options.device_weight");
}

/* One rank alone has another order, or other buckets. */
static void differs(struct placing *placing)
{
    static const uint64_t fewer[] = {4, 2, 1, 1};
    uint64_t other[GRADIENTS];
    const bool last = placing->rank == placing->size - 1;
    const trib_status expected = placing->size == 1 ? TRIB_OK : TRIB_ERR_MISMATCH;
    trib_reducer_options options = in_place();
    options.buckets = last ? fewer : buckets;
    options.nbuckets -= last;
    CHECK_STATUS(create(placing, &options), expected);
    destroy(placing);
    options = ordered(); /* buckets have as many gradients and elements */
    memcpy(other, order, sizeof other);
    other[0] = 4;
    other[1] = 5;
    options.order = last ? other : order;
    CHECK_STATUS(create(placing, &options), expected);
    destroy(placing);
}

static void placing_rank(int rank, int size, void *argument)
{
    struct suite *suite = argument;
    struct placing placing = {.suite = suite,
                              .rank = rank,
                              .size = size,
                              .comm = suite->team.comms[rank],
                              .device = suite->team.devices[rank],
                              .stream = suite->team.streams[rank],
                              .seed = suite->seed};
    bool good = guarded_create(&placing.memory, placing.device, BYTES);
    good = good && dense(&placing) && views(&placing) && exports(&placing) && fails(&placing);
    if (backend_go_on(suite, rank, good)) {
        wrong_orders(&placing);
        wrong_buckets(&placing);
        unread(&placing);
        nothing(&placing);
        wrong_flags(&placing);
        differs(&placing);
    }
    guarded_destroy(&placing.memory);
}

void backend_reducers_in_place(struct suite *suite)
{
    check_begin("%s, %d ranks, by %s: reducers in place", suite->team.backend, suite->team.size,
                suite->how);
    suite->seed += 100000;
    check_ranks(suite->team.size, placing_rank, suite);
    check_end();
}
