/* Batches that end together: all ranks of one communicator, driven by one thread, and several
 * communicators of one rank. All inputs are small integers, so that sums are exact. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"

enum { COUNT = 37, SLICE = 64, CHILDREN = 3 };

enum part {
    ALLREDUCE,
    SCALED, /* an allreduce of bf16 with a factor on the device, which takes scratch */
    BROADCAST,
    REDUCE,
    ALLGATHER,
    REDUCE_SCATTER,
    GATHER,
    SCATTER,
    ALLTOALL,
    RING,
    BARRIER,
    PARTS
};

/* All parts of all ranks: part p of a rank has SLICE floats per rank in each of its buffers. */
struct batches {
    struct suite *suite;
    struct guarded send[TEAM_MAX], recv[TEAM_MAX];
};

static size_t at(const struct batches *b, int part, int block)
{
    return ((size_t)part * (size_t)b->suite->team.size + (size_t)block) * SLICE * sizeof(float);
}

static float value(int part, int rank, int block, size_t element)
{
    const size_t range = part == SCALED ? 2 : 8; /* a bf16 holds the integers up to 256 */
    return (float)(((size_t)part * 5 + (size_t)rank * 3 + (size_t)block + element) % range + 1);
}

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void fill(struct batches *b, int rank)
{
    const int size = b->suite->team.size;
    struct guarded *send = &b->send[rank];
    guarded_reset(send, at(b, PARTS, 0), 0);
    guarded_reset(&b->recv[rank], at(b, PARTS, 0), 0);
    for (int part = 0; part < PARTS; part++)
        for (int block = 0; block < size; block++)
            for (size_t e = 0; e < SLICE; e++)
                ((float *)guarded_image(send, at(b, part, block)))[e] = value(part, rank, block, e);
    for (size_t e = 0; e < COUNT; e++)
        ((uint16_t *)guarded_image(send, at(b, SCALED, 0)))[e] = bf16_of(value(SCALED, rank, 0, e));
    /* behind the elements, a power of two: no product is rounded */
    ((float *)guarded_image(send, at(b, SCALED, 0)))[SLICE - 1] = (float)(1 << rank % 2);
}

static trib_status scaled(const struct batches *b, int rank, trib_comm *comm, trib_stream stream)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    char *send = guarded_data(&b->send[rank], at(b, SCALED, 0));
    options.device_factor = (const float *)(void *)send + SLICE - 1;
    return trib_allreduce_with(comm, send, guarded_data(&b->recv[rank], at(b, SCALED, 0)), COUNT,
                               TRIB_BF16, TRIB_SUM, &options, stream);
}

static trib_status ring(trib_comm *comm, const float *send, float *recv, trib_stream stream)
{
    const int rank = trib_comm_rank(comm), size = trib_comm_size(comm);
    const trib_status sent = trib_send(comm, send, COUNT, TRIB_F32, (rank + 1) % size, stream);
    return sent != TRIB_OK
               ? sent
               : trib_recv(comm, recv, COUNT, TRIB_F32, (rank + size - 1) % size, stream);
}

static trib_status call(const struct batches *b, int part, int rank, trib_comm *comm,
                        trib_stream stream)
{
    const float *send = guarded_data(&b->send[rank], at(b, part, 0));
    float *recv = guarded_data(&b->recv[rank], at(b, part, 0));
    const int root = part % b->suite->team.size;
    switch ((enum part)part) {
    case ALLREDUCE:
        return trib_allreduce(comm, send, recv, COUNT, TRIB_F32, TRIB_SUM, stream);
    case SCALED:
        return scaled(b, rank, comm, stream);
    case BROADCAST:
        return trib_broadcast(comm, send, recv, COUNT, TRIB_F32, root, stream);
    case REDUCE:
        return trib_reduce(comm, send, recv, COUNT, TRIB_F32, TRIB_SUM, root, stream);
    case ALLGATHER:
        return trib_allgather(comm, send, recv, SLICE, TRIB_F32, stream);
    case REDUCE_SCATTER:
        return trib_reduce_scatter(comm, send, recv, SLICE, TRIB_F32, TRIB_SUM, stream);
    case GATHER:
        return trib_gather(comm, send, recv, SLICE, TRIB_F32, root, stream);
    case SCATTER:
        return trib_scatter(comm, send, recv, SLICE, TRIB_F32, root, stream);
    case ALLTOALL:
        return trib_alltoall(comm, send, recv, SLICE, TRIB_F32, stream);
    case RING:
        return ring(comm, send, recv, stream);
    default:
        return trib_barrier(comm, stream);
    }
}

/* The sum over the ranks of block `block` of a part. */
static float sum(const struct batches *b, int part, int block, size_t element)
{
    float total = 0;
    for (int rank = 0; rank < b->suite->team.size; rank++)
        total += value(part, rank, block, element);
    return total;
}

static float sum_scaled(const struct batches *b, size_t element)
{
    float total = 0;
    for (int rank = 0; rank < b->suite->team.size; rank++)
        total += value(SCALED, rank, 0, element) * (float)(1 << rank % 2);
    return total;
}

