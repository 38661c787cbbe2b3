/* Reducers with a weight on the device: weighted averages, and steps that the weights forbid. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum { GRADIENTS = 10, PITCH = 2048, BYTES = GRADIENTS * PITCH, SMALL_BUCKETS = 1024 };

enum way { PLAIN, LAST_WEIGHS_0, SOME_ABSENT, ALL_WEIGH_0, ONE_IS_NEGATIVE, WAYS };
static const char *const way_names[WAYS] = {"plain", "the last rank weighs 0", "some absent",
                                            "all ranks weigh 0", "one weight is negative"};

static const size_t counts[GRADIENTS] = {17, 1, 0, 130, 5, 64, 3, 250, 1, 31};
static const trib_dtype dtypes[GRADIENTS] = {TRIB_F32,  TRIB_F16, TRIB_F32, TRIB_F64, TRIB_BF16,
                                             TRIB_BF16, TRIB_F64, TRIB_F16, TRIB_F32, TRIB_F32};

struct weighing {
    struct suite *suite;
    int rank, size;
    trib_comm *comm;
    trib_device *device;
    trib_stream stream;
    trib_reducer *reducer;
    struct guarded memory;
    float *weight; /* on the device */
    uint64_t seed;
};

/* The weights sum to a power of two, so averages of its multiples are whole numbers. */
static int total_of(int size)
{
    int total = 1;
    while (total < size)
        total *= 2;
    return total;
}

static bool lasts_as_0(enum way way, int size)
{
    return way == LAST_WEIGHS_0 && size > 1;
}

static float weight_of(enum way way, int rank, int size)
{
    const int others = size - 1 - lasts_as_0(way, size);
    if (way == ALL_WEIGH_0 || (lasts_as_0(way, size) && rank == size - 1))
        return 0;
    if (way == ONE_IS_NEGATIVE && rank == size - 1)
        return -1;
    return rank == 0 ? (float)(total_of(size) - others) : 1;
}

static int input_of(const struct weighing *weighing, int rank, size_t i, size_t element)
{
    const uint64_t mixed = weighing->seed + (uint64_t)rank * 5 + i * 3 + element;
    return total_of(weighing->size) * (int)(mixed % 3);
}

static bool is_ready(enum way way, int rank, size_t i)
{
    return way != SOME_ABSENT || (i + (size_t)rank) % 3 != 0;
}

static void put(struct weighing *weighing, enum way way)
{
    const float weight = weight_of(way, weighing->rank, weighing->size);
    guarded_reset(&weighing->memory, BYTES, 0);
    for (size_t i = 0; i < GRADIENTS; i++) {
        void *image = guarded_image(&weighing->memory, i * PITCH);
        for (size_t e = 0; e < counts[i]; e++)
            reference_store(image, dtypes[i], e, input_of(weighing, weighing->rank, i, e));
        if (weight == 0) /* NaNs */
            memset(image, 0xff, counts[i] * trib_dtype_size(dtypes[i]));
    }
    CHECK(guarded_push(&weighing->memory, weighing->stream));
    CHECK_OK(trib_device_copy(weighing->device, weighing->weight, &weight, sizeof weight,
                              weighing->stream));
    CHECK_OK(trib_stream_wait(weighing->device, weighing->stream));
}

static void expect(struct weighing *weighing, enum way way)
{
    for (size_t i = 0; i < GRADIENTS; i++) {
        void *image = guarded_image(&weighing->memory, i * PITCH);
        for (size_t e = 0; e < counts[i]; e++) {
            double sum = 0;
            for (int rank = 0; rank < weighing->size; rank++)
                if (is_ready(way, rank, i))
                    sum += weight_of(way, rank, weighing->size) * input_of(weighing, rank, i, e);
            reference_store(image, dtypes[i], e, sum / total_of(weighing->size));
        }
    }
}

static uint32_t outcome_of(const struct weighing *weighing)
{
    uint32_t found = 7;
    void *word = (void *)(uintptr_t)trib_reducer_outcome(weighing->reducer);
    CHECK_OK(trib_device_copy(weighing->device, &found, word, sizeof found, weighing->stream));
    CHECK_OK(trib_stream_wait(weighing->device, weighing->stream));
    return found;
}

