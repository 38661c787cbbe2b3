/* Reducers: gradients of several types and sizes in small buckets, ready in any order, on several
 * streams, from several threads, or not at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum { GRADIENTS_MAX = 64, GAP = 24, STREAMS = 3, THREADS = 4, BUCKET_BYTES = 4096 };

enum mode { COPIES, VIEWS, TWINS, MODES };
static const char *const mode_names[MODES] = {"copies", "views", "twins"};
static const uint32_t mode_flags[MODES] = {0, TRIB_REDUCER_VIEWS,
                                           TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS};

/* Which gradients get ready, and how. */
enum step {
    RANK_0_BACKWARDS, /* the others in order */
    IN_ORDER,
    BACKWARDS,
    ON_STREAMS,
    SOME_ABSENT,
    ALL_ABSENT,
    FROM_THREADS,
    TWO_PASSES, /* each gradient is the sum of two backward passes, and gets ready in the second */
    STEPS
};
static const char *const step_names[STEPS] = {"rank 0 backwards", "in order",    "backwards",
                                              "on streams",       "some absent", "all absent",
                                              "from threads",     "two passes"};

/* One rank's reducer. */
struct reducing {
    struct suite *suite;
    int rank, size;
    trib_comm *comm;
    trib_device *device;
    trib_stream streams[STREAMS];
    trib_reducer *reducer;
    enum mode mode;
    bool learns; /* TRIB_REDUCER_LEARN_ORDER */
    trib_op op;
    struct guarded memory; /* of all gradients; with views, their copies for comparison */
    size_t n, bytes, counts[GRADIENTS_MAX], offsets[GRADIENTS_MAX];
    trib_dtype dtypes[GRADIENTS_MAX];
    void *data[GRADIENTS_MAX];
    uint64_t seed;
};

static void plan(struct reducing *reducing)
{
    static const size_t counts[] = {17, 1, 0, 1023, 5, 130, 2100};
    static const trib_dtype dtypes[] = {TRIB_F32, TRIB_F32, TRIB_BF16, TRIB_F32,
                                        TRIB_F16, TRIB_F64, TRIB_F32};
    size_t offset = 0;
    reducing->n = reducing->suite->depth == BACKEND_LIGHT ? 9 : 30;
    for (size_t i = 0; i < reducing->n; i++) {
        const size_t element = trib_dtype_size(dtypes[i % 7]);
        reducing->dtypes[i] = dtypes[i % 7];
        reducing->counts[i] = counts[i * 3 % 7] + i / 7;
        offset = (offset + 15) / 16 * 16 + i % 2 * element;
        reducing->offsets[i] = offset;
        offset += reducing->counts[i] * element + GAP;
    }
    reducing->bytes = offset;
}

static void ask_views(struct reducing *reducing)
{
    for (size_t i = 0; reducing->mode != COPIES && i < reducing->n; i++)
        CHECK_OK(trib_reducer_view(&reducing->data[i], reducing->reducer, i));
}

static bool create(struct reducing *reducing)
{
    trib_tensor tensors[GRADIENTS_MAX];
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = mode_flags[reducing->mode] | (reducing->op == TRIB_SUM ? TRIB_REDUCER_SUM : 0) |
                    (reducing->learns ? TRIB_REDUCER_LEARN_ORDER : 0);
    options.bucket_bytes = BUCKET_BYTES;
    options.first_bytes = BUCKET_BYTES / 4;
    guarded_reset(&reducing->memory, reducing->bytes, 0); /* from now on it lies where it does */
    for (size_t i = 0; i < reducing->n; i++) {
        void *data = guarded_data(&reducing->memory, reducing->offsets[i]);
        reducing->data[i] = data;
        tensors[i] = (trib_tensor){reducing->mode == COPIES ? data : NULL, reducing->counts[i],
                                   reducing->dtypes[i], 0};
    }
    const bool good = CHECK_OK(
        trib_reducer_create(&reducing->reducer, reducing->comm, tensors, reducing->n, &options));
    memset(tensors, 0xff, sizeof tensors); /* the description was read */
    if (good)
        ask_views(reducing);
    CHECK(!good || trib_reducer_buckets(reducing->reducer) > 4);
    return good;
}

