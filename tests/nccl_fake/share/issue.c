/* Calls of ranks, and what their results should be. */
#include <string.h>

#include "csrc/base/abort.h"
#include "tests/nccl_fake/share/fixture.h"

trib_status share_call(const struct share_ranks *ranks, int rank, enum tri_kind kind, size_t count,
                       trib_stream stream)
{
    struct tri_transport *transport = ranks->of[rank];
    struct trib_abort *state = transports()->abort_state(transport);
    struct tri_call call = one_call(transport, kind, (void *)ranks->data[rank],
                                    (void *)(ranks->data[rank] + SHARE_HALF), stream);
    call.count = count;
    call.peer = ranks->size - 1;
    if (!tri_abort_register(state))
        return tri_abort_status(state);
    const trib_status status = transports()->collective(&call, 1);
    tri_abort_unregister(state);
    return status;
}

/* Sums of eight of them are exact. */
static float number(int rank, size_t i)
{
    return (float)((rank + 1) * ((int)(i % 7) + 1));
}

void share_fill(const struct share_ranks *ranks)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        float *send = (float *)(void *)ranks->data[rank];
        for (size_t i = 0; i < SHARE_HALF / sizeof *send; i++)
            send[i] = number(rank, i);
        memset(ranks->data[rank] + SHARE_HALF, 0, SHARE_HALF);
    }
}

/* Element i of what the rank receives. */
static float wanted(const struct share_ranks *ranks, int rank, enum tri_kind kind, size_t count,
                    size_t i)
{
    float sum = 0;
    if (kind == TRI_BROADCAST)
        return number(ranks->size - 1, i);
    if (kind == TRI_ALLGATHER)
        return number((int)(i / count), i % count);
    for (int other = 0; other < ranks->size; other++)
        sum += number(other, kind == TRI_REDUCE_SCATTER ? (size_t)rank * count + i : i);
    return sum;
}

bool share_is_right(const struct share_ranks *ranks, enum tri_kind kind, size_t count)
{
    const size_t n = count * (kind == TRI_ALLGATHER ? (size_t)ranks->size : 1);
    for (int rank = 0; rank < ranks->size; rank++) {
        const float *recv = (const float *)(const void *)(ranks->data[rank] + SHARE_HALF);
        for (size_t i = 0; i < n; i++)
            if (recv[i] != wanted(ranks, rank, kind, count, i))
                return CHECK_MSG(false, "kind %d, rank %d, element %zu of %zu", (int)kind, rank, i,
                                 n);
    }
    return true;
}

bool share_wait(const struct share_ranks *ranks, int rank)
{
    return CHECK_OK(devices()->stream_wait(ranks->devices[rank], ranks->streams[rank]));
}

bool share_is_done(const struct share_ranks *ranks, int rank)
{
    bool done = false;
    CHECK_OK(devices()->stream_query(ranks->devices[rank], ranks->streams[rank], &done));
    return done;
}

bool share_works(const struct share_ranks *ranks, enum tri_kind kind)
{
    bool good = true;
    share_fill(ranks);
    for (int rank = 0; rank < ranks->size; rank++)
        good = CHECK_OK(share_call(ranks, rank, kind, SHARE_N, ranks->streams[rank])) && good;
    for (int rank = 0; rank < ranks->size && good; rank++)
        good = share_wait(ranks, rank);
    return good && share_is_right(ranks, kind, SHARE_N);
}

struct by_nccl {
    struct share_ranks *ranks;
    size_t count;
};

static void call_rank(int rank, int size, void *argument)
{
    const struct by_nccl *asked = argument;
    const struct share_ranks *ranks = asked->ranks;
    (void)size;
    CHECK_OK(share_call(ranks, rank, TRI_ALLREDUCE, asked->count, ranks->streams[rank]));
    (void)share_wait(ranks, rank);
}

void share_call_nccl(struct share_ranks *ranks, size_t count)
{
    struct by_nccl asked = {ranks, count};
    check_ranks(ranks->size, call_rank, &asked);
}

bool share_counts(struct share_ranks *ranks, long nccl, long pushes)
{
    return served_since(&ranks->served, nccl, pushes);
}

void share_serves_up_to(struct share_ranks *ranks, size_t count)
{
    (void)share_counts(ranks, -1, -1);
    CHECK(share_works(ranks, TRI_ALLREDUCE) && share_counts(ranks, 0, 1));
    share_call_nccl(ranks, count + 1);
    CHECK(share_counts(ranks, ranks->size, 0));
}

bool share_has_memory(const struct share_ranks *ranks, bool some)
{
    bool good = true;
    for (int rank = 0; rank < ranks->size; rank++) {
        const uint64_t bytes = transports()->peer_bytes(ranks->of[rank]);
        good = CHECK_MSG((bytes > 0) == some, "rank %d has %lu bytes for the others", rank,
                         (unsigned long)bytes) &&
               good;
    }
    return good;
}
