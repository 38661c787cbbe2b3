/* Collectives, composed operations, messages and batches. */
#include "tests/injection/programs.h"

enum { N = 8 }; /* elements of a block */

/* data[row][i] = (rank + 1) * (i + 1) */
static void fill(struct rank *rank, int row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rank->data[row][i] = (float)((rank->rank + 1) * ((int)i + 1));
}

/* 1 + 2 + ... + size */
static float sum(const struct rank *rank)
{
    return (float)(rank->size * (rank->size + 1) / 2);
}

static void reductions(struct rank *rank)
{
    float (*data)[ROW] = rank->data;
    const int root = rank->size - 1;
    const size_t all = N * (size_t)rank->size;
    fill(rank, 0, all);
    if (!WENT(rank,
              trib_allreduce(rank->comm, data[0], data[1], N, TRIB_F32, TRIB_SUM, rank->stream)) ||
        !WENT(rank, trib_reduce(rank->comm, data[0], data[2], N, TRIB_F32, TRIB_SUM, root,
                                rank->stream)) ||
        !WENT(rank, trib_reduce_scatter(rank->comm, data[0], data[3], N, TRIB_F32, TRIB_SUM,
                                        rank->stream)) ||
        !WENT(rank, trib_allreduce(rank->comm, data[0], data[0], all, TRIB_F32, TRIB_SUM,
                                   rank->stream)) ||
        !settled(rank))
        return;
    const float s = sum(rank);
    CHECK(found(rank, 1, N, s, s));
    CHECK(found(rank, 2, N, rank->rank == root ? s : 0, rank->rank == root ? s : 0));
    CHECK(found(rank, 3, N, s * (float)(rank->rank * N + 1), s));
    CHECK(found(rank, 0, all, s, s));
}

static void copies(struct rank *rank)
{
    float (*data)[ROW] = rank->data;
    fill(rank, 0, N);
    if (!WENT(rank, trib_broadcast(rank->comm, data[0], data[1], N, TRIB_F32, 0, rank->stream)) ||
        !WENT(rank, trib_allgather(rank->comm, data[0], data[2], N, TRIB_F32, rank->stream)) ||
        !WENT(rank, trib_barrier(rank->comm, rank->stream)) ||
        !WENT(rank, trib_comm_wait(rank->comm, rank->stream, TRIB_NO_TIMEOUT)) || !settled(rank))
        return;
    CHECK(found(rank, 1, N, 1, 1));
    for (int r = 0; r < rank->size; r++)
        for (int i = 0; i < N; i++)
            CHECK(data[2][r * N + i] == (float)((r + 1) * (i + 1)));
}

/* Block r of the result is block `rank` of what rank r sent. */
static void check_transposed(const struct rank *rank, const float *data)
{
    for (int r = 0; r < rank->size; r++)
        for (int i = 0; i < N; i++)
            CHECK(data[r * N + i] == (float)((r + 1) * (rank->rank * N + i + 1)));
}

static void composed(struct rank *rank)
{
    float (*data)[ROW] = rank->data;
    const size_t all = N * (size_t)rank->size;
    fill(rank, 0, all);
    fill(rank, 1, all);
    if (!WENT(rank, trib_alltoall(rank->comm, data[0], data[2], N, TRIB_F32, rank->stream)) ||
        !WENT(rank, trib_alltoall(rank->comm, data[1], data[1], N, TRIB_F32, rank->stream)) ||
        !WENT(rank, trib_gather(rank->comm, data[0], data[3], N, TRIB_F32, 0, rank->stream)) ||
        !WENT(rank, trib_scatter(rank->comm, data[0], data[4], N, TRIB_F32, 0, rank->stream)) ||
        !settled(rank))
        return;
    check_transposed(rank, data[2]);
    check_transposed(rank, data[1]);
    for (int r = 0; rank->rank == 0 && r < rank->size; r++)
        CHECK(data[3][r * N] == (float)(r + 1));
    CHECK(found(rank, 4, N, (float)(rank->rank * N + 1), 1));
}

static void vectored(struct rank *rank)
{
    static const size_t counts[] = {1, 3, 2}, offsets[] = {0, 8, 16};
    float (*data)[ROW] = rank->data;
    size_t own[RANKS_MAX];
    for (int i = 0; i < RANKS_MAX; i++)
        own[i] = counts[rank->rank];
    fill(rank, 0, ROW);
    if (!WENT(rank, trib_allgatherv(rank->comm, data[0], data[1], counts, offsets, TRIB_F32,
                                    rank->stream)) ||
        !WENT(rank, trib_alltoallv(rank->comm, data[0], counts, offsets, data[2], own, offsets,
                                   TRIB_F32, rank->stream)) ||
        !settled(rank))
        return;
    for (int r = 0; r < rank->size; r++) {
        for (size_t i = 0; i < counts[r]; i++)
            CHECK(data[1][offsets[r] + i] == (float)((r + 1) * ((int)i + 1)));
        for (size_t i = 0; i < counts[rank->rank]; i++)
            CHECK(data[2][offsets[r] + i] ==
                  (float)((r + 1) * ((int)(offsets[rank->rank] + i) + 1)));
    }
}

