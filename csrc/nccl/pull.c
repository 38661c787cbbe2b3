/* Large calls by the pull kernels: which ones, and the memory for them. */
#include "csrc/nccl/pull.h"

#include <pthread.h>
#include <stdlib.h>

#include "csrc/base/log.h"
#include "csrc/nccl/capture.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/limits.h"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/pull.h"

enum {
    BLOCKS = 64,          /* of a call: few, for other kernels run beside it; more gain 2 % */
    COMMUNICATORS = 2,    /* at once on a device */
    BLOCKS_AT_ONCE = 2,   /* on a multiprocessor */
    CONTROL = 128 * 1024, /* bytes from one lane's control to the other's */
};
/* What is tried between processes: behind the control of a lane. */
struct tried {
    float sent[TRI_NCCL_TRIED], received[TRI_NCCL_TRIED];
};
_Static_assert(sizeof(struct tri_pull_control) + sizeof(struct tried) <= CONTROL,
               "a control and what is tried have their place");

struct tri_nccl_pull {
    struct tri_nccl_peer_memory
        memory[TRI_PULL_RANKS];      /* the controls of the lanes, then scratch */
    int32_t devices[TRI_PULL_RANKS]; /* of this process, all of them or one */
    int32_t here;                    /* as many */
    int32_t size;
    int32_t blocks;
    bool claimed;
};

/* The buffers of a call, to all ranks. */
struct buffers {
    const char *unmapped; /* "send" or "recv"; NULL: neither */
    /* Symmetric memory of this rank; NULL: another kind, which has one address on all devices. */
    const struct tri_symmetric *send, *recv;
};

/* ----------------------------------------------------------------------------------------- calls */

/* Only of kinds that pull has a kernel for. */
static enum tri_pull_kind kind_of(const struct tri_call *call)
{
    static const enum tri_pull_kind kinds[TRI_KINDS] = {
        [TRI_ALLREDUCE] = TRI_PULL_ALLREDUCE, [TRI_REDUCE_SCATTER] = TRI_PULL_REDUCE_SCATTER,
        [TRI_ALLGATHER] = TRI_PULL_ALLGATHER, [TRI_BROADCAST] = TRI_PULL_BROADCAST,
        [TRI_ALLTOALL] = TRI_PULL_ALLTOALL,
    };
    return kinds[call->kind];
}

bool tri_nccl_pull_can(const struct tri_call *call)
{
    const struct tri_nccl_push *push = call->transport->push;
    return push != NULL && push->pull != NULL && tri_nccl_push_has_kernel(call) && call->count > 0;
}

/* Is pull ahead of NCCL? */
static bool is_in_table(const struct tri_call *call)
{
    const enum tri_pull_kind kind = kind_of(call);
    const bool blocks = tri_pull_scatters(kind) || tri_pull_gathers(kind);
    const size_t size = (size_t)call->transport->size;
    const size_t width = trib_dtype_size(call->dtype) * (blocks ? size : 1);
    const struct tri_nccl_limits *limits = &tri_nccl_limits[call->kind][size];
    return call->count > (size_t)limits->pull_above * 1024 / width &&
           call->count <= (size_t)limits->pull * 1024 / width;
}

/* Between processes other buffers than symmetric ones go through the scratch, which NCCL is faster than. */
bool tri_nccl_pull_serves(const struct tri_call *call)
{
    return tri_nccl_pull_can(call) &&
           (!call->transport->push->apart || call->variant == TRIB_VARIANT_SYMMETRIC) &&
           is_in_table(call);
}

bool tri_nccl_pull_would(const struct tri_call *call)
{
    const struct tri_nccl_push *push = call->transport->push;
    return push != NULL && push->apart && (push->pull != NULL || tri_nccl_pull_is_wanted(push)) &&
           tri_nccl_push_has_kernel(call) && call->count > 0 && is_in_table(call);
}

/* To where each rank has what is here; they are 0 already. */
static void set_shifts(ptrdiff_t *shifts, const struct tri_symmetric *memory)
{
    if (memory == NULL)
        return;
    const uint64_t here = (uint64_t)(uintptr_t)memory->of[memory->rank].here;
    for (int32_t i = 0; i < memory->size; i++)
        shifts[i] = (ptrdiff_t)(memory->of[i].there - here);
}

/* A root's send alone is read; that of other ranks may be anything. A copy is of bytes. */
static struct tri_pull job_of(const struct tri_nccl_pull *pull, const struct tri_call *call)
{
    const enum tri_pull_kind kind = kind_of(call);
    const bool copies = tri_pull_copies(kind);
    return (struct tri_pull){.n = 1,
                             .size = pull->size,
                             .blocks = pull->blocks,
                             .kind = kind,
                             .root = call->peer,
                             .count = call->count * (copies ? trib_dtype_size(call->dtype) : 1),
                             .dtype = copies ? TRIB_U8 : call->dtype,
                             .op = call->op,
                             .way = call->variant == TRIB_VARIANT_ONE_SHOT ? TRI_PULL_ONE_SHOT
                                                                           : TRI_PULL_TWO_SHOT};
}

