/* Symmetric memory: allocated, found, reached and freed by all ranks; and allreduces on it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum { SMALL = 1000, LARGE = (8 << 20) + 40, RUN = 64 }; /* bytes */
enum {
    BLOCK = 25,
    RANKS = 64,
    RESULT = RANKS * BLOCK
}; /* f32 of a rank, ranks at most, f32 of a result */

/* One rank. */
struct symmetric {
    struct suite *suite;
    int rank, size;
    uint64_t seed;
    trib_comm *comm;
    trib_device *device;
    trib_stream stream;
    char *image; /* LARGE */
    struct guarded plain;
};

static bool copy(const struct symmetric *s, void *to, const void *from, size_t bytes)
{
    return CHECK_OK(trib_device_copy(s->device, to, from, bytes, s->stream)) &&
           CHECK_OK(trib_stream_wait(s->device, s->stream));
}

/* All ranks are here, and what they have queued has run. */
static bool meet(const struct symmetric *s)
{
    return CHECK_OK(trib_barrier(s->comm, s->stream)) &&
           CHECK_OK(trib_stream_wait(s->device, s->stream));
}

static uint64_t held(const struct symmetric *s)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    return CHECK_OK(trib_comm_memory(&memory, s->comm)) ? memory.peer_bytes : 0;
}

static void *query(const struct symmetric *s, const char *data, size_t bytes, int rank)
{
    void *found = NULL;
    CHECK_OK(trib_symmetric_query(&found, s->comm, data, bytes, rank));
    return found;
}

/* ------------------------------------------------------------------------------ where it lies */

static bool is_found(const struct symmetric *s, char *data, size_t bytes)
{
    void *found = data;
    bool good = CHECK((uintptr_t)data % 256 == 0) &&
                CHECK(query(s, data, bytes, s->rank) == data) &&
                CHECK(query(s, data + bytes - 1, 1, s->rank) == data + bytes - 1) &&
                CHECK(query(s, data + 1, bytes, s->rank) == NULL) &&
                CHECK(query(s, data, bytes + 1, s->rank) == NULL) &&
                CHECK(query(s, data - 1, 2, s->rank) == NULL) &&
                CHECK(query(s, data, SIZE_MAX, s->rank) == NULL) &&
                CHECK(query(s, guarded_data(&s->plain, 0), 1, s->rank) == NULL);
    for (int rank = 0; rank < s->size; rank++) {
        const char *there = query(s, data, bytes, rank);
        good = CHECK(there != NULL && (there == data) == (rank == s->rank)) &&
               CHECK(query(s, data + bytes / 2, 1, rank) == there + bytes / 2) && good;
    }
    return good &&
           CHECK_STATUS(trib_symmetric_query(&found, s->comm, data, 1, s->size),
                        TRIB_ERR_INVALID_ARGUMENT) &&
           CHECK_DETAIL("`rank` is") && CHECK(found == NULL);
}

/* Each RUN bytes are alike. */
static void fill(const struct symmetric *s, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += RUN)
        memset(s->image + i, (int)(reference_bits(s->seed, (uint64_t)rank, i / RUN) & 255),
               bytes - i < RUN ? bytes - i : RUN);
}

/* What each rank has written in its own, all read. */
static bool reaches(struct symmetric *s, const char *data, size_t bytes)
{
    char *read = malloc(bytes);
    bool good = read != NULL;
    s->seed++;
    fill(s, s->rank, bytes);
    good = good && copy(s, query(s, data, bytes, s->rank), s->image, bytes) && meet(s);
    for (int rank = 0; rank < s->size && good; rank++) {
        fill(s, rank, bytes);
        good = copy(s, read, query(s, data, bytes, rank), bytes) &&
               CHECK_MSG(memcmp(read, s->image, bytes) == 0, "rank %d reads another thing of %d",
                         s->rank, rank);
    }
    free(read);
    return good && meet(s);
}