static bool try_step(struct weighing *weighing, enum way way)
{
    char what[96];
    const bool applies = way != ALL_WEIGH_0 && way != ONE_IS_NEGATIVE;
    (void)snprintf(what, sizeof what, "weighted reducer, %s, rank %d", way_names[way],
                   weighing->rank);
    weighing->seed++;
    put(weighing, way);
    for (size_t k = 0; k < GRADIENTS; k++)
        if (is_ready(way, weighing->rank, GRADIENTS - 1 - k))
            CHECK_OK(trib_reducer_ready(weighing->reducer, GRADIENTS - 1 - k, weighing->stream));
    if (!CHECK_OK(trib_reducer_finish(weighing->reducer, weighing->stream)) ||
        !CHECK_MSG(outcome_of(weighing) == applies, "%s", what) ||
        !guarded_pull(&weighing->memory, weighing->stream) ||
        !CHECK_OK(trib_stream_wait(weighing->device, weighing->stream)))
        return false;
    if (applies) /* otherwise the image is still what was put there */
        expect(weighing, way);
    return backend_compare(weighing->suite, weighing->rank, &weighing->memory, NULL, what);
}

/* ---------------------------------------------------------------------------------- creation */

static trib_status create(struct weighing *weighing, uint32_t flags, const float *weight)
{
    trib_tensor tensors[GRADIENTS];
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = flags;
    options.bucket_bytes = options.first_bytes = SMALL_BUCKETS;
    options.device_weight = weight;
    guarded_reset(&weighing->memory, BYTES, 0);
    for (size_t i = 0; i < GRADIENTS; i++)
        tensors[i] =
            (trib_tensor){guarded_data(&weighing->memory, i * PITCH), counts[i], dtypes[i], 0};
    return trib_reducer_create(&weighing->reducer, weighing->comm, tensors, GRADIENTS, &options);
}

static void mistakes(struct weighing *weighing)
{
    const bool last = weighing->rank == weighing->size - 1;
    CHECK_STATUS(create(weighing, TRIB_REDUCER_SUM, weighing->weight), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("device_weight");
    CHECK_STATUS(create(weighing, TRIB_REDUCER_VIEWS, weighing->weight), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(create(weighing, 0, guarded_data(&weighing->memory, 3 * PITCH)),
                 TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("`gradients[3]` overlaps options.device_weight");
    if (weighing->size > 1)
        CHECK_STATUS(create(weighing, 0, last ? NULL : weighing->weight), TRIB_ERR_MISMATCH);
}

static void every_step(struct weighing *weighing)
{
    bool good = true;
    for (uint32_t flags = 0; flags <= TRIB_REDUCER_LEARN_ORDER && good;
         flags += TRIB_REDUCER_LEARN_ORDER) {
        good = CHECK_OK(create(weighing, flags, weighing->weight));
        for (int way = 0; good && way < 2 * WAYS; way++)
            good = try_step(weighing, (enum way)(way % WAYS));
        CHECK_OK(trib_reducer_destroy(weighing->reducer));
    }
    if (backend_go_on(weighing->suite, weighing->rank, good))
        mistakes(weighing);
}

static void weighing_rank(int rank, int size, void *argument)
{
    struct suite *suite = argument;
    struct weighing weighing = {.suite = suite,
                                .rank = rank,
                                .size = size,
                                .comm = suite->team.comms[rank],
                                .device = suite->team.devices[rank],
                                .stream = suite->team.streams[rank],
                                .seed = suite->seed};
    void *weight = NULL;
    if (CHECK_OK(trib_device_alloc(&weight, weighing.device, sizeof(float))) &&
        guarded_create(&weighing.memory, weighing.device, BYTES)) {
        weighing.weight = weight;
        every_step(&weighing);
    } else {
        (void)backend_go_on(suite, rank, false);
    }
    guarded_destroy(&weighing.memory);
    CHECK_OK(trib_device_free(weighing.device, weight));
}

void backend_weighted_reducers(struct suite *suite)
{
    check_begin("%s, %d ranks, by %s: weighted reducers", suite->team.backend, suite->team.size,
                suite->how);
    suite->seed += 100000;
    check_ranks(suite->team.size, weighing_rank, suite);
    check_end();
}
