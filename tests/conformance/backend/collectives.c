/* The collectives of one count: allreduce, broadcast, reduce, allgather, reduce_scatter, alltoall,
 * gather, scatter. */
#include <stdio.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum kind {
    ALLREDUCE,
    BROADCAST,
    REDUCE,
    ALLGATHER,
    REDUCE_SCATTER,
    ALLTOALL,
    GATHER,
    SCATTER,
    KINDS
};

static const struct {
    const char *name;
    bool reduces, rooted;
} kinds[KINDS] = {
    [ALLREDUCE] = {"allreduce", true, false},
    [BROADCAST] = {"broadcast", false, true},
    [REDUCE] = {"reduce", true, true},
    [ALLGATHER] = {"allgather", false, false},
    [REDUCE_SCATTER] = {"reduce_scatter", true, false},
    [ALLTOALL] = {"alltoall", false, false},
    [GATHER] = {"gather", false, true},
    [SCATTER] = {"scatter", false, true},
};

/* One call of one rank. */
struct trial {
    struct suite *suite;
    enum kind kind;
    trib_dtype dtype;
    trib_op op;
    size_t count;
    int rank, root;
    bool in_place;
    uint64_t seed;
};

/* Blocks of `count` elements that this rank sends and receives; 0: the pointer is not looked at. */
static size_t send_blocks(const struct trial *t)
{
    const size_t size = (size_t)t->suite->team.size;
    switch (t->kind) {
    case REDUCE_SCATTER:
    case ALLTOALL:
        return size;
    case BROADCAST:
        return t->rank == t->root ? 1 : 0;
    case SCATTER:
        return t->rank == t->root ? size : 0;
    default:
        return 1;
    }
}

static size_t recv_blocks(const struct trial *t)
{
    const size_t size = (size_t)t->suite->team.size;
    switch (t->kind) {
    case ALLGATHER:
    case ALLTOALL:
        return size;
    case REDUCE:
        return t->rank == t->root ? 1 : 0;
    case GATHER:
        return t->rank == t->root ? size : 0;
    default:
        return 1;
    }
}

static struct reference inputs_of(const struct trial *t)
{
    return (struct reference){
        .dtype = t->dtype, .op = t->op, .size = t->suite->team.size, .seed = t->seed};
}

/* What this rank should receive. */
static void expect(const struct trial *t, char *recv)
{
    const struct reference inputs = inputs_of(t);
    const int size = t->suite->team.size;
    const size_t block = t->count * trib_dtype_size(t->dtype);
    const size_t mine = (size_t)t->rank * t->count;
    switch (t->kind) {
    case ALLREDUCE:
    case REDUCE:
        reference_reduced(recv, &inputs, 0, t->count);
        return;
    case REDUCE_SCATTER:
        reference_reduced(recv, &inputs, mine, t->count);
        return;
    case BROADCAST:
        reference_input(recv, &inputs, t->root, 0, t->count);
        return;
    case SCATTER:
        reference_input(recv, &inputs, t->root, mine, t->count);
        return;
    case ALLGATHER:
    case GATHER:
        for (int i = 0; i < size; i++)
            reference_input(recv + (size_t)i * block, &inputs, i, 0, t->count);
        return;
    default: /* ALLTOALL */
        for (int i = 0; i < size; i++)
            reference_input(recv + (size_t)i * block, &inputs, i, mine, t->count);
        return;
    }
}

static trib_status call(const struct trial *t, const void *send, void *recv)
{
    trib_comm *comm = t->suite->team.comms[t->rank];
    trib_stream stream = t->suite->team.streams[t->rank];
    switch (t->kind) {
    case ALLREDUCE:
        return trib_allreduce(comm, send, recv, t->count, t->dtype, t->op, stream);
    case BROADCAST:
        return trib_broadcast(comm, send, recv, t->count, t->dtype, t->root, stream);
    case REDUCE:
        return trib_reduce(comm, send, recv, t->count, t->dtype, t->op, t->root, stream);
    case ALLGATHER:
        return trib_allgather(comm, send, recv, t->count, t->dtype, stream);
    case REDUCE_SCATTER:
        return trib_reduce_scatter(comm, send, recv, t->count, t->dtype, t->op, stream);
    case ALLTOALL:
        return trib_alltoall(comm, send, recv, t->count, t->dtype, stream);
    case GATHER:
        return trib_gather(comm, send, recv, t->count, t->dtype, t->root, stream);
    default:
        return trib_scatter(comm, send, recv, t->count, t->dtype, t->root, stream);
    }
}

static const char *describe(const struct trial *t, char *text, size_t size)
{
    (void)snprintf(text, size, "%s %s %s count %zu root %d %s, rank %d", kinds[t->kind].name,
                   trib_dtype_name(t->dtype), trib_op_name(t->op), t->count, t->root,
                   t->in_place ? "in place" : "out of place", t->rank);
    return text;
}

/* NCCL multiplies by a rounded 1 / size before it adds, which is exact for powers of two only. */
static bool is_inexact(const struct trial *t)
{
    const int size = t->suite->team.size;
    return t->op == TRIB_AVG && t->dtype <= TRIB_F64 && (size & (size - 1)) != 0 &&
           strcmp(t->suite->team.backend, "nccl") == 0;
}

/* Write the expected result to the image; where no result is exact, a close one found is
 * expected. */