/* And what its neighbour wrote into it, where that is another rank. */
static bool is_reached(struct symmetric *s, char *data)
{
    const int next = (s->rank + 1) % s->size, before = (s->rank + s->size - 1) % s->size;
    char read[SMALL];
    s->seed++;
    fill(s, s->rank, SMALL);
    if (!copy(s, query(s, data, SMALL, next), s->image, SMALL) || !meet(s) ||
        !copy(s, read, data, SMALL))
        return false;
    fill(s, before, SMALL);
    return CHECK(memcmp(read, s->image, SMALL) == 0) && meet(s);
}

/* ------------------------------------------------------------------------------------- mistakes */

/* `mine` on rank `at`, where the others get TRIB_ERR_MISMATCH. */
static bool refuses_alloc(const struct symmetric *s, int at, void **out, size_t bytes,
                          trib_status mine)
{
    void *other = NULL;
    const bool self = s->rank == at;
    return CHECK_STATUS(trib_symmetric_alloc(self ? out : &other, s->comm, self ? bytes : SMALL),
                        self           ? mine
                        : s->size == 1 ? TRIB_OK
                                       : TRIB_ERR_MISMATCH) &&
           CHECK(other == NULL);
}

static bool alloc_mistakes(const struct symmetric *s)
{
    const int last = s->size - 1;
    void *out = s->image;
    bool good = refuses_alloc(s, last, &out, 0, TRIB_ERR_INVALID_ARGUMENT) &&
                CHECK(s->rank != last || out == NULL) &&
                refuses_alloc(s, 0, NULL, SMALL, TRIB_ERR_INVALID_ARGUMENT) &&
                refuses_alloc(s, last, &out, SIZE_MAX, TRIB_ERR_INVALID_ARGUMENT);
    if (s->size > 1)
        good = good && refuses_alloc(s, last, &out, SMALL + 1, TRIB_ERR_MISMATCH) &&
               CHECK_DETAIL("nothing was done");
    good = good && CHECK_OK(trib_batch_begin(s->comm)) &&
           CHECK_STATUS(trib_symmetric_alloc(&out, s->comm, SMALL), TRIB_ERR_INVALID_USAGE) &&
           CHECK_OK(trib_batch_end(s->comm));
    return good && CHECK_OK(trib_comm_status(s->comm));
}

/* By rank 0: NULL, memory of another kind, and its middle; then ranks that free different ones. */
static bool free_mistakes(const struct symmetric *s, char *data, char *other)
{
    char *wrong[] = {NULL, guarded_data(&s->plain, 0), data + 256};
    bool good = true;
    for (int i = 0; i < 3 && good; i++)
        good = CHECK_STATUS(trib_symmetric_free(s->comm, s->rank == 0 ? wrong[i] : data),
                            s->rank == 0 ? TRIB_ERR_INVALID_ARGUMENT : TRIB_ERR_MISMATCH);
    if (s->size > 1 && good)
        good = CHECK_STATUS(trib_symmetric_free(s->comm, s->rank == 0 ? other : data),
                            TRIB_ERR_MISMATCH);
    return good && CHECK(query(s, data, SMALL, s->rank) == data) &&
           CHECK(query(s, other, SMALL, s->rank) == other);
}

/* ---------------------------------------------------------------------------------------- calls */

static bool allreduce(struct symmetric *s, char *send, char *recv, size_t count)
{
    const struct reference inputs = {
        .dtype = TRIB_F32, .op = TRIB_SUM, .size = s->size, .seed = ++s->seed};
    const size_t bytes = count * sizeof(float);
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    char *found = malloc(bytes + 1);
    options.variant = TRIB_VARIANT_SYMMETRIC;
    reference_input(s->image, &inputs, s->rank, 0, count);
    const bool good = found != NULL && copy(s, send, s->image, bytes) &&
                      CHECK_OK(trib_allreduce_with(s->comm, send, recv, count, TRIB_F32, TRIB_SUM,
                                                   &options, s->stream)) &&
                      copy(s, found, recv, bytes);
    reference_reduced(s->image, &inputs, 0, count);
    const bool same = good && CHECK_MSG(memcmp(found, s->image, bytes) == 0,
                                        "rank %d: %zu floats are wrong", s->rank, count);
    free(found);
    return same;
}