/* Element `e` of block `block` of what this rank receives; false: nothing is written there. */
static bool expected(const struct batches *b, int part, int rank, int block, size_t e, float *out)
{
    const int size = b->suite->team.size, root = part % size;
    const bool first = block == 0, short_one = first && e < COUNT;
    switch ((enum part)part) {
    case ALLREDUCE:
        *out = sum(b, part, 0, e);
        return short_one;
    case BROADCAST:
        *out = value(part, root, 0, e);
        return short_one;
    case REDUCE:
        *out = sum(b, part, 0, e);
        return short_one && rank == root;
    case ALLGATHER:
        *out = value(part, block, 0, e);
        return true;
    case REDUCE_SCATTER:
        *out = sum(b, part, rank, e);
        return first;
    case GATHER:
        *out = value(part, block, 0, e);
        return rank == root;
    case SCATTER:
        *out = value(part, root, rank, e);
        return first;
    case ALLTOALL:
        *out = value(part, block, rank, e);
        return true;
    case RING:
        *out = value(part, (rank + size - 1) % size, 0, e);
        return short_one;
    default: /* SCALED is bf16 */
        return false;
    }
}

static void expect(struct batches *b, int part, int rank)
{
    struct guarded *recv = &b->recv[rank];
    for (int block = 0; block < b->suite->team.size; block++) {
        float *image = guarded_image(recv, at(b, part, block));
        for (size_t e = 0; e < SLICE; e++) {
            float is;
            if (expected(b, part, rank, block, e, &is))
                image[e] = is;
        }
    }
    for (size_t e = 0; part == SCALED && e < COUNT; e++)
        ((uint16_t *)guarded_image(recv, at(b, SCALED, 0)))[e] = bf16_of(sum_scaled(b, e));
}

static bool push(struct batches *b, int rank)
{
    const trib_stream stream = b->suite->team.streams[rank];
    fill(b, rank);
    return guarded_push(&b->send[rank], stream) && guarded_push(&b->recv[rank], stream);
}

static bool check(struct batches *b, int rank, const char *what)
{
    const struct team *team = &b->suite->team;
    struct guarded *send = &b->send[rank];
    struct guarded *recv = &b->recv[rank];
    return guarded_pull(send, team->streams[rank]) && guarded_pull(recv, team->streams[rank]) &&
           CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank])) &&
           backend_compare(b->suite, rank, send, recv, what);
}

/* ------------------------------------------------------------- one thread drives all ranks */

static bool push_all(struct batches *b)
{
    bool good = true;
    for (int rank = 0; rank < b->suite->team.size && good; rank++)
        good = push(b, rank) && CHECK_OK(trib_batch_begin(b->suite->team.comms[rank]));
    return good;
}

static bool check_all(struct batches *b, const char *what)
{
    bool good = true;
    for (int rank = 0; rank < b->suite->team.size; rank++)
        good = check(b, rank, what) && good;
    return good;
}

/* Every kind of call of every rank, rank after rank, as one call of the backend. */
static bool one_thread(struct batches *b)
{
    const struct team *team = &b->suite->team;
    bool good = push_all(b);
    for (int rank = 0; rank < team->size && good; rank++)
        for (int part = 0; part < PARTS && good; part++)
            good = CHECK_OK(call(b, part, rank, team->comms[rank], team->streams[rank]));
    good = CHECK_OK(trib_batch_end_all(team->comms, (size_t)team->size)) && good;
    for (int rank = 0; rank < team->size; rank++) {
        CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank])); /* it reads images */
        for (int part = 0; part < PARTS; part++)
            expect(b, part, rank);
    }
    return check_all(b, "batches of all ranks by one thread") && good;
}

/* One bad call of the last rank: nothing is queued on any, and all batches have ended. */
static bool one_fails(struct batches *b)
{
    const struct team *team = &b->suite->team;
    const int last = team->size - 1;
    bool good = push_all(b);
    for (int rank = 0; rank < team->size && good; rank++)
        good = CHECK_OK(call(b, ALLREDUCE, rank, team->comms[rank], team->streams[rank]));
    CHECK_STATUS(
        trib_allreduce(team->comms[last], NULL, NULL, 1, TRIB_F32, TRIB_SUM, team->streams[last]),
        TRIB_ERR_INVALID_BUFFER);
    CHECK_STATUS(trib_batch_end_all(team->comms, (size_t)team->size), TRIB_ERR_INVALID_BUFFER);
    for (int rank = 0; rank < team->size; rank++)
        CHECK_STATUS(trib_batch_end(team->comms[rank]), TRIB_ERR_INVALID_USAGE);
    return check_all(b, "batches of which one failed") && good;
}

/* A rank whose batch is empty takes no part; without calls there is nothing to end. */
static void empty(const struct batches *b)
{
    const struct team *team = &b->suite->team;
    trib_counters before = TRIB_COUNTERS_INIT, after = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&before, team->comms[0]));
    for (int rank = 0; rank < team->size; rank++)
        CHECK_OK(trib_batch_begin(team->comms[rank]));
    CHECK_OK(trib_batch_end_all(team->comms, (size_t)team->size));
    CHECK_OK(trib_batch_end_all(NULL, 0));
    CHECK_OK(trib_comm_counters(&after, team->comms[0]));
    CHECK(after.calls == before.calls && after.backend_calls == before.backend_calls);
}

