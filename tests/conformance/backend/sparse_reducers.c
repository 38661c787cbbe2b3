/* Reducers with sparse states: every bucket as a state that is called by itself; one decision for
 * all of them; what is neither sent nor kept; residuals that move with their gradients. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum { GRADIENTS = 10, PITCH = 2048, BYTES = GRADIENTS * PITCH, STEPS = 5, ALL = 502 };

static const size_t counts[GRADIENTS] = {17, 1, 0, 130, 5, 64, 3, 250, 1, 31};
static const trib_dtype dtypes[GRADIENTS] = {TRIB_F32,  TRIB_F16, TRIB_F32, TRIB_F64, TRIB_BF16,
                                             TRIB_BF16, TRIB_F64, TRIB_F16, TRIB_F32, TRIB_F32};

/* What one reducer is made with. */
struct way {
    const char *algorithm;
    double momentum;
    uint32_t flags;
    uint64_t bucket_bytes; /* 0: in place, a bucket for each gradient */
};

struct testing {
    struct suite *suite;
    int rank, size;
    trib_comm *comm;
    trib_device *device;
    trib_stream stream;
    const struct way *way;
    trib_reducer *reducer;
    trib_sparse *states[GRADIENTS]; /* of single gradients */
    struct guarded memory;          /* gradients; with views their copies */
    struct guarded direct;          /* the same for the states */
    void *data[GRADIENTS];
    uint64_t seed;
};

static size_t element_of(size_t i)
{
    return trib_dtype_size(dtypes[i]);
}

/* Of residuals. */
static trib_dtype kept_type(size_t i)
{
    return dtypes[i] == TRIB_F64 ? TRIB_F64 : TRIB_F32;
}

/* -1, 0, 1 or 2. */
static int input_of(uint64_t seed, int rank, size_t i, size_t e)
{
    return (int)((seed * 7 + (uint64_t)rank * 5 + i * 3 + e * e) % 4) - 1;
}

/* ----------------------------------------------------------------------------------- life */

/* Two ranks a host, for hier. */
static const int32_t in_pairs[TEAM_MAX] = {
    0,  0,  1,  1,  2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,  8,  8,  9,  9,  10, 10,
    11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21,
    22, 22, 23, 23, 24, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30, 31, 31};

static trib_sparse_options sparse_options(const struct way *way)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.hosts = in_pairs;
    options.algorithm = way->algorithm;
    options.density = 0.2;
    options.momentum = way->momentum;
    return options;
}