static float of_rank(int rank, int i)
{
    return (float)(100 * rank + i);
}

/* The other calls that have variants: from symmetric memory to any, in which only `send` must lie. */
static bool other_kinds(struct symmetric *s, float *send)
{
    const int root = s->size - 1;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    float found[3][RESULT], *recv[3];
    bool good = CHECK(s->size <= RANKS);
    options.variant = TRIB_VARIANT_SYMMETRIC;
    guarded_reset(&s->plain, sizeof found, 0);
    for (int i = 0; i < s->size * BLOCK; i++)
        found[0][i] = of_rank(s->rank, i);
    for (int kind = 0; kind < 3; kind++)
        recv[kind] = (float *)(void *)guarded_data(&s->plain, 0) + kind * RESULT;
    const size_t bytes = (size_t)s->size * BLOCK * sizeof(float);
    good = good && guarded_push(&s->plain, s->stream) && copy(s, send, found[0], bytes) &&
           CHECK_OK(
               trib_allgather_with(s->comm, send, recv[0], BLOCK, TRIB_F32, &options, s->stream)) &&
           CHECK_OK(
               trib_alltoall_with(s->comm, send, recv[1], BLOCK, TRIB_F32, &options, s->stream)) &&
           CHECK_OK(trib_reduce_scatter_with(s->comm, send, recv[2], BLOCK, TRIB_F32, TRIB_SUM,
                                             &options, s->stream)) &&
           CHECK_OK(trib_broadcast_with(s->comm, s->rank == root ? send : NULL, recv[2] + BLOCK,
                                        BLOCK, TRIB_F32, root, &options, s->stream));
    for (int kind = 0; kind < 3 && good; kind++)
        good = copy(s, found[kind], recv[kind], kind == 2 ? 2 * BLOCK * sizeof(float) : bytes);
    for (int i = 0; i < BLOCK && good; i++) {
        float sum = 0;
        for (int rank = 0; rank < s->size; rank++) {
            sum += of_rank(rank, s->rank * BLOCK + i);
            good = CHECK(found[0][rank * BLOCK + i] == of_rank(rank, i)) &&
                   CHECK(found[1][rank * BLOCK + i] == of_rank(rank, s->rank * BLOCK + i)) && good;
        }
        good = CHECK(found[2][i] == sum && found[2][BLOCK + i] == of_rank(root, i)) && good;
    }
    return good;
}

/* A buffer of another kind is refused, as each rank finds for itself; so is one that is too short. */
static bool refuses_buffers(const struct symmetric *s, char *data)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = TRIB_VARIANT_SYMMETRIC;
    float *plain = guarded_data(&s->plain, 0);
    return CHECK_STATUS(trib_allreduce_with(s->comm, plain, data, 4, TRIB_F32, TRIB_SUM, &options,
                                            s->stream),
                        TRIB_ERR_INVALID_BUFFER) &&
           CHECK_DETAIL("`send`") && CHECK_DETAIL("trib_symmetric_alloc") &&
           CHECK_STATUS(trib_allreduce_with(s->comm, data, plain, 4, TRIB_F32, TRIB_SUM, &options,
                                            s->stream),
                        TRIB_ERR_INVALID_BUFFER) &&
           CHECK_DETAIL("`recv`") &&
           CHECK_STATUS(trib_allgather_with(s->comm, plain, data, 1, TRIB_F32, &options, s->stream),
                        TRIB_ERR_INVALID_BUFFER) &&
           CHECK_DETAIL("`send`") &&
           CHECK_STATUS(trib_alltoall_with(s->comm, data, plain, SMALL / 4 / (size_t)s->size + 1,
                                           TRIB_F32, &options, s->stream),
                        TRIB_ERR_INVALID_BUFFER) &&
           CHECK_DETAIL("`send`") && CHECK_OK(trib_batch_begin(s->comm)) &&
           CHECK_STATUS(trib_allgather_with(s->comm, data, plain, 1, TRIB_F32, &options, s->stream),
                        TRIB_ERR_UNSUPPORTED) &&
           CHECK_DETAIL("batch") && CHECK_STATUS(trib_batch_end(s->comm), TRIB_ERR_UNSUPPORTED) &&
           CHECK_OK(trib_comm_status(s->comm));
}