/* -------------------------------------------------------------------------------------- a step */

static bool is_ready(enum step step, int rank, size_t i)
{
    return step == ALL_ABSENT ? false : step != SOME_ABSENT || (i + (size_t)rank) % 3 != 0;
}

static struct reference inputs_of(const struct reducing *reducing, size_t i)
{
    return (struct reference){.dtype = reducing->dtypes[i],
                              .op = reducing->op,
                              .size = reducing->size,
                              .seed = reducing->seed + i};
}

static trib_stream stream_of(const struct reducing *reducing, enum step step, size_t i)
{
    return reducing->streams[step == ON_STREAMS ? i % STREAMS : 0];
}

/* What this rank's gradients will be, ready or not: the image, and the device. */
static bool put(struct reducing *reducing)
{
    guarded_reset(&reducing->memory, reducing->bytes, 0);
    for (size_t i = 0; i < reducing->n; i++) {
        const struct reference inputs = inputs_of(reducing, i);
        reference_input(guarded_image(&reducing->memory, reducing->offsets[i]), &inputs,
                        reducing->rank, 0, reducing->counts[i]);
    }
    return guarded_push(&reducing->memory, reducing->streams[0]) &&
           CHECK_OK(trib_stream_wait(reducing->device, reducing->streams[0]));
}

static void move(const struct reducing *reducing, void *to, const void *from, size_t i)
{
    const size_t bytes = reducing->counts[i] * trib_dtype_size(reducing->dtypes[i]);
    if (bytes != 0)
        CHECK_OK(trib_device_copy(reducing->device, to, from, bytes, reducing->streams[0]));
    CHECK_OK(trib_stream_wait(reducing->device, reducing->streams[0]));
}

/* What a pass adds: the two shares make up the input, exactly. */
static double share_of(double input, int pass, size_t e)
{
    const double first = (double)(long)(input / 2) + (e % 2 == 0 ? 1 : 0);
    return pass == 0 ? first : input - first;
}

/* Add a pass's share to what lies in the gradient, or in its view. */
static void add_share(const struct reducing *reducing, size_t i, int pass)
{
    const trib_dtype dtype = reducing->dtypes[i];
    const void *input = guarded_image(&reducing->memory, reducing->offsets[i]);
    void *held = calloc(reducing->counts[i] + 1, trib_dtype_size(dtype));
    if (held == NULL)
        abort();
    if (pass != 0)
        move(reducing, held, reducing->data[i], i);
    for (size_t e = 0; e < reducing->counts[i]; e++)
        reference_store(held, dtype, e,
                        reference_load(held, dtype, e) +
                            share_of(reference_load(input, dtype, e), pass, e));
    move(reducing, reducing->data[i], held, i);
    free(held);
}

/* The first pass replaces what the step before has left. */
static void run_two_passes(struct reducing *reducing)
{
    for (size_t i = reducing->n; i-- > 0;)
        add_share(reducing, i, 0);
    for (size_t i = reducing->n; i-- > 0;) {
        add_share(reducing, i, 1);
        CHECK_OK(trib_reducer_ready(reducing->reducer, i, reducing->streams[0]));
    }
}

/* The backward pass comes to gradient `i`. Views are late on all streams but one, so that a bucket
 * that does not wait for each of its streams takes what was there before. */