static trib_status create(struct testing *testing, const struct way *way)
{
    static const uint64_t one_each[GRADIENTS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    trib_tensor tensors[GRADIENTS];
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    trib_sparse_options sparse = sparse_options(way);
    static _Thread_local int32_t hosts[TEAM_MAX];
    memcpy(hosts, in_pairs, sizeof hosts);
    sparse.hosts = hosts;
    options.flags = way->flags;
    options.bucket_bytes = options.first_bytes = way->bucket_bytes;
    options.sparse = &sparse;
    if (way->bucket_bytes == 0) {
        options.buckets = one_each;
        options.nbuckets = GRADIENTS;
    }
    testing->way = way;
    guarded_reset(&testing->memory, BYTES, 0);
    for (size_t i = 0; i < GRADIENTS; i++) {
        testing->data[i] = guarded_data(&testing->memory, i * PITCH);
        tensors[i] = (trib_tensor){testing->data[i], counts[i], dtypes[i], 0};
    }
    const trib_status status =
        trib_reducer_create(&testing->reducer, testing->comm, tensors, GRADIENTS, &options);
    memset(hosts, 0xff, sizeof hosts); /* the reducer has its own */
    return status;
}

static void find_views(struct testing *testing)
{
    for (size_t i = 0; (testing->way->flags & TRIB_REDUCER_VIEWS) != 0 && i < GRADIENTS; i++)
        CHECK_OK(trib_reducer_view(&testing->data[i], testing->reducer, i));
}

static bool create_states(struct testing *testing)
{
    bool good = true;
    trib_sparse_options options = sparse_options(testing->way);
    if ((testing->way->flags & TRIB_REDUCER_SUM) == 0)
        options.flags |= TRIB_SPARSE_AVERAGE;
    for (size_t i = 0; good && i < GRADIENTS; i++)
        good = counts[i] == 0 || CHECK_OK(trib_sparse_create(&testing->states[i], testing->comm,
                                                             counts[i], dtypes[i], &options));
    return good;
}

static void destroy(struct testing *testing)
{
    CHECK_OK(trib_reducer_destroy(testing->reducer));
    testing->reducer = NULL;
    for (size_t i = 0; i < GRADIENTS; i++) {
        CHECK_OK(trib_sparse_destroy(testing->states[i]));
        testing->states[i] = NULL;
    }
}

/* ---------------------------------------------------------------------------------------- steps */

static void put(struct testing *testing, struct guarded *memory, bool nan)
{
    guarded_reset(memory, BYTES, 0);
    for (size_t i = 0; i < GRADIENTS; i++) {
        void *image = guarded_image(memory, i * PITCH);
        for (size_t e = 0; e < counts[i]; e++)
            reference_store(image, dtypes[i], e, input_of(testing->seed, testing->rank, i, e));
    }
    if (nan)
        reference_store(guarded_image(memory, 5 * PITCH), dtypes[5], 63, (double)NAN);
    CHECK(guarded_push(memory, testing->stream));
}

static void copy(struct testing *testing, void *to, const void *from, size_t i)
{
    if (counts[i] != 0 && to != from)
        CHECK_OK(trib_device_copy(testing->device, to, from, counts[i] * element_of(i),
                                  testing->stream));
}

/* The last gradient is ready first. */
static void run_step(struct testing *testing, bool nan)
{
    put(testing, &testing->memory, nan);
    for (size_t k = 0; k < GRADIENTS; k++) {
        const size_t i = GRADIENTS - 1 - k;
        copy(testing, testing->data[i], guarded_data(&testing->memory, i * PITCH), i);
        CHECK_OK(trib_reducer_ready(testing->reducer, i, testing->stream));
    }
    CHECK_OK(trib_reducer_finish(testing->reducer, testing->stream));
    find_views(testing);
    for (size_t i = 0; i < GRADIENTS; i++)
        copy(testing, guarded_data(&testing->memory, i * PITCH), testing->data[i], i);
    CHECK(guarded_pull(&testing->memory, testing->stream));
    CHECK_OK(trib_stream_wait(testing->device, testing->stream));
}

static void check_outcome(const struct testing *testing, bool applied)
{
    uint32_t found = 7;
    void *word = (void *)(uintptr_t)trib_reducer_outcome(testing->reducer);
    CHECK_OK(trib_device_copy(testing->device, &found, word, sizeof found, testing->stream));
    CHECK_OK(trib_stream_wait(testing->device, testing->stream));
    CHECK(found == applied);
    CHECK_STATUS(trib_reducer_status(testing->reducer), applied ? TRIB_OK : TRIB_ERR_NON_FINITE);
    if (!applied)
        CHECK_DETAIL("not finite");
}

static char *export(const struct testing *testing, size_t *bytes)
{
    *bytes = trib_reducer_export_bytes(testing->reducer);
    char *data = malloc(*bytes + 1);
    if (data == NULL)
        abort();
    memset(data, 0xa5, *bytes + 1);
    CHECK_OK(trib_reducer_export(testing->reducer, data, *bytes));
    CHECK((unsigned char)data[*bytes] == 0xa5);
    return data;
}

static size_t parts_bytes(void)
{
    size_t bytes = 0;
    for (size_t i = 0; i < GRADIENTS; i++)
        bytes += counts[i] * trib_dtype_size(kept_type(i));
    return bytes;
}

/* Where the residuals begin in an export: parts follow a head. */
static const char *parts_of(const struct testing *testing, const char *data, size_t bytes)
{
    return data + bytes - (testing->way->momentum != 0 ? 2 : 1) * parts_bytes();
}

/* ------------------------------------------------------------------------- as states by themselves */

static void call_states(struct testing *testing)
{
    put(testing, &testing->direct, false);
    for (size_t i = 0; i < GRADIENTS; i++) {
        void *data = guarded_data(&testing->direct, i * PITCH);
        if (counts[i] != 0)
            CHECK_OK(trib_sparse_allreduce(testing->states[i], data, data, testing->stream));
    }
    CHECK(guarded_pull(&testing->direct, testing->stream));
    CHECK_OK(trib_stream_wait(testing->device, testing->stream));
}

static char *export_state(const struct testing *testing, size_t i, size_t *bytes)
{
    *bytes = trib_sparse_export_bytes(testing->states[i]);
    char *data = calloc(*bytes, 1);
    if (data == NULL)
        abort();
    CHECK_OK(trib_sparse_export(testing->states[i], data, *bytes, testing->stream));
    return data;
}

/* With momentum the velocity is the last part of a state's export, padded to 16 bytes. */
static void compare_velocity(const struct testing *testing, size_t i, const char *part)
{
    size_t bytes;
    const size_t length = counts[i] * trib_dtype_size(kept_type(i));
    char *data = export_state(testing, i, &bytes);
    CHECK_MSG(memcmp(data + bytes - (length + 15) / 16 * 16, part, length) == 0,
              "the velocity of gradient %zu, flags %u, rank %d", i, testing->way->flags,
              testing->rank);
    free(data);
}

static void compare_residual(struct testing *testing, size_t i, const char *part)
{
    const size_t length = counts[i] * trib_dtype_size(kept_type(i));
    void *found = guarded_image(&testing->direct, i * PITCH);
    CHECK_OK(trib_sparse_residual(testing->states[i], guarded_data(&testing->direct, i * PITCH),
                                  testing->stream));
    CHECK_OK(trib_device_copy(testing->device, found, guarded_data(&testing->direct, i * PITCH),
                              length, testing->stream));
    CHECK_OK(trib_stream_wait(testing->device, testing->stream));
    CHECK_MSG(memcmp(found, part, length) == 0, "the residual of gradient %zu", i);
}

static void compare_kept(struct testing *testing)
{
    size_t bytes;
    char *data = export(testing, &bytes);
    const char *part = parts_of(testing, data, bytes);
    for (size_t i = 0; i < GRADIENTS; part += counts[i] * trib_dtype_size(kept_type(i)), i++) {
        if (counts[i] == 0)
            continue;
        compare_residual(testing, i, part);
        if (testing->way->momentum != 0)
            compare_velocity(testing, i, part + parts_bytes());
    }
    free(data);
}

static void compare_statistics(const struct testing *testing)
{
    trib_sparse_statistics found = TRIB_SPARSE_STATISTICS_INIT;
    trib_sparse_statistics sum = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_OK(trib_reducer_statistics(&found, testing->reducer));
    for (size_t i = 0; i < GRADIENTS; i++) {
        trib_sparse_statistics one = TRIB_SPARSE_STATISTICS_INIT;
        if (counts[i] == 0)
            continue;
        CHECK_OK(trib_sparse_statistics_get(&one, testing->states[i]));
        sum.count += one.count;
        sum.k += one.k;
        sum.calls += one.calls;
        sum.bytes_sent += one.bytes_sent;
        sum.bytes_received += one.bytes_received;
    }
    CHECK(sum.calls > 0);
    if (testing->way->algorithm != NULL)
        CHECK(strcmp(found.algorithm, testing->way->algorithm) == 0);
    CHECK_MSG(found.count == sum.count && found.k == sum.k && found.calls == sum.calls,
              "%" PRIu64 " elements, k %" PRIu64 ", %" PRIu64 " calls; expected %" PRIu64
              ", %" PRIu64 ", %" PRIu64,
              found.count, found.k, found.calls, sum.count, sum.k, sum.calls);
    CHECK(found.bytes_sent == sum.bytes_sent && found.bytes_received == sum.bytes_received);
}

static bool step_as_states(struct testing *testing)
{
    bool same = true;
    testing->seed++;
    run_step(testing, false);
    call_states(testing);
    check_outcome(testing, true);
    for (size_t i = 0; i < GRADIENTS; i++)
        same = CHECK_MSG(memcmp(guarded_found(&testing->memory, i * PITCH),
                                guarded_found(&testing->direct, i * PITCH),
                                counts[i] * element_of(i)) == 0,
                         "gradient %zu, %s, momentum %g, flags %u, rank %d", i,
                         testing->way->algorithm, testing->way->momentum, testing->way->flags,
                         testing->rank) &&
               same;
    compare_kept(testing);
    return same;
}

/* A NaN of one rank in one gradient: no rank applies any. */
static void step_that_fails(struct testing *testing)
{
    size_t bytes;
    char *before = export(testing, &bytes);
    testing->seed++;
    run_step(testing, testing->rank == testing->size - 1);
    check_outcome(testing, false);
    char *after = export(testing, &bytes);
    CHECK(memcmp(before, after, bytes) == 0);
    const bool copies =
        (testing->way->flags & TRIB_REDUCER_VIEWS) == 0 && testing->way->bucket_bytes != 0;
    const bool kept = copies || (testing->way->flags & TRIB_REDUCER_TWINS) != 0;
    for (size_t i = 0; kept && i < GRADIENTS; i++)
        CHECK_MSG(memcmp(guarded_found(&testing->memory, i * PITCH),
                         guarded_image(&testing->memory, i * PITCH),
                         counts[i] * element_of(i)) == 0,
                  "gradient %zu has changed", i);
    free(before);
    free(after);
}

/* The calls of a step have run, and its end waits for a stream that rests: what changes the states
 * waits, too, until the end has taken the calls back. */
static void change_behind_a_step(struct testing *testing)
{
    static int rest_ms = 20;
    trib_stream late = NULL;
    size_t bytes;
    char *before = export(testing, &bytes);
    CHECK_OK(trib_stream_create(&late, testing->device));
    CHECK_OK(trib_stream_submit(testing->device, team_rest, &rest_ms, late));
    put(testing, &testing->memory, testing->rank == 0);
    for (size_t i = 0; i < GRADIENTS; i++) {
        copy(testing, testing->data[i], guarded_data(&testing->memory, i * PITCH), i);
        CHECK_OK(trib_reducer_ready(testing->reducer, i, testing->stream));
    }
    CHECK_OK(trib_reducer_finish(testing->reducer, late));
    CHECK_OK(trib_reducer_set_density(testing->reducer, 0.4));
    char *after = export(testing, &bytes);
    CHECK(memcmp(before, after, bytes) == 0);
    CHECK_OK(trib_stream_wait(testing->device, late));
    CHECK_OK(trib_stream_destroy(testing->device, late));
    free(before);
    free(after);
}

static bool as_states(struct testing *testing, const struct way *way)
{
    bool good = CHECK_OK(create(testing, way));
    if (good) {
        find_views(testing);
        good = create_states(testing);
    }
    for (int step = 0; good && step < STEPS; step++) {
        good = step_as_states(testing);
        if (step == 1) {
            if ((way->flags & TRIB_REDUCER_LEARN_ORDER) == 0)
                compare_statistics(testing);
            step_that_fails(testing);
        }
        if (step == 2) {
            change_behind_a_step(testing);
            CHECK_OK(trib_reducer_set_density(testing->reducer, 0.5));
            for (size_t i = 0; i < GRADIENTS; i++)
                if (counts[i] != 0)
                    CHECK_OK(trib_sparse_set_density(testing->states[i], 0.5));
        }
    }
    destroy(testing);
    return backend_go_on(testing->suite, testing->rank, good);
}

/* ------------------------------------------------------------------------ in buckets, in any order */

/* Over all ranks: what came in, what is in the results (`sent`), and what is kept. */
static void check_mass(struct testing *testing, const double *given, const double *sent)
{
    size_t bytes, at = 0;
    char *data = export(testing, &bytes);
    const char *part = parts_of(testing, data, bytes);
    double kept[ALL];
    void *sums = guarded_data(&testing->direct, 0);
    for (size_t i = 0; i < GRADIENTS; part += counts[i] * trib_dtype_size(kept_type(i)), i++)
        for (size_t e = 0; e < counts[i]; e++)
            kept[at++] = reference_load(part, kept_type(i), e);
    CHECK_OK(trib_device_copy(testing->device, sums, kept, at * sizeof *kept, testing->stream));
    CHECK_OK(trib_allreduce(testing->comm, sums, sums, at, TRIB_F64, TRIB_SUM, testing->stream));
    CHECK_OK(trib_device_copy(testing->device, kept, sums, at * sizeof *kept, testing->stream));
    CHECK_OK(trib_stream_wait(testing->device, testing->stream));
    for (size_t e = 0; e < at; e++)
        CHECK_MSG(given[e] == sent[e] + kept[e], "element %zu: %g is not %g + %g", e, given[e],
                  sent[e], kept[e]);
    free(data);
}

static void add_step(const struct testing *testing, double *given, double *sent)
{
    size_t at = 0;
    for (size_t i = 0; i < GRADIENTS; i++)
        for (size_t e = 0; e < counts[i]; e++, at++) {
            for (int rank = 0; rank < testing->size; rank++)
                given[at] += input_of(testing->seed, rank, i, e);
            sent[at] += reference_load(guarded_found(&testing->memory, i * PITCH), dtypes[i], e);
        }
}

/* Another reducer, of other buckets, takes over what this one keeps. */
static void hand_over(struct testing *testing, const struct way *to)
{
    size_t bytes, more;
    char *data = export(testing, &bytes);
    CHECK_OK(trib_reducer_destroy(testing->reducer));
    if (!CHECK_OK(create(testing, to)))
        abort();
    find_views(testing);
    CHECK_OK(trib_reducer_import(testing->reducer, data, bytes, 0));
    char *again = export(testing, &more);
    CHECK(more == bytes && memcmp(data, again, bytes) == 0);
    free(data);
    free(again);
}

static bool in_buckets(struct testing *testing, const struct way *way, const struct way *then)
{
    double given[ALL] = {0}, sent[ALL] = {0};
    const bool good = CHECK_OK(create(testing, way));
    if (good) {
        find_views(testing);
        CHECK(trib_reducer_buckets(testing->reducer) < GRADIENTS - 2);
        for (int step = 0; step < 2 * STEPS; step++) {
            testing->seed++;
            if (step == STEPS)
                hand_over(testing, then);
            run_step(testing, false);
            check_outcome(testing, true);
            add_step(testing, given, sent);
            check_mass(testing, given, sent);
            if (step == 1)
                step_that_fails(testing);
        }
        destroy(testing);
    }
    return backend_go_on(testing->suite, testing->rank, good);
}

/* ------------------------------------------------------------- in buckets that are filled anew */

/* What is kept after a first step, and the results. */
static char *first_step(struct testing *testing, const struct way *way, size_t *bytes)
{
    if (!CHECK_OK(create(testing, way)))
        abort();
    find_views(testing);
    run_step(testing, false);
    check_outcome(testing, true);
    char *data = export(testing, bytes);
    destroy(testing);
    return data;
}

static bool any_but_0(const char *part, size_t bytes)
{
    return part[0] != 0 || memcmp(part, part + 1, bytes - 1) != 0;
}

/* The first finish fills the buckets anew, and residuals and velocities move with the gradients: the
 * same as in a reducer whose buckets stay. */
static void moved(struct testing *testing, const struct way *learns)
{
    size_t bytes, more;
    struct way stays = *learns;
    stays.flags &= ~(uint32_t)TRIB_REDUCER_LEARN_ORDER;
    testing->seed++;
    char *expected = first_step(testing, &stays, &bytes);
    memcpy(guarded_image(&testing->direct, 0), guarded_found(&testing->memory, 0), BYTES);
    char *found = first_step(testing, learns, &more);
    CHECK(more == bytes && memcmp(found, expected, bytes) == 0);
    CHECK(any_but_0(expected + bytes - parts_bytes(), parts_bytes()));
    for (size_t i = 0; i < GRADIENTS; i++)
        CHECK_MSG(memcmp(guarded_found(&testing->memory, i * PITCH),
                         guarded_image(&testing->direct, i * PITCH),
                         counts[i] * element_of(i)) == 0,
                  "gradient %zu after the first step", i);
    free(expected);
    free(found);
}

/* ------------------------------------------------------------------------------------ mistakes */

static void wrong_options(struct testing *testing)
{
    const struct way sums = {"topka", 0, TRIB_REDUCER_SUM, 1024};
    struct way way = sums;
    trib_tensor tensor = {guarded_data(&testing->memory, 0), 8, TRIB_F32, 0};
    trib_sparse_options sparse = sparse_options(&sums);
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.sparse = &sparse;
    sparse.flags = TRIB_SPARSE_AVERAGE;
    CHECK_STATUS(trib_reducer_create(&testing->reducer, testing->comm, &tensor, 1, &options),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("options.sparse->flags is 0x1");
    sparse.flags = 0;
    sparse.size++;
    CHECK_STATUS(trib_reducer_create(&testing->reducer, testing->comm, &tensor, 1, &options),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("options.sparse->size");
    way.algorithm = "fastest";
    CHECK_STATUS(create(testing, &way), TRIB_ERR_UNKNOWN_NAME);
    way = sums;
    way.momentum = 1;
    CHECK_STATUS(create(testing, &way), TRIB_ERR_INVALID_ARGUMENT);
    CHECK(testing->reducer == NULL);
    sparse.size--;
    CHECK_OK(trib_reducer_create(&testing->reducer, testing->comm, &tensor, 1, NULL));
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_STATUS(trib_reducer_statistics(&statistics, testing->reducer), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("without options.sparse");
    destroy(testing);
    if (testing->size == 1)
        return;
    options.sparse = testing->rank == 0 ? &sparse : NULL;
    CHECK_STATUS(trib_reducer_create(&testing->reducer, testing->comm, &tensor, 1, &options),
                 TRIB_ERR_MISMATCH);
}

/* Nothing is imported: a wrong export of the last rank alone. */
static void wrong_import(struct testing *testing, const char *data, size_t bytes, size_t flipped)
{
    const bool last = testing->rank == testing->size - 1;
    char *other = malloc(bytes);
    if (other == NULL)
        abort();
    memcpy(other, data, bytes);
    if (last && flipped < bytes)
        other[flipped] ^= 1;
    CHECK_STATUS(trib_reducer_import(testing->reducer, other,
                                     last && flipped >= bytes ? bytes - 1 : bytes, 0),
                 last ? TRIB_ERR_INVALID_ARGUMENT : TRIB_ERR_MISMATCH);
    free(other);
}

static void imports(struct testing *testing)
{
    const struct way way = {"topka", 0.5, TRIB_REDUCER_SUM, 1024};
    size_t bytes;
    if (!CHECK_OK(create(testing, &way)))
        return;
    testing->seed++;
    run_step(testing, false);
    char *data = export(testing, &bytes);
    for (size_t at = 0; at <= bytes; at += at < 64 ? 1 : bytes / 7)
        wrong_import(testing, data, bytes, at);
    char *same = export(testing, &bytes);
    CHECK(memcmp(same, data, bytes) == 0);
    CHECK_OK(trib_reducer_import(testing->reducer, data, bytes, 1));
    char *twice = export(testing, &bytes);
    const char *part = parts_of(testing, data, bytes);
    for (int of = 0; of < 2; of++)
        for (size_t i = 0; i < GRADIENTS; part += counts[i] * trib_dtype_size(kept_type(i)), i++)
            for (size_t e = 0; e < counts[i]; e++)
                CHECK(reference_load(twice + (part - data), kept_type(i), e) ==
                      2 * reference_load(part, kept_type(i), e));
    CHECK_OK(trib_reducer_import(testing->reducer, data, bytes, 0));
    CHECK_OK(trib_reducer_export(testing->reducer, same, bytes));
    CHECK(memcmp(same, data, bytes) == 0);
    CHECK_OK(trib_reducer_ready(testing->reducer, 0, testing->stream));
    CHECK_STATUS(trib_reducer_export(testing->reducer, twice, bytes), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("trib_reducer_finish");
    CHECK_OK(trib_reducer_finish(testing->reducer, testing->stream));
    CHECK_STATUS(trib_reducer_export(testing->reducer, twice, bytes - 1),
                 TRIB_ERR_INVALID_ARGUMENT);
    free(data);
    free(same);
    free(twice);
    destroy(testing);
}

/* ---------------------------------------------------------------------------------------- walk */

static const struct way by_themselves[] = {
    {"topka", 0, TRIB_REDUCER_SUM, 1},
    {"topka", 0.5, 0, 1},
    {"topka", 0.5, 0, 0}, /* in place */
    {"gtopk", 0, TRIB_REDUCER_VIEWS, 1},
    {"oktopk", 0.5, TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS | TRIB_REDUCER_SUM, 1},
    {"dense", 0.5, TRIB_REDUCER_SUM, 1},
    {NULL, 0, 0, 1},
};

enum {
    LEARNS = TRIB_REDUCER_SUM | TRIB_REDUCER_LEARN_ORDER,
    TWINS = TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS
};

/* Buckets of one gradient each, which change places. */
static const struct way by_themselves_learned[] = {
    {"topka", 0.5, LEARNS, 1},
    {"topka", 0.5, TRIB_REDUCER_LEARN_ORDER | TRIB_REDUCER_VIEWS, 1},
    {"oktopk", 0.5, LEARNS | TWINS, 1},
    {"dense", 0.5, LEARNS, 1},
};

static const struct way moving[] = {
    {"topka", 0.5, LEARNS, 1024},
    {"gtopk", 0.5, LEARNS | TWINS, 512},
    {"dense", 0.5, TRIB_REDUCER_LEARN_ORDER, 1024},
};
static const struct way together[][2] = {
    {{"topka", 0, TRIB_REDUCER_SUM, 1024}, {"gtopk", 0, LEARNS, 512}},
    {{"topka", 0, LEARNS, 1024}, {"dense", 0, TRIB_REDUCER_SUM, 1}},
    {{"oktopk", 0, LEARNS | TRIB_REDUCER_VIEWS, 1024},
     {"topka", 0, LEARNS | TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS, 4096}},
};

static bool every_algorithm(struct testing *testing)
{
    bool good = true;
    for (int32_t i = 0; good && i < trib_sparse_algorithm_count(); i++) {
        const struct way way = {trib_sparse_algorithm_name(i), 0, LEARNS, 1024};
        good = in_buckets(testing, &way, &way);
    }
    return good;
}

static void every_way(struct testing *testing)
{
    bool good = true;
    const size_t last = testing->suite->depth == BACKEND_LIGHT ? 3 : 7;
    for (size_t w = 0; good && w < last; w++)
        good = as_states(testing, &by_themselves[w]);
    for (size_t w = 0; good && w < (last + 2) / 2; w++)
        good = as_states(testing, &by_themselves_learned[w]);
    for (size_t w = 0; good && w < sizeof moving / sizeof *moving; w++)
        moved(testing, &moving[w]);
    for (size_t w = 0; good && w < sizeof together / sizeof *together; w++)
        good = in_buckets(testing, &together[w][0], &together[w][1]);
    if (good && testing->suite->depth != BACKEND_LIGHT)
        good = every_algorithm(testing);
    if (!good)
        return;
    imports(testing);
    wrong_options(testing);
}

static void testing_rank(int rank, int size, void *argument)
{
    struct suite *suite = argument;
    struct testing testing = {.suite = suite,
                              .rank = rank,
                              .size = size,
                              .comm = suite->team.comms[rank],
                              .device = suite->team.devices[rank],
                              .stream = suite->team.streams[rank],
                              .seed = suite->seed};
    if (guarded_create(&testing.memory, testing.device, BYTES) &&
        guarded_create(&testing.direct, testing.device, BYTES))
        every_way(&testing);
    guarded_destroy(&testing.memory);
    guarded_destroy(&testing.direct);
}

void backend_sparse_reducers(struct suite *suite)
{
    check_begin("%s, %d ranks, by %s: sparse reducers", suite->team.backend, suite->team.size,
                suite->how);
    suite->seed += 100000;
    check_ranks(suite->team.size, testing_rank, suite);
    check_end();
}