static bool imports(struct symmetric *s)
{
    void *data = NULL;
    char read[SMALL];
    s->seed++;
    guarded_reset(&s->plain, SMALL, 0);
    fill(s, s->rank, SMALL);
    memcpy(guarded_image(&s->plain, 0), s->image, SMALL);
    return guarded_push(&s->plain, s->stream) &&
           CHECK_STATUS(trib_symmetric_import(&data, s->comm,
                                              s->rank == 0 ? NULL : guarded_data(&s->plain, 0),
                                              SMALL, s->stream),
                        s->rank == 0 ? TRIB_ERR_INVALID_BUFFER : TRIB_ERR_MISMATCH) &&
           CHECK(data == NULL) &&
           CHECK_OK(trib_symmetric_import(&data, s->comm, guarded_data(&s->plain, 0), SMALL,
                                          s->stream)) &&
           CHECK(data != guarded_data(&s->plain, 0)) && copy(s, read, data, SMALL) &&
           CHECK(memcmp(read, s->image, SMALL) == 0) &&
           CHECK_OK(trib_symmetric_free(s->comm, data));
}

/* ------------------------------------------------------------------------------------------ all */

static bool every_part(struct symmetric *s, char *small, char *large, uint64_t before)
{
    static const size_t counts[] = {0, 1, 250, LARGE / 8, LARGE / 4};
    bool good = CHECK(held(s) >= before + SMALL + LARGE) && is_found(s, small, SMALL) &&
                is_found(s, large, LARGE) && reaches(s, small, SMALL) && reaches(s, large, LARGE) &&
                is_reached(s, small) && free_mistakes(s, small, large) &&
                refuses_buffers(s, small) && other_kinds(s, (float *)(void *)large);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && good; i++)
        good = allreduce(s, large, large, counts[i]) &&
               (counts[i] > LARGE / 8 ||
                allreduce(s, large, large + LARGE / 8 * sizeof(float), counts[i]));
    return good && imports(s) && CHECK_OK(trib_symmetric_free(s->comm, small)) &&
           CHECK(query(s, small, 1, s->rank) == NULL) && is_found(s, large, LARGE);
}

/* The large one is left to the communicator. */
static bool every_call(struct symmetric *s)
{
    void *small = NULL, *large = NULL;
    const uint64_t before = held(s);
    if (s->size > 1 && before == 0 && strcmp(s->suite->team.backend, "nccl") == 0)
        return CHECK_STATUS(trib_symmetric_alloc(&small, s->comm, SMALL), TRIB_ERR_UNSUPPORTED) &&
               CHECK_DETAIL("PEERS") && CHECK_OK(trib_comm_status(s->comm));
    return alloc_mistakes(s) && CHECK(held(s) == before) &&
           CHECK_OK(trib_symmetric_alloc(&small, s->comm, SMALL)) &&
           CHECK_OK(trib_symmetric_alloc(&large, s->comm, LARGE)) &&
           every_part(s, small, large, before);
}

static void symmetric_rank(int rank, int size, void *argument)
{
    struct suite *suite = argument;
    struct symmetric s = {.suite = suite,
                          .rank = rank,
                          .size = size,
                          .seed = suite->seed,
                          .comm = suite->team.comms[rank],
                          .device = suite->team.devices[rank],
                          .stream = suite->team.streams[rank],
                          .image = malloc(LARGE)};
    const bool good = s.image != NULL &&
                      guarded_create(&s.plain, s.device, 3 * RESULT * sizeof(float)) &&
                      every_call(&s);
    backend_go_on(suite, rank, good);
    guarded_destroy(&s.plain);
    free(s.image);
}

void backend_symmetric(struct suite *suite)
{
    check_begin("%s, %d ranks by %s: symmetric memory", suite->team.backend, suite->team.size,
                suite->how);
    check_ranks(suite->team.size, symmetric_rank, suite);
    suite->seed += 1000;
    check_end();
}