static bool sends(const struct tri_call *call, int32_t rank)
{
    return call->kind != TRI_BROADCAST || call->peer == rank;
}

static trib_status launch(const struct tri_nccl_pull *pull, int32_t rank, enum tri_nccl_lane lane,
                          const struct tri_call *call, const struct buffers *buffers,
                          uint32_t *abort_flag, uint64_t patience_ns)
{
    const struct tri_pull_rank here = {sends(call, rank) ? call->send : call->recv, call->recv,
                                       buffers->unmapped == NULL, rank};
    const size_t lane_bytes =
        (pull->memory[0].bytes - (size_t)TRI_NCCL_LANES * CONTROL) / TRI_NCCL_LANES;
    struct tri_pull job = job_of(pull, call);
    job.here = &here;
    job.scratch_bytes = lane_bytes;
    job.abort_flag = abort_flag;
    job.patience_ns = patience_ns;
    set_shifts(job.send_shift, buffers->send);
    set_shifts(job.recv_shift, buffers->recv);
    for (int32_t i = 0; i < pull->size; i++) {
        char *memory =
            (char *)(uintptr_t)pull->memory[i].address; /* NOLINT: as the driver has it */
        job.control[i] = (struct tri_pull_control *)(void *)(memory + (size_t)lane * CONTROL);
        job.scratch[i] = memory + (size_t)TRI_NCCL_LANES * CONTROL + (size_t)lane * lane_bytes;
    }
    return tri_kernels_cuda.pull(&job, call->stream);
}

/* Do the devices of all ranks map it? */
static bool is_mapped(const struct tri_nccl_pull *pull, const struct tri_symmetric *memory,
                      const void *data, size_t bytes)
{
    return memory != NULL ||
           (pull->here == pull->size && tri_nccl_peers_map(data, bytes, pull->devices, pull->size));
}

/* Of an allreduce peers access both buffers, of others send. */
static struct buffers buffers_of(const struct tri_nccl_pull *pull, const struct tri_call *call)
{
    struct tri_symmetric *const list = call->transport->symmetric;
    const struct tri_pull job = job_of(pull, call);
    const size_t bytes = tri_pull_sent(&job) * trib_dtype_size(job.dtype);
    struct buffers found = {.send = NULL};
    if (!sends(call, call->transport->rank))
        return found;
    found.send = tri_symmetric_find(list, call->send, bytes);
    if (!is_mapped(pull, found.send, call->send, bytes))
        found.unmapped = "send";
    if (job.kind != TRI_PULL_ALLREDUCE)
        return found;
    found.recv =
        call->recv == call->send ? found.send : tri_symmetric_find(list, call->recv, bytes);
    if (found.unmapped == NULL && call->recv != call->send &&
        !is_mapped(pull, found.recv, call->recv, bytes))
        found.unmapped = "recv";
    return found;
}

const char *tri_nccl_pull_stages(const struct tri_call *call)
{
    return buffers_of(call->transport->push->pull, call).unmapped;
}

/* Without patience, as push. */
trib_status tri_nccl_pull_call(const struct tri_call *call)
{
    struct tri_transport *transport = call->transport;
    const enum tri_nccl_lane lane =
        transport->order.begun.capture == 0 ? TRI_NCCL_RUNS : TRI_NCCL_CAPTURED;
    const struct tri_nccl_pull *pull = transport->push->pull;
    const struct buffers buffers = buffers_of(pull, call);
    transport->staged += buffers.unmapped != NULL;
    if (launch(pull, transport->rank, lane, call, &buffers, transport->local->abort_flag, 0) ==
        TRIB_OK)
        return TRIB_OK;
    return tri_nccl_cuda_fail(cudaErrorLaunchFailure, tri_nccl_kind_name(call->kind),
                              transport->device);
}

uint64_t tri_nccl_pull_staged(const struct tri_transport *transport)
{
    return transport->staged;
}

/* ------------------------------------------------------------------------------- room on devices */