static void make_gradient(const struct reducing *reducing, enum step step, size_t i)
{
    static int rest_ms = 2;
    const size_t bytes = reducing->counts[i] * trib_dtype_size(reducing->dtypes[i]);
    trib_stream stream = stream_of(reducing, step, i);
    if (reducing->mode != COPIES && bytes != 0) {
        if (stream != reducing->streams[0])
            CHECK_OK(trib_stream_submit(reducing->device, team_rest, &rest_ms, stream));
        CHECK_OK(trib_device_copy(reducing->device, reducing->data[i],
                                  guarded_data(&reducing->memory, reducing->offsets[i]), bytes,
                                  stream));
    }
    if (is_ready(step, reducing->rank, i))
        CHECK_OK(trib_reducer_ready(reducing->reducer, i, stream));
}

struct crew {
    struct reducing *reducing;
    enum step step;
};

static void ready_thread(int index, int size, void *argument)
{
    const struct crew *crew = argument;
    const struct reducing *reducing = crew->reducing;
    for (size_t i = (size_t)index; i < reducing->n; i += (size_t)size) {
        team_stagger(index, (int)i);
        make_gradient(reducing, crew->step, i);
    }
}

static void run_backward(struct reducing *reducing, enum step step)
{
    struct crew crew = {reducing, step};
    if (step == FROM_THREADS) {
        check_ranks(THREADS, ready_thread, &crew);
        return;
    }
    if (step == TWO_PASSES) {
        run_two_passes(reducing);
        return;
    }
    for (size_t k = 0; k < reducing->n; k++) {
        const bool backwards =
            step == BACKWARDS || (step == RANK_0_BACKWARDS && reducing->rank == 0);
        make_gradient(reducing, step, backwards ? reducing->n - 1 - k : k);
    }
}

/* Gradient t, where some ranks were not ready, who count as 0. */
static void expect_partial(struct reducing *reducing, enum step step, size_t t)
{
    const struct reference inputs = inputs_of(reducing, t);
    const size_t count = reducing->counts[t], element = trib_dtype_size(reducing->dtypes[t]);
    double *sums = calloc(count + 1, sizeof *sums);
    void *input = calloc(count + 1, element);
    if (sums == NULL || input == NULL)
        abort();
    for (int rank = 0; rank < reducing->size; rank++) {
        if (!is_ready(step, rank, t))
            continue;
        reference_input(input, &inputs, rank, 0, count);
        for (size_t i = 0; i < count; i++)
            sums[i] += reference_load(input, reducing->dtypes[t], i);
    }
    void *image = guarded_image(&reducing->memory, reducing->offsets[t]);
    for (size_t i = 0; i < count; i++)
        reference_store(image, reducing->dtypes[t], i,
                        reducing->op == TRIB_AVG ? sums[i] / reducing->size : sums[i]);
    free(sums);
    free(input);
}

static void expect(struct reducing *reducing, enum step step)
{
    for (size_t t = 0; t < reducing->n; t++) {
        const struct reference inputs = inputs_of(reducing, t);
        int ready = 0;
        for (int rank = 0; rank < reducing->size; rank++)
            ready += is_ready(step, rank, t);
        if (ready < reducing->size)
            expect_partial(reducing, step, t);
        else
            reference_reduced(guarded_image(&reducing->memory, reducing->offsets[t]), &inputs, 0,
                              reducing->counts[t]);
    }
}

/* As in lists.c: an average that NCCL cannot make exactly only has to be close. */
static void accept_close(struct reducing *reducing)
{
    if (reducing->op != TRIB_AVG || strcmp(reducing->suite->team.backend, "nccl") != 0 ||
        (reducing->size & (reducing->size - 1)) == 0)
        return;
    for (size_t i = 0; i < reducing->n; i++) {
        void *image = guarded_image(&reducing->memory, reducing->offsets[i]);
        const void *found = guarded_found(&reducing->memory, reducing->offsets[i]);
        if (reference_close(found, image, reducing->dtypes[i], reducing->counts[i], reducing->size))
            memcpy(image, found, reducing->counts[i] * trib_dtype_size(reducing->dtypes[i]));
    }
}

