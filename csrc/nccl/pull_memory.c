/* The memory of pull on the devices of the ranks, and its blocks: whether there is room for them, and when it is
 * freed. */
#include <pthread.h>
#include <stdlib.h>

#include "csrc/base/log.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/pull_inside.h"
#include "kernels/cuda/kernels_cuda.h"

enum {
    BLOCKS = 64,       /* of a call: few, for other kernels run beside it */
    COMMUNICATORS = 2, /* at once on a device */
    BLOCKS_AT_ONCE = 2 /* on a multiprocessor */
};

/* ------------------------------------------------------------------------------- room on devices */

/* Communicators with pull on a device. All blocks of a call are on their devices at once, so those of
 * COMMUNICATORS, each with a call that runs and one that was captured, must fit: of two shots twice as many, of
 * half the size. Held for a moment, and nothing is called under it. */
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

/* The controls are zeros before the first call; of scratch a call reads what it has stored there. */
static bool allocate(struct tri_nccl_pull *pull, const struct tri_nccl_push_ranks *ranks)
{
    for (int32_t i = 0; i < pull->size; i++) {
        struct tri_nccl_peer_memory *memory = &pull->memory[i];
        const cudaStream_t stream = ranks->of[i]->stream;
        if (!tri_nccl_push_switch(ranks, i) ||
            tri_nccl_peer_alloc(memory, ranks->devices, pull->size, i, TRI_NCCL_PULL_BYTES,
                                false) != CUDA_SUCCESS ||
            cudaMemsetAsync((void *)(uintptr_t)memory->address, 0,
                            (size_t)TRI_NCCL_LANES * TRI_NCCL_PULL_CONTROL,
                            stream) != cudaSuccess || /* NOLINT: as the driver has it */
            cudaStreamSynchronize(stream) != cudaSuccess)
            return false;
    }
    return true;
}

/* What is tried: calls with such a buffer, by that variant. */
struct trial {
    const struct tri_nccl_pull *pull;
    struct tri_nccl_pull_reached reached;
    trib_variant variant;
};

static trib_status try_launch(const void *of, int32_t rank, enum tri_nccl_lane lane,
                              const struct tri_call *call, uint32_t *abort_flag,
                              uint64_t patience_ns)
{
    const struct trial *trial = of;
    struct tri_call named = *call;
    named.variant = trial->variant;
    return tri_nccl_pull_launch(trial->pull, rank, lane, &named, &trial->reached, abort_flag,
                                patience_ns);
}

/* As a call on symmetric memory, which each process has elsewhere: what is sent is copied there, and what arrives
 * there back. */
static trib_status try_symmetric(const void *of, int32_t rank, enum tri_nccl_lane lane,
                                 const struct tri_call *call, uint32_t *abort_flag,
                                 uint64_t patience_ns)
{
    const struct trial *trial = of;
    char *const control =
        trial->reached.memory->of[rank].here + (size_t)lane * TRI_NCCL_PULL_CONTROL;
    struct tri_nccl_pull_tried *tried =
        (struct tri_nccl_pull_tried *)(void *)(control + sizeof(struct tri_pull_control));
    struct tri_call there = *call;
    there.send = tried->sent;
    there.recv = tried->received;
    if (cudaMemcpyAsync(tried->sent, call->send, sizeof tried->sent, cudaMemcpyDeviceToDevice,
                        call->stream) != cudaSuccess)
        return TRIB_ERR_CUDA;
    TRI_TRY(try_launch(of, rank, lane, &there, abort_flag, patience_ns));
    return cudaMemcpyAsync(call->recv, tried->received, sizeof tried->received,
                           cudaMemcpyDeviceToDevice, call->stream) == cudaSuccess
               ? TRIB_OK
               : TRIB_ERR_CUDA;
}

/* In two shots devices store in each other's memory, in one they read there; in `memory`, pull's own, if it is not
 * NULL. Then scratch. NULL, or what went wrong. */
static const char *try_all(const struct tri_nccl_pull *pull, const struct tri_nccl_push *push,
                           const struct tri_symmetric *memory,
                           const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag)
{
    const struct trial trials[] = {{pull, {.memory = memory}, TRIB_VARIANT_TWO_SHOT},
                                   {pull, {.memory = memory}, TRIB_VARIANT_ONE_SHOT},
                                   {pull, {.unmapped = "recv"}, TRIB_VARIANT_TWO_SHOT}};
    const char *why = NULL;
    for (size_t i = 0; i < sizeof trials / sizeof *trials && why == NULL; i++)
        why = tri_nccl_push_try(push, ranks,
                                trials[i].reached.memory == NULL ? try_launch : try_symmetric,
                                &trials[i], abort_flag);
    return why;
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
    return try_all(pull, push, NULL, ranks, abort_flag);
}

bool tri_nccl_pull_is_for(const struct tri_nccl_push *push, size_t budget)
{
    const size_t leaves =
        push->size <= TRI_NCCL_MEASURED ? TRI_NCCL_PULL_LEAVES : TRI_NCCL_PULL_LEAVES_BY_NAME;
    return tri_kernels_cuda.pull != NULL && push->nvlink && budget >= TRI_NCCL_PULL_BYTES + leaves;
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

const char *tri_nccl_pull_begin(struct tri_nccl_pull **out, const struct tri_nccl_push *push,
                                int32_t device)
{
    struct tri_nccl_pull *pull = calloc(1, sizeof *pull);
    *out = NULL;
    if (pull == NULL)
        return "no memory";
    pull->size = push->size;
    pull->here = 1;
    pull->devices[0] = device;
    const char *why = settle(pull, push);
    if (why == NULL)
        *out = pull;
    else
        tri_nccl_pull_give_up(pull);
    return why;
}

const char *tri_nccl_pull_finish(struct tri_nccl_pull *pull, const struct tri_nccl_push *push,
                                 const struct tri_symmetric *memory,
                                 const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag)
{
    for (int32_t i = 0; i < push->size; i++)
        pull->memory[i] = tri_nccl_peer_part(memory, i);
    return try_all(pull, push, memory, ranks, abort_flag);
}

void tri_nccl_pull_give_up(struct tri_nccl_pull *pull)
{
    if (pull == NULL)
        return;
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
