/* Small calls by the push kernels: which ones, and the memory for them. */
#include "csrc/nccl/push.h"

#include <inttypes.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/debug.h"
#include "csrc/base/log.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/push_inside.h"
#include "kernels/cuda/kernels_cuda.h"

enum { NAP_NS = 50000, KIB = 1024 };

/* ----------------------------------------------------------------------------------------- calls */

/* Of other kinds it means nothing. A copy is of bytes. */
static struct tri_push job_of(const struct tri_call *call)
{
    static const enum tri_push_kind kinds[TRI_KINDS] = {
        [TRI_ALLREDUCE] = TRI_PUSH_ALLREDUCE,
        [TRI_REDUCE_SCATTER] = TRI_PUSH_REDUCE_SCATTER,
        [TRI_ALLGATHER] = TRI_PUSH_ALLGATHER,
        [TRI_BROADCAST] = TRI_PUSH_BROADCAST,
    };
    const enum tri_push_kind kind = kinds[call->kind];
    const bool copies = tri_push_copies(kind);
    return (struct tri_push){.count = call->count * (copies ? trib_dtype_size(call->dtype) : 1),
                             .dtype = copies ? TRIB_U8 : call->dtype,
                             .op = call->op,
                             .kind = kind,
                             .root = call->peer};
}

/* In chunks, what a call has of what push is for (ahead_bytes). */
static size_t weight_of(const struct tri_call *call, int32_t size)
{
    const struct tri_push job = job_of(call);
    return tri_push_chunks(job.count, job.dtype) *
           (call->kind == TRI_ALLREDUCE ? 1 : (size_t)size - 1);
}

static bool has_kernel(const struct tri_call *call)
{
    enum {
        KINDS = 1 << TRI_ALLREDUCE | 1 << TRI_REDUCE_SCATTER | 1 << TRI_ALLGATHER |
        1 << TRI_BROADCAST
    };
    return (KINDS >> call->kind & 1) != 0 && !call->scaled;
}

bool tri_nccl_push_serves(const struct tri_call *call)
{
    const struct tri_nccl_push *push = call->transport->push;
    return push != NULL && has_kernel(call) && call->count > 0 &&
           call->count <= push->capacity * TRI_PUSH_CHUNK &&
           weight_of(call, push->size) <= push->capacity;
}

void *tri_nccl_push_scratch(const struct tri_nccl_push *push, int32_t rank, enum tri_nccl_lane lane)
{
    const size_t bytes = tri_push_scratch_bytes(push->size, push->capacity);
    return (char *)(uintptr_t)push->scratch[rank].address + (size_t)lane * bytes; /* NOLINT */
}

trib_status tri_nccl_push_launch(const struct tri_nccl_push *push, int32_t rank,
                                 enum tri_nccl_lane lane, const struct tri_call *call,
                                 uint32_t *abort_flag, uint64_t patience_ns)
{
    const struct tri_push_rank here = {call->send, call->recv, &push->own[rank][lane].control,
                                       rank};
    struct tri_push job = job_of(call);
    job.here = &here;
    job.n = 1;
    job.size = push->size;
    job.capacity = push->capacity;
    job.abort_flag = abort_flag;
    job.patience_ns = patience_ns;
    for (int32_t i = 0; i < push->size; i++)
        job.scratch[i] = tri_nccl_push_scratch(push, i, lane);
    return tri_kernels_cuda.push(&job, call->stream);
}

/* Without patience: deadlines are the watchdog's, as for NCCL's kernels. */
trib_status tri_nccl_push_call(const struct tri_call *call)
{
    const struct tri_transport *transport = call->transport;
    const enum tri_nccl_lane lane =
        transport->order.begun.capture == 0 ? TRI_NCCL_RUNS : TRI_NCCL_CAPTURED;
    if (tri_nccl_push_launch(transport->push, transport->rank, lane, call,
                             transport->local->abort_flag, 0) == TRIB_OK)
        return TRIB_OK;
    return tri_nccl_cuda_fail(cudaErrorLaunchFailure, tri_nccl_kind_name(call->kind),
                              transport->device);
}

/* ------------------------------------------------------------------------------------- what fits */

/* Up to how many bytes an allreduce by push is ahead of NCCL: a rank sends all of its part to each peer, so
 * the fewer the more there are. Of the other kinds it is what a rank sends in all, and a copy sends twice
 * its bytes. Allreduces are measured with 2 GPUs over NVLink; the rest is estimates that err towards NCCL. */
static size_t ahead_bytes(int32_t size, bool nvlink)
{
    if (!nvlink)
        return (size_t)64 * KIB;
    return size == 2 ? (size_t)2048 * KIB : size <= 4 ? (size_t)512 * KIB : (size_t)256 * KIB;
}