/* Communicators with pull on a device. All blocks of a call are on their devices at once, so those of
 * COMMUNICATORS, each with a call that runs and one that was captured, must fit. Held for a moment,
 * and nothing is called under it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int32_t claims[TRI_NCCL_MAX_DEVICES];

static bool claim(struct tri_nccl_pull *pull)
{
    bool free = true;
    pthread_mutex_lock(&lock);
    for (int32_t i = 0; i < pull->here; i++)
        free = free && claims[pull->devices[i]] < COMMUNICATORS;
    for (int32_t i = 0; i < pull->here && free; i++)
        claims[pull->devices[i]]++;
    pthread_mutex_unlock(&lock);
    pull->claimed = free;
    return free;
}

static void unclaim(const struct tri_nccl_pull *pull)
{
    pthread_mutex_lock(&lock);
    for (int32_t i = 0; i < pull->here && pull->claimed; i++)
        claims[pull->devices[i]]--;
    pthread_mutex_unlock(&lock);
}

/* Of a call, the same on all devices; 0: not known. */
static int32_t blocks_for(const struct tri_nccl_push *push)
{
    const int32_t fit = BLOCKS_AT_ONCE * push->multiprocessors / (TRI_NCCL_LANES * COMMUNICATORS);
    return fit < BLOCKS ? fit : BLOCKS;
}

/* NULL, or why there is no room for one of these devices. */
static const char *settle(struct tri_nccl_pull *pull, const struct tri_nccl_push *push)
{
    pull->blocks = blocks_for(push);
    if (pull->blocks <= 0)
        return "its devices have too few multiprocessors";
    return claim(pull)
               ? NULL
               : "its devices have as many communicators with large calls of this kind as they may";
}

/* ----------------------------------------------------------------------------------------- setup */

/* Memory that cudaMalloc, or the default pool, has made or will make on a device can then be used by the
 * others. */
static cudaError_t enable_peers(const struct tri_nccl_push_ranks *ranks, int32_t size)
{
    for (int32_t i = 0; i < size; i++)
        for (int32_t j = 0; j < size; j++) {
            if (i == j)
                continue;
            if (!tri_nccl_push_switch(ranks, i))
                return cudaErrorUnknown;
            const cudaError_t error = cudaDeviceEnablePeerAccess(ranks->devices[j], 0);
            if (error == cudaErrorPeerAccessAlreadyEnabled)
                (void)cudaGetLastError();
            else if (error != cudaSuccess)
                return error;
        }
    for (int32_t i = 0; i < size; i++)
        tri_nccl_peers_open_pool(ranks->devices, size, i);
    return cudaSuccess;
}

/* Zeros, before the first call. */
static bool allocate(struct tri_nccl_pull *pull, const struct tri_nccl_push_ranks *ranks)
{
    for (int32_t i = 0; i < pull->size; i++) {
        struct tri_nccl_peer_memory *memory = &pull->memory[i];
        const cudaStream_t stream = ranks->of[i]->stream;
        if (!tri_nccl_push_switch(ranks, i) ||
            tri_nccl_peer_alloc(memory, ranks->devices, pull->size, i, TRI_NCCL_PULL_BYTES,
                                false) != CUDA_SUCCESS ||
            cudaMemsetAsync((void *)(uintptr_t)memory->address, 0, memory->bytes, stream) !=
                cudaSuccess || /* NOLINT: as the driver has it */
            cudaStreamSynchronize(stream) != cudaSuccess)
            return false;
    }
    return true;
}

static trib_status try_mapped(const void *pull, int32_t rank, enum tri_nccl_lane lane,
                              const struct tri_call *call, uint32_t *abort_flag,
                              uint64_t patience_ns)
{
    return launch(pull, rank, lane, call, &(struct buffers){.unmapped = NULL}, abort_flag,
                  patience_ns);
}

static trib_status try_staged(const void *pull, int32_t rank, enum tri_nccl_lane lane,
                              const struct tri_call *call, uint32_t *abort_flag,
                              uint64_t patience_ns)
{
    return launch(pull, rank, lane, call, &(struct buffers){.unmapped = "send"}, abort_flag,
                  patience_ns);
}

/* NULL, or why there is none. */
static const char *make(struct tri_nccl_pull *pull, const struct tri_nccl_push *push,
                        const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag)
{
    const char *why = settle(pull, push);
    if (why != NULL)
        return why;
    const cudaError_t error = enable_peers(ranks, pull->size);
    if (error != cudaSuccess)
        return cudaGetErrorString(error);
    if (!allocate(pull, ranks))
        return "its devices had no memory for that";
    for (int32_t i = 0; i < pull->size; i++)
        if (!tri_nccl_push_switch(ranks, i) ||
            !tri_nccl_peers_map(push->own[i], TRI_NCCL_LANES * sizeof *push->own[i], pull->devices,
                                pull->size))
            return "the driver does not tell which memory cudaMalloc has made";
    why = tri_nccl_push_try(push, ranks, try_mapped, pull, abort_flag);
    return why != NULL ? why : tri_nccl_push_try(push, ranks, try_staged, pull, abort_flag);
}