/* ------------------------------------------------------- several communicators of one rank */

struct several {
    struct batches *b;
    bool one_stream;
};

/* [0]: the same ranks backwards; [1]: this rank alone; [2]: ranks of equal parity. */
static bool split(trib_comm **children, trib_comm *comm)
{
    const int rank = trib_comm_rank(comm);
    return CHECK_OK(trib_comm_split(&children[0], comm, 0, -rank)) &&
           CHECK_OK(trib_comm_split(&children[1], comm, rank, 0)) &&
           CHECK_OK(trib_comm_split(&children[2], comm, rank % 2, 0));
}

/* Child i makes an allreduce in the place of part CHILD + i; the parent a barrier. */
enum { CHILD = BROADCAST };

static void expect_several(struct batches *b, int rank)
{
    const int size = b->suite->team.size;
    for (size_t e = 0; e < COUNT; e++) {
        float sums[CHILDREN] = {sum(b, CHILD, 0, e), value(CHILD + 1, rank, 0, e), 0};
        for (int other = rank % 2; other < size; other += 2)
            sums[2] += value(CHILD + 2, other, 0, e);
        for (int child = 0; child < CHILDREN; child++)
            ((float *)guarded_image(&b->recv[rank], at(b, CHILD + child, 0)))[e] = sums[child];
    }
}

static bool queue_several(struct batches *b, int rank, trib_comm *const *comms,
                          const trib_stream *streams)
{
    bool good = true;
    for (int i = 0; i <= CHILDREN; i++)
        good = CHECK_OK(trib_batch_begin(comms[i])) && good;
    for (int i = 0; i < CHILDREN && good; i++)
        good = CHECK_OK(trib_allreduce(comms[i], guarded_data(&b->send[rank], at(b, CHILD + i, 0)),
                                       guarded_data(&b->recv[rank], at(b, CHILD + i, 0)), COUNT,
                                       TRIB_F32, TRIB_SUM, streams[i]));
    good = good && CHECK_OK(trib_barrier(comms[CHILDREN], streams[CHILDREN]));
    return CHECK_OK(trib_batch_end_all(comms, CHILDREN + 1)) && good;
}

static void several_rank(int rank, int size, void *argument)
{
    const struct several *several = argument;
    struct batches *b = several->b;
    const struct team *team = &b->suite->team;
    trib_comm *comms[CHILDREN + 1] = {NULL, NULL, NULL, team->comms[rank]};
    trib_stream streams[CHILDREN + 1];
    (void)size;
    bool good = split(comms, team->comms[rank]) && push(b, rank);
    for (int i = 0; i <= CHILDREN; i++) {
        streams[i] = team->streams[rank];
        if (!several->one_stream && i < CHILDREN)
            good = CHECK_OK(trib_stream_create(&streams[i], team->devices[rank])) && good;
    }
    good = good && CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank])) &&
           queue_several(b, rank, comms, streams);
    for (int i = 0; i < CHILDREN; i++) {
        CHECK_OK(trib_stream_wait(team->devices[rank], streams[i]));
        if (streams[i] != team->streams[rank])
            CHECK_OK(trib_stream_destroy(team->devices[rank], streams[i]));
    }
    expect_several(b, rank);
    good = check(b, rank, several->one_stream ? "communicators of one stream" : "communicators") &&
           good;
    for (int i = 0; i < CHILDREN; i++)
        CHECK_OK(trib_comm_destroy(comms[i]));
    (void)backend_go_on(b->suite, rank, good);
}

/* ---------------------------------------------------------------------------------- the suite */

static bool create(struct batches *b)
{
    bool good = true;
    for (int rank = 0; rank < b->suite->team.size && good; rank++)
        good = guarded_create(&b->send[rank], b->suite->team.devices[rank], at(b, PARTS, 0)) &&
               guarded_create(&b->recv[rank], b->suite->team.devices[rank], at(b, PARTS, 0));
    return good;
}

static void destroy(struct batches *b)
{
    for (int rank = 0; rank < b->suite->team.size; rank++) {
        guarded_destroy(&b->send[rank]);
        guarded_destroy(&b->recv[rank]);
    }
}

void backend_batches(struct suite *suite)
{
    struct batches *b = calloc(1, sizeof *b);
    if (b == NULL)
        abort();
    b->suite = suite;
    check_begin("%s, %d ranks by %s: batches that end together", suite->team.backend,
                suite->team.size, suite->how);
    if (create(b)) {
        for (int turn = 0; turn < 3; turn++)
            if (!one_thread(b))
                break;
        (void)one_fails(b);
        empty(b);
        struct several several = {b, false};
        check_ranks(suite->team.size, several_rank, &several);
        several.one_stream = true;
        check_ranks(suite->team.size, several_rank, &several);
    }
    destroy(b);
    check_end();
    free(b);
}