/* NVLink has atomic operations, PCI Express has none. */
static bool is_nvlink(int32_t from, int32_t to)
{
    int atomics = 0;
    return cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) ==
               cudaSuccess &&
           atomics != 0;
}

static bool reaches(int32_t from, int32_t to)
{
    int can = 0;
    return cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0;
}

/* Does `holds` hold from every device to every other one? */
static bool for_all_pairs(const int32_t *devices, int32_t n,
                          bool (*holds)(int32_t from, int32_t to))
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < n; j++)
            if (i != j && !holds(devices[i], devices[j]))
                return false;
    return true;
}

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Lay out scratch of at most `budget` bytes; returns its size, 0 if nothing fits. */
static size_t lay_out(struct tri_nccl_push *push, const int32_t *devices, size_t budget)
{
    size_t granularity = 1;
    for (int32_t i = 0; i < push->size; i++) {
        const size_t own = tri_nccl_peer_granularity(devices[i]);
        if (own == 0)
            return 0;
        granularity = own > granularity ? own : granularity;
    }
    const size_t lanes_bytes = TRI_NCCL_LANES * tri_push_scratch_bytes(push->size, 1);
    const size_t fits = budget / granularity * granularity / lanes_bytes;
    const size_t ahead =
        ahead_bytes(push->size, for_all_pairs(devices, push->size, is_nvlink)) / TRI_PUSH_CHUNK;
    push->capacity = fits < ahead ? fits : ahead;
    return round_up(push->capacity * lanes_bytes, granularity);
}

/* ---------------------------------------------------------------------------------------- setup */

bool tri_nccl_push_switch(const struct tri_nccl_push_ranks *ranks, int32_t rank)
{
    return tri_nccl_switch_device(ranks->guard, ranks->devices[rank]) == TRIB_OK;
}

/* Some device is current. */
static void free_memory(struct tri_nccl_push *push)
{
    tri_nccl_pull_free(push->pull);
    for (int32_t i = 0; i < push->size; i++) {
        tri_nccl_peer_free(&push->scratch[i]);
        if (push->own[i] != NULL)
            (void)cudaFree(push->own[i]);
    }
}

static bool allocate(struct tri_nccl_push *push, const struct tri_nccl_push_ranks *ranks,
                     size_t bytes)
{
    for (int32_t i = 0; i < push->size; i++)
        if (!tri_nccl_push_switch(ranks, i) ||
            cudaMalloc((void **)&push->own[i], TRI_NCCL_LANES * sizeof(struct tri_nccl_push_own)) !=
                cudaSuccess ||
            tri_nccl_peer_alloc(&push->scratch[i], ranks->devices, push->size, i, bytes) !=
                CUDA_SUCCESS)
            return false;
    return true;
}

/* Before the first call. */
static cudaError_t empty_scratch(const struct tri_nccl_push *push,
                                 const struct tri_nccl_push_ranks *ranks)
{
    cudaError_t error = cudaSuccess;
    for (int32_t i = 0; i < push->size && error == cudaSuccess; i++) {
        const cudaStream_t stream = ranks->of[i]->stream;
        if (!tri_nccl_push_switch(ranks, i))
            return cudaErrorUnknown;
        error = cudaMemsetAsync(tri_nccl_push_scratch(push, i, TRI_NCCL_RUNS), TRI_PUSH_EMPTY_BYTE,
                                push->scratch[i].bytes, stream);
        error = error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
    }
    return error;
}

static trib_status try_push(const void *push, int32_t rank, enum tri_nccl_lane lane,
                            const struct tri_call *call, uint32_t *abort_flag, uint64_t patience_ns)
{
    return tri_nccl_push_launch(push, rank, lane, call, abort_flag, patience_ns);
}

static cudaError_t make_orders(const struct tri_nccl_push_ranks *ranks, int32_t n)
{
    cudaError_t error = cudaSuccess;
    for (int32_t i = 0; i < n && error == cudaSuccess; i++)
        error = tri_nccl_push_switch(ranks, i) ? tri_nccl_order_create(&ranks->of[i]->order)
                                               : cudaErrorUnknown;
    return error;
}

/* NULL, or why there is none. */
static const char *make(struct tri_nccl_push *push, const struct tri_nccl_push_ranks *ranks,
                        size_t budget, uint32_t *abort_flag)
{
    if (!for_all_pairs(ranks->devices, push->size, reaches))
        return "its devices cannot access each other's memory";
    const size_t bytes = lay_out(push, ranks->devices, budget);
    if (bytes == 0)
        return "its devices have no memory of that kind, or `peer_bytes` is too small";
    if (!allocate(push, ranks, bytes))
        return "its devices had no memory for that";
    const cudaError_t error = empty_scratch(push, ranks);
    if (error != cudaSuccess)
        return cudaGetErrorString(error);
    const char *why = tri_nccl_push_try(push, ranks, try_push, push, abort_flag);
    if (why != NULL)
        return why;
    if (make_orders(ranks, push->size) != cudaSuccess)
        return "CUDA made no events";
    if (budget - bytes >= TRI_NCCL_PULL_BYTES)
        push->pull = tri_nccl_pull_make(
            push, ranks, for_all_pairs(ranks->devices, push->size, is_nvlink), abort_flag);
    return NULL;
}