/* Bring the views to where gradients that are copied lie. */
static bool fetch(struct reducing *reducing)
{
    for (size_t i = 0; reducing->mode != COPIES && i < reducing->n; i++)
        if (reducing->counts[i] != 0)
            CHECK_OK(trib_device_copy(
                reducing->device, guarded_data(&reducing->memory, reducing->offsets[i]),
                reducing->data[i], reducing->counts[i] * trib_dtype_size(reducing->dtypes[i]),
                reducing->streams[0]));
    return guarded_pull(&reducing->memory, reducing->streams[0]) &&
           CHECK_OK(trib_stream_wait(reducing->device, reducing->streams[0]));
}

static bool check_outcome(const struct reducing *reducing, uint32_t expected)
{
    uint32_t found = 7;
    return CHECK_OK(trib_device_copy(reducing->device, &found,
                                     (void *)(uintptr_t)trib_reducer_outcome(reducing->reducer),
                                     sizeof found, reducing->streams[0])) &&
           CHECK_OK(trib_stream_wait(reducing->device, reducing->streams[0])) &&
           CHECK_MSG(found == expected, "the outcome is %u, not %u", found, expected);
}

static bool try_step(struct reducing *reducing, enum step step)
{
    char what[96];
    (void)snprintf(what, sizeof what, "reducer, %s, %s, %s, rank %d", mode_names[reducing->mode],
                   step_names[step], trib_op_name(reducing->op), reducing->rank);
    reducing->seed += 1000;
    if (!put(reducing))
        return false;
    run_backward(reducing, step);
    if (!CHECK_OK(trib_reducer_finish(reducing->reducer, reducing->streams[0])))
        return false;
    ask_views(reducing); /* the first step may have moved them, and what they hold */
    if (!fetch(reducing) || !check_outcome(reducing, 1))
        return false;
    expect(reducing, step);
    accept_close(reducing);
    return backend_compare(reducing->suite, reducing->rank, &reducing->memory, NULL, what);
}

/* ----------------------------------------------------------------------------------- mistakes */

static trib_status try_create(trib_comm *comm, trib_tensor *tensors, size_t n,
                              const trib_reducer_options *options)
{
    trib_reducer *reducer = NULL;
    const trib_status status = trib_reducer_create(&reducer, comm, tensors, n, options);
    CHECK((status == TRIB_OK) == (reducer != NULL));
    CHECK_OK(trib_reducer_destroy(reducer));
    return status;
}

