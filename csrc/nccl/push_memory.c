/* The memory of push on the devices of the ranks: how large it is, and when it is freed. */
#include <inttypes.h>
#include <stdlib.h>

#include "csrc/base/debug.h"
#include "csrc/base/environment.h"
#include "csrc/base/log.h"
#include "csrc/base/size.h"
#include "csrc/nccl/limits.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/push_inside.h"

enum { CHUNKS_A_KIB = 1024 / TRI_PUSH_CHUNK };

const char *tri_nccl_push_refusal(const struct tri_nccl_local *local)
{
    if (local->key.adopted != 0 || local->key.parent_adopted != 0)
        return "the communicator is the caller's, or of one that is";
    return tri_environment_asks("NCCL_P2P_DISABLE") ? "NCCL_P2P_DISABLE is set" : NULL;
}

/* ------------------------------------------------------------------------------------- what fits */

/* Chunks that a rank sends to each peer of a call whose longer buffer has so many KiB. */
static size_t chunks_of(enum tri_kind kind, int32_t size, uint32_t kib)
{
    const enum tri_push_kind as = tri_nccl_push_kind(kind);
    const size_t parts = tri_push_scatters(as) || tri_push_gathers(as) ? (size_t)size : 1;
    const size_t bytes = parts * tri_push_payload(tri_push_copies(as) ? TRIB_U8 : TRIB_F32);
    return ((size_t)kib * 1024 + bytes - 1) / bytes;
}

static struct tri_nccl_push_most measured(int32_t size)
{
    const uint32_t one_shot = tri_nccl_limits[TRI_ALLREDUCE][size].one_shot;
    struct tri_nccl_push_most most = {.one_shot = chunks_of(TRI_ALLREDUCE, size, one_shot)};
    for (int kind = 0; kind < TRI_KINDS; kind++)
        most.of[kind] = chunks_of((enum tri_kind)kind, size, tri_nccl_limits[kind][size].push);
    return most;
}

/* Over PCI Express, and of more ranks, nobody has measured anything: estimates that err towards NCCL. Of kinds
 * other than allreduces of many ranks what one sends to all peers counts, for NCCL sends no more. */
static struct tri_nccl_push_most estimated(int32_t size, bool nvlink)
{
    const size_t counted = size > TRI_NCCL_MEASURED ? (size_t)size - 1 : 1;
    const size_t one_shot = nvlink ? 128 : 64, two_shot = nvlink ? 512 : 64;
    const size_t others = nvlink ? 256 : 64;
    struct tri_nccl_push_most most = {.one_shot = one_shot * CHUNKS_A_KIB};
    for (int kind = 0; kind < TRI_KINDS; kind++)
        most.of[kind] = others * CHUNKS_A_KIB / counted;
    most.of[TRI_ALLREDUCE] = two_shot * CHUNKS_A_KIB;
    return most;
}

/* The largest slot that any call needs, in chunks. Two shots take two shares of it. */
static size_t enough_chunks(const struct tri_nccl_push_most *most, int32_t size)
{
    const size_t share = (most->of[TRI_ALLREDUCE] + (size_t)size - 1) / (size_t)size;
    size_t enough = tri_largest(most->one_shot, 2 * share);
    for (int kind = 0; kind < TRI_KINDS; kind++)
        if (kind != TRI_ALLREDUCE)
            enough = tri_largest(enough, most->of[kind]);
    return enough;
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
    const bool known = push->nvlink && push->size <= TRI_NCCL_MEASURED;
    push->most = known ? measured(push->size) : estimated(push->size, push->nvlink);
    push->capacity = tri_least(fits, enough_chunks(&push->most, push->size));
    push->most.one_shot = tri_least(push->most.one_shot, push->capacity);
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

void tri_nccl_push_give(struct tri_transport *transport, const struct tri_nccl_push *push)
{
    transport->push = push;
    transport->word = push == NULL ? NULL : push->own[transport->rank]->sent;
}

void *tri_nccl_push_word(const struct tri_transport *transport)
{
    return transport->word;
}

uint64_t tri_nccl_push_bytes(const struct tri_transport *transport)
{
    const uint64_t symmetric = tri_symmetric_bytes(transport->symmetric);
    return symmetric + (transport->push == NULL ? 0 : bytes_of(transport->push, transport->rank));
}

uint32_t tri_nccl_push_lacks(const struct tri_transport *transport)
{
    const struct tri_nccl_push *push = transport->push;
    const uint32_t large = push == NULL || push->pull == NULL ? TRIB_CAN_PEERS_LARGE : 0;
    return large | (push == NULL ? TRIB_CAN_PEERS : 0);
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