bool tri_nccl_pull_is_for(const struct tri_nccl_push *push, size_t budget)
{
    return tri_kernels_cuda.pull != NULL && push->nvlink && push->size <= TRI_NCCL_MEASURED &&
           budget >= (size_t)2 * TRI_NCCL_PULL_BYTES;
}

struct tri_nccl_pull *tri_nccl_pull_make(const struct tri_nccl_push *push,
                                         const struct tri_nccl_push_ranks *ranks,
                                         uint32_t *abort_flag)
{
    const char *why = "no memory";
    struct tri_nccl_pull *pull = calloc(1, sizeof *pull);
    if (pull != NULL) {
        pull->size = push->size;
        pull->here = push->size;
        for (int32_t i = 0; i < push->size; i++)
            pull->devices[i] = ranks->devices[i];
        why = make(pull, push, ranks, abort_flag);
    }
    if (why == NULL)
        return pull;
    tri_nccl_pull_free(pull);
    (void)cudaGetLastError();
    tri_log(TRIB_LOG_INFO, "NCCL serves the large calls of a communicator of %d ranks: %s",
            (int)push->size, why);
    return NULL;
}

bool tri_nccl_pull_is_wanted(const struct tri_nccl_push *push)
{
    return push->apart && !push->asked && tri_nccl_pull_is_for(push, SIZE_MAX);
}

struct apart {
    const struct tri_nccl_pull *pull;
    const struct tri_symmetric *memory; /* pull's */
};

/* As a call on symmetric memory, which each process has elsewhere: what is sent is copied there, and what arrives
 * there back. */
static trib_status try_symmetric(const void *of, int32_t rank, enum tri_nccl_lane lane,
                                 const struct tri_call *call, uint32_t *abort_flag,
                                 uint64_t patience_ns)
{
    const struct apart *apart = of;
    const struct buffers buffers = {.send = apart->memory, .recv = apart->memory};
    char *const control = apart->memory->of[rank].here + (size_t)lane * CONTROL;
    struct tried *tried = (struct tried *)(void *)(control + sizeof(struct tri_pull_control));
    struct tri_call there = *call;
    there.send = tried->sent;
    there.recv = tried->received;
    if (cudaMemcpyAsync(tried->sent, call->send, sizeof tried->sent, cudaMemcpyDeviceToDevice,
                        call->stream) != cudaSuccess)
        return TRIB_ERR_CUDA;
    TRI_TRY(launch(apart->pull, rank, lane, &there, &buffers, abort_flag, patience_ns));
    return cudaMemcpyAsync(call->recv, tried->received, sizeof tried->received,
                           cudaMemcpyDeviceToDevice, call->stream) == cudaSuccess
               ? TRIB_OK
               : TRIB_ERR_CUDA;
}

static const char *try_apart(const struct tri_nccl_pull *pull, const struct tri_nccl_push *push,
                             const struct tri_symmetric *memory,
                             const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag)
{
    const struct apart apart = {pull, memory};
    const char *why = tri_nccl_push_try(push, ranks, try_symmetric, &apart, abort_flag);
    return why != NULL ? why : tri_nccl_push_try(push, ranks, try_staged, pull, abort_flag);
}

static const char *make_apart(struct tri_nccl_pull *pull, const struct tri_nccl_push *push,
                              const struct tri_symmetric *memory,
                              const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag)
{
    pull->size = push->size;
    for (int32_t i = 0; i < push->size; i++) {
        pull->memory[i] = tri_nccl_peer_part(memory, i);
        if (ranks->of[i] != NULL)
            pull->devices[pull->here++] = ranks->devices[i];
    }
    const char *why = settle(pull, push);
    return why != NULL ? why : try_apart(pull, push, memory, ranks, abort_flag);
}

const char *tri_nccl_pull_make_apart(struct tri_nccl_pull **out, const struct tri_nccl_push *push,
                                     const struct tri_symmetric *memory,
                                     const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag)
{
    struct tri_nccl_pull *pull = calloc(1, sizeof *pull);
    *out = NULL;
    if (pull == NULL)
        return "no memory";
    const char *why = make_apart(pull, push, memory, ranks, abort_flag);
    if (why == NULL)
        *out = pull;
    else
        tri_nccl_pull_give_up(pull);
    return why;
}

void tri_nccl_pull_give_up(struct tri_nccl_pull *pull)
{
    unclaim(pull);
    free(pull);
}

void tri_nccl_pull_free(struct tri_nccl_pull *pull)
{
    if (pull == NULL)
        return;
    for (int32_t i = 0; i < pull->size; i++)
        tri_nccl_peer_free(&pull->memory[i]);
    unclaim(pull);
    free(pull);
}

/* CUDA is asked for nothing any more. */
void tri_nccl_pull_keep(struct tri_nccl_pull *pull)
{
    free(pull);
}