static uint64_t bytes_of(const struct tri_nccl_push *push, int32_t rank)
{
    return push->scratch[rank].bytes + TRI_NCCL_LANES * sizeof *push->own[rank] +
           (push->pull != NULL ? TRI_NCCL_PULL_BYTES : 0);
}

uint64_t tri_nccl_push_bytes(const struct tri_transport *transport)
{
    return transport->push == NULL ? 0 : bytes_of(transport->push, transport->rank);
}

static void log_memory(const struct tri_nccl_push *push)
{
    if (tri_debug())
        tri_log(TRIB_LOG_INFO,
                "allocated %" PRIu64
                " bytes on the device of each of %d ranks, by which they reach each other",
                bytes_of(push, 0), (int)push->size);
}

/* All ranks have come, and none of them makes a call yet. */
static struct tri_nccl_push *set_up(int32_t size, const struct tri_nccl_push_ranks *ranks,
                                    size_t budget)
{
    struct tri_nccl_push *push = calloc(1, sizeof *push);
    void *flag = NULL;
    const char *why = "no memory";
    const enum cudaStreamCaptureMode before = tri_nccl_relax_capture();
    if (push != NULL && tri_nccl_alloc_pinned(&flag, sizeof(uint32_t)) == TRIB_OK) {
        push->size = size;
        why = make(push, ranks, budget, flag);
        if (why != NULL)
            free_memory(push);
    }
    tri_nccl_restore_capture(before);
    tri_nccl_free_pinned(flag);
    if (why == NULL) {
        log_memory(push);
        return push;
    }
    free(push);
    (void)cudaGetLastError();
    tri_log(TRIB_LOG_INFO, "NCCL serves all calls of a communicator of %d ranks: %s", (int)size,
            why);
    return NULL;
}

/* The same answer for all ranks: each asks when NCCL has connected all of them. Locked. */
static bool is_for(const struct tri_nccl_local *local, int32_t size)
{
    return size >= 2 && size <= TRI_PUSH_RANKS && local->joined == size &&
           local->key.adopted == 0 && local->key.parent_adopted == 0 &&
           tri_kernels_cuda.push != NULL;
}

/* On the thread of the rank that came last. */
static void make_for_all(const struct tri_transport *self)
{
    struct tri_nccl_local *local = self->local;
    struct tri_nccl_device_guard guard;
    struct tri_nccl_push_ranks ranks = {.guard = &guard};
    struct tri_nccl_push *push = NULL;
    uint64_t budget = SIZE_MAX;
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next) {
        ranks.of[rank->rank] = rank;
        ranks.devices[rank->rank] = rank->device;
        budget = rank->config.peer_bytes < budget ? rank->config.peer_bytes : budget;
    }
    if (budget != 0 && tri_nccl_push_device(&guard, self->device) == TRIB_OK) {
        push = set_up(self->size, &ranks, (size_t)budget);
        tri_nccl_pop_device(&guard);
    }
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        rank->push = push;
    local->push = push;
}

trib_status tri_nccl_push_meet(const struct tri_transport *self, int32_t n)
{
    struct tri_nccl_local *local = self->local;
    pthread_mutex_lock(&local->lock);
    const bool is_ours = is_for(local, self->size);
    local->met += n;
    const bool last = local->met == self->size;
    pthread_mutex_unlock(&local->lock);
    if (!is_ours)
        return TRIB_OK;
    if (last) {
        make_for_all(self);
        atomic_store_explicit(&local->push_made, true, memory_order_release);
    }
    while (!atomic_load_explicit(&local->push_made, memory_order_acquire)) {
        if (!tri_abort_live(local->state))
            return tri_abort_status(local->state);
        tri_nap_ns(NAP_NS);
    }
    return TRIB_OK;
}

/* -------------------------------------------------------------------------------------- the end */

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
    if (push == NULL)
        return;
    bool ended = tri_nccl_push_device(&guard, local->ranks->device) == TRIB_OK;
    const bool pushed = ended;
    for (const struct tri_transport *rank = local->ranks; rank != NULL && ended; rank = rank->next)
        ended = wait_for_rank(rank, &guard);
    if (ended)
        free_memory(push);
    else
        keep_memory(local);
    if (pushed)
        tri_nccl_pop_device(&guard);
    free(push);
    local->push = NULL;
}
