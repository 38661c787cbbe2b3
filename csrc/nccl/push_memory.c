/* The memory of push on the devices of the ranks: how large it is, and when it is freed. */
#include <inttypes.h>
#include <stdlib.h>

#include "csrc/base/debug.h"
#include "csrc/base/environment.h"
#include "csrc/base/log.h"
#include "csrc/base/size.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/push_inside.h"

enum { CHUNKS_A_KIB = 1024 / TRI_PUSH_CHUNK };

bool tri_nccl_push_forbidden(void)
{
    return tri_environment_asks("NCCL_P2P_DISABLE");
}

/* ------------------------------------------------------------------------------------- what fits */

/* In KiB. Measured over NVLink with 2 to 4 GPUs; the rest is estimates that err towards NCCL. */
static struct tri_nccl_push_most ahead_kib(int32_t size, bool nvlink)
{
    static const struct tri_nccl_push_most by_size[TRI_NCCL_MEASURED + 1] = {
        [2] = {768, 2048, 2048}, [3] = {384, 8192, 512}, [4] = {256, 8192, 512}};
    if (!nvlink)
        return (struct tri_nccl_push_most){64, 64, 64};
    return size <= TRI_NCCL_MEASURED ? by_size[size] : (struct tri_nccl_push_most){128, 512, 256};
}

/* The largest slot that any call needs, in chunks. Two shots take two shares of it. */
static size_t enough_chunks(const struct tri_nccl_push_most *most, int32_t size)
{
    const size_t share = (most->two_shot + (size_t)size - 1) / (size_t)size;
    const size_t others = most->others / tri_nccl_push_counted(size);
    return tri_largest(tri_largest(most->one_shot, others), 2 * share);
}

int32_t tri_nccl_multiprocessors(int32_t device)
{
    int found = 0;
    return cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device) == cudaSuccess
               ? found
               : 0;
}

size_t tri_nccl_push_lay_out(struct tri_nccl_push *push, size_t budget)
{
    const size_t granularity = push->granularity;
    const size_t lanes_bytes = TRI_NCCL_LANES * tri_push_scratch_bytes(push->size, 1);
    const size_t fits = budget / granularity * granularity / lanes_bytes;
    const struct tri_nccl_push_most kib = ahead_kib(push->size, push->nvlink);
    struct tri_nccl_push_most *most = &push->most;
    most->one_shot = kib.one_shot * CHUNKS_A_KIB;
    most->two_shot = kib.two_shot * CHUNKS_A_KIB;
    most->others = kib.others * CHUNKS_A_KIB;
    push->capacity = tri_least(fits, enough_chunks(most, push->size));
    most->one_shot = tri_least(most->one_shot, push->capacity);
    return tri_round_up(push->capacity * lanes_bytes, granularity);
}

/* ---------------------------------------------------------------------------------------- setup */

bool tri_nccl_push_switch(const struct tri_nccl_push_ranks *ranks, int32_t rank)
{
    return tri_nccl_switch_device(ranks->guard, ranks->devices[rank]) == TRIB_OK;
}

cudaError_t tri_nccl_push_alloc_own(struct tri_nccl_push *push, int32_t rank)
{
    return cudaMalloc((void **)&push->own[rank], TRI_NCCL_LANES * sizeof(struct tri_nccl_push_own));
}

cudaError_t tri_nccl_push_empty(const struct tri_nccl_push *push,
                                const struct tri_nccl_push_ranks *ranks)
{
    cudaError_t error = cudaSuccess;
    for (int32_t i = 0; i < push->size && error == cudaSuccess; i++) {
        if (ranks->of[i] == NULL)
            continue;
        if (!tri_nccl_push_switch(ranks, i))
            return cudaErrorUnknown;
        const cudaStream_t stream = ranks->of[i]->stream;
        error = cudaMemsetAsync(tri_nccl_push_scratch(push, i, TRI_NCCL_RUNS), TRI_PUSH_EMPTY_BYTE,
                                push->scratch[i].bytes, stream);
        if (error == cudaSuccess)
            error = cudaMemsetAsync(push->own[i], 0, TRI_NCCL_LANES * sizeof *push->own[i], stream);
        error = error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
    }
    return error;
}

