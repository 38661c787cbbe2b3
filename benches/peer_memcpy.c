/* The peer on host: memcpy of as many bytes as the rank's larger buffer holds, in the stream. */
#include <stdlib.h>
#include <string.h>

#include "benches/collective.h"
#include "benches/peer.h"

/* A rank's source, destination and size of the copy that is queued. Written between waits only. */
struct copy {
    char *dst, *src;
    size_t bytes, capacity;
};

static void *open_peer(const struct bench *bench)
{
    (void)bench;
    return calloc(BENCH_MAX_RANKS, sizeof(struct copy));
}

static void close_peer(void *state)
{
    struct copy *copies = state;
    for (int rank = 0; rank < BENCH_MAX_RANKS; rank++) {
        free(copies[rank].dst);
        free(copies[rank].src);
    }
    free(copies);
}

static void do_copy(void *argument)
{
    const struct copy *copy = argument;
    memcpy(copy->dst, copy->src, copy->bytes);
}

/* Make room for `bytes`. Changes what is queued, so the stream must be empty. */
static void resize(struct copy *copy, size_t bytes)
{
    if (bytes > copy->capacity) {
        free(copy->dst);
        free(copy->src);
        copy->dst = bench_must(malloc(bytes));
        copy->src = bench_must(malloc(bytes));
        memset(copy->src, 1, bytes);
        memset(copy->dst, 2, bytes);
        copy->capacity = bytes;
    }
    copy->bytes = bytes;
}

/* The first call of a row is in the warm-up and finds the stream empty. */
static void run_one(const struct bench *bench, int rank, const struct bench_call *call)
{
    const size_t send = call->collective->send_elements(call->count, bench->ranks);
    const size_t recv = call->collective->recv_elements(call->count, bench->ranks);
    const size_t bytes = (send > recv ? send : recv) * trib_dtype_size(call->dtype);
    struct copy *copy = (struct copy *)bench->peer_state + rank;
    if (copy->bytes != bytes) {
        BENCH_OK(trib_stream_wait(bench->device[rank], bench->stream[rank]));
        resize(copy, bytes);
    }
    BENCH_OK(trib_stream_submit(bench->device[rank], do_copy, copy, bench->stream[rank]));
}

static void run(const struct bench *bench, int rank, const struct bench_call *calls)
{
    if (rank != BENCH_ALL)
        run_one(bench, rank, &calls[rank]);
    else
        for (int i = 0; i < bench->ranks; i++)
            run_one(bench, i, &calls[i]);
}

const struct bench_peer bench_peer_memcpy = {"memcpy", open_peer, close_peer, run, NULL};