static void expect_close(const struct trial *t, const struct guarded *buffer, size_t offset)
{
    const size_t bytes = recv_blocks(t) * t->count * trib_dtype_size(t->dtype);
    void *image = guarded_image(buffer, offset);
    const void *found = guarded_found(buffer, offset);
    if (bytes == 0)
        return;
    expect(t, image);
    if (is_inexact(t) &&
        reference_close(found, image, t->dtype, recv_blocks(t) * t->count, t->suite->team.size))
        memcpy(image, found, bytes);
}

static void fill(const struct trial *t, const struct guarded *buffer, size_t offset)
{
    const struct reference inputs = inputs_of(t);
    reference_input(guarded_image(buffer, offset), &inputs, t->rank, 0, send_blocks(t) * t->count);
}

static bool run(const struct trial *t, const void *send, void *recv)
{
    char text[160];
    return check_that(call(t, send, recv) == TRIB_OK, __FILE__, __LINE__, "%s: %s",
                      describe(t, text, sizeof text), trib_last_detail());
}

static bool out_of_place(const struct trial *t, struct guarded *send, struct guarded *recv)
{
    char text[160];
    const size_t block = t->count * trib_dtype_size(t->dtype);
    const size_t shift = t->count % 2 * trib_dtype_size(t->dtype);
    trib_stream stream = t->suite->team.streams[t->rank];
    guarded_reset(send, send_blocks(t) * block, shift);
    guarded_reset(recv, recv_blocks(t) * block, 0);
    fill(t, send, 0);
    const bool called = guarded_push(send, stream) && guarded_push(recv, stream) &&
                        run(t, send_blocks(t) * block == 0 ? NULL : guarded_data(send, 0),
                            recv_blocks(t) * block == 0 ? NULL : guarded_data(recv, 0));
    if (!called || !guarded_pull(send, stream) || !guarded_pull(recv, stream) ||
        !CHECK_OK(trib_stream_wait(t->suite->team.devices[t->rank], stream)))
        return false;
    expect_close(t, recv, 0);
    return backend_compare(t->suite, t->rank, send, recv, describe(t, text, sizeof text));
}

static bool in_place(const struct trial *t, struct guarded *both)
{
    char text[160];
    const size_t block = t->count * trib_dtype_size(t->dtype);
    const size_t sent = send_blocks(t), received = recv_blocks(t);
    const size_t own = (size_t)t->rank * block;
    const size_t send_at = received > sent && received > 1 ? own : 0;
    const size_t recv_at = sent > received && sent > 1 ? own : 0;
    trib_stream stream = t->suite->team.streams[t->rank];
    guarded_reset(both, (sent > received ? sent : received) * block,
                  t->count % 2 * trib_dtype_size(t->dtype));
    fill(t, both, send_at);
    char *data = guarded_data(both, 0);
    if (!guarded_push(both, stream) || !run(t, data + send_at, data + recv_at) ||
        !guarded_pull(both, stream) ||
        !CHECK_OK(trib_stream_wait(t->suite->team.devices[t->rank], stream)))
        return false;
    expect_close(t, both, recv_at);
    return backend_compare(t->suite, t->rank, both, NULL, describe(t, text, sizeof text));
}

struct round {
    struct suite *suite;
    enum kind kind;
    trib_dtype dtype;
};

static bool try_trial(struct trial *t, struct guarded *send, struct guarded *recv)
{
    t->in_place = false;
    bool good = out_of_place(t, send, recv);
    if (good) {
        t->in_place = true;
        t->seed++;
        good = in_place(t, send);
        t->seed--;
    }
    return backend_go_on(t->suite, t->rank, good);
}

static bool try_roots(struct trial *t, int turn, struct guarded *send, struct guarded *recv)
{
    const int roots = kinds[t->kind].rooted ? t->suite->team.size : 1;
    bool good = true;
    for (t->root = 0; t->root < roots && good; t->root++, t->seed += 2)
        if (backend_root(t->suite, t->root, turn))
            good = try_trial(t, send, recv);
    return good;
}

static void round_of_rank(int rank, int size, void *argument)
{
    const struct round *round = argument;
    const struct counts counts = backend_counts(round->suite, round->dtype);
    const size_t capacity = counts.at[counts.n - 1] * (size_t)size * trib_dtype_size(round->dtype);
    const trib_op first = kinds[round->kind].reduces ? TRIB_SUM : REFERENCE_MOVED;
    const trib_op last = kinds[round->kind].reduces ? TRIB_AVG : REFERENCE_MOVED;
    struct trial trial = {.suite = round->suite,
                          .kind = round->kind,
                          .dtype = round->dtype,
                          .rank = rank,
                          .seed = round->suite->seed};
    struct guarded send, recv;
    bool good = guarded_create(&send, round->suite->team.devices[rank], capacity);
    good = guarded_create(&recv, round->suite->team.devices[rank], capacity) && good;
    int turn = 0;
    for (trial.op = first; trial.op <= last; trial.op++)
        for (size_t i = 0; i < counts.n && good; i++) {
            trial.count = counts.at[i];
            good = try_roots(&trial, turn++, &send, &recv);
        }
    guarded_destroy(&send);
    guarded_destroy(&recv);
}

void backend_collectives(struct suite *suite)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++) {
            if (!backend_dtype(suite, dtype))
                continue;
            struct round round = {suite, (enum kind)kind, dtype};
            check_begin("%s, %d ranks by %s: %s of %s", suite->team.backend, suite->team.size,
                        suite->how, kinds[kind].name, trib_dtype_name(dtype));
            check_ranks(suite->team.size, round_of_rank, &round);
            suite->seed += 10000;
            check_end();
        }
}