/* Every rank makes the same mistake, and gets its own error. */
static void mistakes_of_all(struct reducing *reducing)
{
    float *data = guarded_data(&reducing->memory, 0);
    trib_tensor tensors[] = {{data, 8, TRIB_F32, 0}, {data + 8, 8, TRIB_F32, 0}};
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.size--;
    CHECK_STATUS(try_create(reducing->comm, tensors, 2, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("options.size");
    options.size++;
    options.flags = 16;
    CHECK_STATUS(try_create(reducing->comm, tensors, 2, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("options.flags");
    options.flags = TRIB_REDUCER_TWINS;
    CHECK_STATUS(try_create(reducing->comm, tensors, 2, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("TRIB_REDUCER_VIEWS");
    tensors[1].dtype = TRIB_I32;
    CHECK_STATUS(try_create(reducing->comm, tensors, 2, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("gradients[1].dtype");
    tensors[1] = (trib_tensor){data + 7, 8, TRIB_F32, 0};
    CHECK_STATUS(try_create(reducing->comm, tensors, 2, NULL), TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("overlaps");
    CHECK_STATUS(try_create(reducing->comm, NULL, 2, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_reducer_create(NULL, reducing->comm, NULL, 0, NULL),
                 TRIB_ERR_INVALID_ARGUMENT);
}

/* One rank alone passes something else. */
static void mistakes_of_one(struct reducing *reducing)
{
    const bool last = reducing->rank == reducing->size - 1;
    trib_tensor tensor = {guarded_data(&reducing->memory, 0), last ? 9 : 8, TRIB_F32, 0};
    const trib_status differs = reducing->size == 1 ? TRIB_OK : TRIB_ERR_MISMATCH;
    CHECK_STATUS(try_create(reducing->comm, &tensor, 1, NULL), differs);
    tensor.count = 8;
    tensor.dtype = last ? TRIB_U8 : TRIB_F32;
    CHECK_STATUS(try_create(reducing->comm, &tensor, 1, NULL),
                 last ? TRIB_ERR_INVALID_ARGUMENT : TRIB_ERR_MISMATCH);
    tensor.dtype = TRIB_F32;
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.bucket_bytes = last ? 4096 : 8192;
    CHECK_STATUS(try_create(reducing->comm, &tensor, 1, &options), differs);
    CHECK_OK(try_create(reducing->comm, &tensor, 1, NULL));
    CHECK_OK(try_create(reducing->comm, NULL, 0, NULL));
}

/* A stream is checked in each step, and each of a step's streams, one of a call that was refused, too:
 * it is none of the step's. (CUDA cannot recognize one that is gone.) */
static void mistakes_of_streams(struct reducing *reducing)
{
    trib_device *other = reducing->suite->team.devices[(reducing->rank + 1) % reducing->size];
    trib_stream stream = NULL, elsewhere = NULL, refused = NULL;
    if (strcmp(reducing->suite->team.backend, "host") != 0 ||
        strstr(reducing->suite->how, "unchecked") != NULL ||
        !CHECK_OK(trib_stream_create(&stream, reducing->device)) ||
        !CHECK_OK(trib_stream_create(&refused, reducing->device)) ||
        !CHECK_OK(trib_stream_create(&elsewhere, other)))
        return;
    CHECK_OK(trib_reducer_ready(reducing->reducer, 0, stream));
    CHECK_STATUS(trib_reducer_ready(reducing->reducer, 0, refused), TRIB_ERR_INVALID_USAGE);
    CHECK_OK(trib_stream_destroy(reducing->device, refused));
    CHECK_STATUS(trib_reducer_ready(reducing->reducer, 1, refused), TRIB_ERR_INVALID_STREAM);
    CHECK_STATUS(trib_reducer_ready(reducing->reducer, 1, elsewhere),
                 other == reducing->device ? TRIB_OK : TRIB_ERR_INVALID_STREAM);
    CHECK_OK(trib_reducer_finish(reducing->reducer, stream));
    CHECK_OK(trib_stream_wait(reducing->device, stream));
    CHECK_OK(trib_stream_destroy(reducing->device, stream));
    CHECK_OK(trib_stream_destroy(other, elsewhere));
    CHECK_STATUS(trib_reducer_ready(reducing->reducer, 0, stream), TRIB_ERR_INVALID_STREAM);
}

/* What ready and finish refuse changes nothing: the step works. */
static void mistakes_in_a_step(struct reducing *reducing)
{
    void *view = NULL;
    trib_stream stream = reducing->streams[0];
    if (reducing->mode == COPIES)
        CHECK_STATUS(trib_reducer_view(&view, reducing->reducer, 0), TRIB_ERR_INVALID_USAGE);
    else
        CHECK_STATUS(trib_reducer_view(&view, reducing->reducer, reducing->n),
                     TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_reducer_ready(reducing->reducer, reducing->n, stream),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_OK(trib_reducer_ready(reducing->reducer, 0, stream));
    CHECK_STATUS(trib_reducer_ready(reducing->reducer, 0, stream), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("gradient 0 is ready already");
    CHECK_STATUS(trib_reducer_destroy(reducing->reducer), TRIB_ERR_INVALID_USAGE);
    CHECK_OK(trib_reducer_finish(reducing->reducer, stream));
}

/* --------------------------------------------------------------------------------- the order */

static uint64_t calls_of(const struct reducing *reducing)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, reducing->comm));
    return counters.calls;
}

/* Of the gradients that the others come after, the first one gets ready last: buckets were queued
 * before it if, and only if, they are filled backwards. Views then lie backwards, too. */
static void check_order(struct reducing *reducing)
{
    const uint64_t before = calls_of(reducing);
    for (size_t i = reducing->n - 1; i > 0; i--)
        CHECK_OK(trib_reducer_ready(reducing->reducer, i, reducing->streams[0]));
    CHECK((calls_of(reducing) > before) == reducing->learns);
    CHECK_OK(trib_reducer_ready(reducing->reducer, 0, reducing->streams[0]));
    CHECK_OK(trib_reducer_finish(reducing->reducer, reducing->streams[0]));
    const char *previous = NULL;
    for (size_t i = 0; reducing->mode != COPIES && i < reducing->n; i++) {
        if (reducing->dtypes[i] != TRIB_F32 || reducing->counts[i] == 0)
            continue;
        const char *data = reducing->data[i];
        CHECK(previous == NULL || (data < previous) == reducing->learns);
        previous = data;
    }
}

/* ---------------------------------------------------------------------------------------- walk */

static void every_step(struct reducing *reducing)
{
    const bool begins_with_absent = reducing->learns && reducing->op == TRIB_AVG;
    bool good = create(reducing);
    if (good && begins_with_absent)
        good = try_step(reducing, SOME_ABSENT);
    for (int step = 0; good && step < STEPS; step++)
        good = try_step(reducing, (enum step)step);
    if (good && !begins_with_absent)
        check_order(reducing);
    if (good) {
        mistakes_in_a_step(reducing);
        mistakes_of_streams(reducing);
        good = try_step(reducing, IN_ORDER);
    }
    CHECK_OK(trib_reducer_destroy(reducing->reducer));
    reducing->reducer = NULL;
    backend_go_on(reducing->suite, reducing->rank, good);
}

/* Half of the ways, with each two of mode, reduction and order together in one of them. */
static bool is_of_half(int way)
{
    return (way % 2 + way / 2 % 2 + way / 4 % 2) % 2 == 0;
}

static void reducing_rank(int rank, int size, void *argument)
{
    struct suite *suite = argument;
    struct reducing *reducing = calloc(1, sizeof *reducing);
    if (reducing == NULL)
        abort();
    *reducing = (struct reducing){.suite = suite,
                                  .rank = rank,
                                  .size = size,
                                  .comm = suite->team.comms[rank],
                                  .device = suite->team.devices[rank],
                                  .seed = suite->seed};
    plan(reducing);
    bool good = guarded_create(&reducing->memory, reducing->device, reducing->bytes);
    for (int i = 0; i < STREAMS; i++)
        good = CHECK_OK(trib_stream_create(&reducing->streams[i], reducing->device)) && good;
    for (int way = 0; good && way < MODES * 4; way++) {
        reducing->mode = (enum mode)(way / 4);
        reducing->op = way % 2 == 0 ? TRIB_SUM : TRIB_AVG;
        reducing->learns = way / 2 % 2 == 1;
        if (suite->depth != BACKEND_LIGHT || is_of_half(way))
            every_step(reducing);
    }
    guarded_reset(&reducing->memory, reducing->bytes, 0);
    if (backend_go_on(suite, rank, good)) {
        mistakes_of_all(reducing);
        mistakes_of_one(reducing);
    }
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(trib_stream_destroy(reducing->device, reducing->streams[i]));
    guarded_destroy(&reducing->memory);
    free(reducing);
}

void backend_reducers(struct suite *suite)
{
    check_begin("%s, %d ranks, by %s: reducers", suite->team.backend, suite->team.size, suite->how);
    suite->seed += 100000;
    check_ranks(suite->team.size, reducing_rank, suite);
    check_end();
}
