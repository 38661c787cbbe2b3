/* Do push and pull work? One call of every rank in each lane, before any other. */
#include "csrc/nccl/push_inside.h"

enum { TRIAL_MS = 2000 };

static void fill(float *values, int32_t factor)
{
    for (int32_t i = 0; i < TRI_NCCL_TRIED; i++)
        values[i] = (float)(factor * (i + 1));
}

/* What is to be run, and on what. */
struct trial {
    const struct tri_nccl_push *push;
    tri_nccl_launch *launch;
    const void *of;
    uint32_t *abort_flag;
};

static cudaError_t prepare(const struct tri_nccl_push *push, int32_t rank, cudaStream_t stream)
{
    struct tri_nccl_push_own own[TRI_NCCL_LANES] = {0};
    for (int32_t lane = 0; lane < TRI_NCCL_LANES; lane++)
        fill(own[lane].sent, (rank + 1) * (lane + 1));
    const cudaError_t error =
        cudaMemcpyAsync(push->own[rank], own, sizeof own, cudaMemcpyHostToDevice, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

static cudaError_t start(const struct trial *trial, int32_t rank, cudaStream_t stream)
{
    const struct tri_nccl_push_own *own = trial->push->own[rank];
    trib_status status = TRIB_OK;
    for (int32_t lane = 0; lane < TRI_NCCL_LANES && status == TRIB_OK; lane++) {
        const struct tri_call call = {.send = own[lane].sent,
                                      .recv = trial->push->own[rank][lane].received,
                                      .count = TRI_NCCL_TRIED,
                                      .dtype = TRIB_F32,
                                      .op = TRIB_SUM,
                                      .stream = stream};
        status = trial->launch(trial->of, rank, (enum tri_nccl_lane)lane, &call, trial->abort_flag,
                               (uint64_t)TRIAL_MS * 1000000u);
    }
    return status == TRIB_OK ? cudaSuccess : cudaErrorLaunchFailure;
}

static bool are_same(const float *found, const float *wanted)
{
    bool same = true;
    for (int32_t i = 0; i < TRI_NCCL_TRIED; i++)
        same = same && found[i] == wanted[i];
    return same;
}

static cudaError_t end(const struct tri_nccl_push *push, int32_t rank, cudaStream_t stream,
                       bool *out_right)
{
    struct tri_nccl_push_own found[TRI_NCCL_LANES];
    float wanted[TRI_NCCL_TRIED];
    cudaError_t error =
        cudaMemcpyAsync(found, push->own[rank], sizeof found, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    *out_right = error == cudaSuccess;
    for (int32_t lane = 0; lane < TRI_NCCL_LANES && *out_right; lane++) {
        fill(wanted, (lane + 1) * push->size * (push->size + 1) / 2);
        *out_right = are_same(found[lane].received, wanted);
    }
    return error;
}

const char *tri_nccl_push_try(const struct tri_nccl_push *push,
                              const struct tri_nccl_push_ranks *ranks, tri_nccl_launch *launch,
                              const void *of, uint32_t *abort_flag)
{
    const struct trial trial = {push, launch, of, abort_flag};
    cudaError_t error = cudaSuccess;
    bool right = true;
    for (int32_t i = 0; i < push->size && error == cudaSuccess; i++)
        error = tri_nccl_push_switch(ranks, i) ? prepare(push, i, ranks->of[i]->stream)
                                               : cudaErrorUnknown;
    for (int32_t i = 0; i < push->size && error == cudaSuccess; i++)
        error = tri_nccl_push_switch(ranks, i) ? start(&trial, i, ranks->of[i]->stream)
                                               : cudaErrorUnknown;
    if (error != cudaSuccess) /* whoever has started waits for nobody */
        __atomic_store_n(abort_flag, TRI_PUSH_ABORTED, __ATOMIC_RELEASE);
    for (int32_t i = 0; i < push->size; i++) {
        bool own = false;
        const cudaError_t ended = tri_nccl_push_switch(ranks, i)
                                      ? end(push, i, ranks->of[i]->stream, &own)
                                      : cudaErrorUnknown;
        error = error == cudaSuccess ? ended : error;
        right = right && own;
    }
    if (error != cudaSuccess)
        return cudaGetErrorString(error);
    return right ? NULL : "what one device writes to another does not arrive";
}