static cudaError_t make_orders(const struct tri_nccl_push *push,
                               const struct tri_nccl_push_ranks *ranks)
{
    cudaError_t error = cudaSuccess;
    for (int32_t i = 0; i < push->size && error == cudaSuccess; i++)
        if (ranks->of[i] != NULL)
            error = tri_nccl_push_switch(ranks, i) ? tri_nccl_order_create(&ranks->of[i]->order)
                                                   : cudaErrorUnknown;
    return error;
}

const char *tri_nccl_push_prove(const struct tri_nccl_push *push,
                                const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag)
{
    const char *why = tri_nccl_push_try(push, ranks, tri_nccl_push_launch, push, abort_flag);
    if (why == NULL && make_orders(push, ranks) != cudaSuccess)
        why = "CUDA made no events";
    return why;
}

static uint64_t bytes_of(const struct tri_nccl_push *push, int32_t rank)
{
    return push->scratch[rank].bytes + TRI_NCCL_LANES * sizeof *push->own[rank] +
           (push->pull != NULL ? TRI_NCCL_PULL_BYTES : 0);
}

uint64_t tri_nccl_push_bytes(const struct tri_transport *transport)
{
    const uint64_t symmetric = tri_symmetric_bytes(transport->symmetric);
    return symmetric + (transport->push == NULL ? 0 : bytes_of(transport->push, transport->rank));
}

void tri_nccl_push_log(const struct tri_nccl_push *push)
{
    if (tri_debug())
        tri_log(TRIB_LOG_INFO,
                "allocated %" PRIu64
                " bytes on the device of each of %d ranks, by which they reach each other",
                bytes_of(push, 0), (int)push->size);
}

/* -------------------------------------------------------------------------------------- the end */

void tri_nccl_push_release(struct tri_nccl_push *push)
{
    tri_nccl_pull_free(push->pull);
    for (int32_t i = 0; i < push->size; i++) {
        tri_nccl_peer_free(&push->scratch[i]);
        if (push->own[i] != NULL)
            (void)cudaFree(push->own[i]);
    }
}

/* False: nobody knows. */
static bool wait_for_rank(const struct tri_transport *rank, struct tri_nccl_device_guard *guard)
{
    return !rank->order.lost && tri_nccl_switch_device(guard, rank->device) == TRIB_OK &&
           tri_nccl_order_wait(&rank->order, rank->stream) == cudaSuccess &&
           cudaStreamSynchronize(rank->stream) == cudaSuccess;
}

/* Its kernels may still run: they read the abort flag, too. */
static void keep_memory(const struct tri_nccl_local *local)
{
    tri_nccl_pull_keep(local->push->pull);
    tri_abort_keep_flag(local->state);
    tri_log(TRIB_LOG_WARN,
            "memory by which %d ranks reach each other is never freed: CUDA does not tell whether "
            "their calls have ended",
            (int)local->ranks->size);
}

void tri_nccl_push_free(struct tri_nccl_local *local)
{
    struct tri_nccl_device_guard guard;
    struct tri_nccl_push *push = local->push;
    if (push == NULL && !tri_nccl_has_symmetric(local))
        return;
    bool ended = tri_nccl_push_device(&guard, local->ranks->device) == TRIB_OK;
    const bool pushed = ended;
    for (const struct tri_transport *rank = local->ranks; rank != NULL && ended; rank = rank->next)
        ended = wait_for_rank(rank, &guard);
    local->kept = !ended;
    if (push != NULL && ended)
        tri_nccl_push_release(push);
    else if (push != NULL)
        keep_memory(local);
    if (pushed)
        tri_nccl_pop_device(&guard);
    free(push);
    local->push = NULL;
}