/* Along a chain, one message after the other; then around a ring, in a batch. */
static void messages(struct rank *rank)
{
    float (*data)[ROW] = rank->data;
    const int next = (rank->rank + 1) % rank->size,
              last = (rank->rank + rank->size - 1) % rank->size;
    fill(rank, 0, N);
    if (rank->rank > 0 &&
        !WENT(rank, trib_recv(rank->comm, data[0], N, TRIB_F32, last, rank->stream)))
        return;
    if (rank->rank + 1 < rank->size &&
        !WENT(rank, trib_send(rank->comm, data[0], N, TRIB_F32, next, rank->stream)))
        return;
    data[1][0] = (float)rank->rank;
    if (!WENT(rank, trib_batch_begin(rank->comm)))
        return;
    const bool sent = WENT(rank, trib_send(rank->comm, data[1], 1, TRIB_F32, next, rank->stream));
    const bool received =
        WENT(rank, trib_recv(rank->comm, data[2], 1, TRIB_F32, last, rank->stream));
    if (!WENT(rank, trib_batch_end(rank->comm)) || !settled(rank))
        return;
    CHECK(sent && received); /* a batch does not end well without them */
    CHECK(found(rank, 0, N, 1, 1));
    CHECK(data[2][0] == (float)last);
}

/* More calls, copies and messages than a batch has memory for at first. */
static void batch(struct rank *rank)
{
    enum { CALLS = 10 };
    float (*data)[ROW] = rank->data;
    bool good = true;
    fill(rank, 0, N);
    fill(rank, 1, N * (size_t)rank->size);
    fill(rank, 2, N * (size_t)rank->size);
    if (!WENT(rank, trib_batch_begin(rank->comm)))
        return;
    for (size_t i = 0; i < CALLS && good; i++)
        good = WENT(rank, trib_allreduce(rank->comm, data[0], data[3] + i * N, N, TRIB_F32,
                                         TRIB_SUM, rank->stream));
    for (int row = 1; row <= 2 && good; row++)
        good =
            WENT(rank, trib_alltoall(rank->comm, data[row], data[row], N, TRIB_F32, rank->stream));
    good = WENT(rank, trib_batch_end(rank->comm)) && good;
    if (!settled(rank) || !good)
        return;
    for (size_t i = 0; i < CALLS; i++)
        for (int j = 0; j < N; j++)
            CHECK(data[3][i * N + (size_t)j] == sum(rank) * (float)(j + 1));
    check_transposed(rank, data[1]);
    check_transposed(rank, data[2]);
}

/* Each rank's data times its number, from the host and from device memory. */
static void factors(struct rank *rank)
{
    float (*data)[ROW] = rank->data;
    double *wide = (double *)(void *)data[2];
    trib_call_options host = TRIB_CALL_OPTIONS_INIT, device = TRIB_CALL_OPTIONS_INIT;
    host.flags = device.flags = TRIB_CALL_FACTOR;
    host.factor = rank->rank + 1;
    device.device_factor = data[4];
    data[4][0] = (float)(rank->rank + 1);
    for (int i = 0; i < N; i++)
        data[0][i] = wide[i] = i + 1;
    if (!WENT(rank, trib_allreduce_with(rank->comm, data[0], data[1], N, TRIB_F32, TRIB_SUM, &host,
                                        rank->stream)) ||
        !WENT(rank, trib_allreduce_with(rank->comm, wide, wide, N, TRIB_F64, TRIB_SUM, &device,
                                        rank->stream)) ||
        !settled(rank))
        return;
    CHECK(found(rank, 1, N, sum(rank), sum(rank)));
    for (int i = 0; i < N; i++)
        CHECK(wide[i] == (double)sum(rank) * (i + 1));
}

/* With TRIB_MATCH: the ranks compare each call. */
static void matched(struct rank *rank)
{
    float (*data)[ROW] = rank->data;
    const trib_tensor list[] = {{data[2], N, TRIB_F32, 0}};
    fill(rank, 0, N);
    fill(rank, 2, N);
    if (!WENT(rank,
              trib_allreduce(rank->comm, data[0], data[1], N, TRIB_F32, TRIB_SUM, rank->stream)) ||
        !WENT(rank, trib_barrier(rank->comm, rank->stream)) ||
        !WENT(rank, trib_allreduce_list(rank->comm, list, 1, TRIB_SUM, rank->stream)) ||
        !WENT(rank, trib_batch_begin(rank->comm)))
        return;
    const bool good =
        WENT(rank, trib_broadcast(rank->comm, data[0], data[3], N, TRIB_F32, 0, rank->stream));
    if (!WENT(rank, trib_batch_end(rank->comm)) || !settled(rank) || !good)
        return;
    CHECK(found(rank, 1, N, sum(rank), sum(rank)));
    CHECK(found(rank, 2, N, sum(rank), sum(rank)));
    CHECK(found(rank, 3, N, 1, 1));
}

const struct program programs_dense[] = {
    {.name = "reductions", .run = reductions},
    {.name = "copies", .run = copies},
    {.name = "composed operations", .run = composed},
    {.name = "vectored operations", .run = vectored},
    {.name = "messages", .run = messages},
    {.name = "a batch", .run = batch},
    {.name = "factors", .run = factors},
    {.name = "matched calls", .run = matched, .options = TRIB_MATCH},
    {.name = NULL},
};
