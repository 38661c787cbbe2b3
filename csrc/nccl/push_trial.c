/* Does push work? One call of every rank in each lane, before any other. */
#include "csrc/nccl/push_inside.h"

enum { TRIAL_MS = 2000 };

static void fill(float *values, int32_t factor)
{
    for (int32_t i = 0; i < TRI_NCCL_TRIED; i++)
        values[i] = (float)(factor * (i + 1));
}

/* Before the first call: no peer writes to it yet. */
static cudaError_t prepare(const struct tri_nccl_push *push, int32_t rank, cudaStream_t stream)
{
    struct tri_nccl_push_own own[TRI_NCCL_LANES] = {0};
    for (int32_t lane = 0; lane < TRI_NCCL_LANES; lane++)
        fill(own[lane].sent, (rank + 1) * (lane + 1));
    cudaError_t error = cudaMemsetAsync(tri_nccl_push_scratch(push, rank, TRI_NCCL_RUNS),
                                        TRI_PUSH_EMPTY_BYTE, push->scratch[rank].bytes, stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(push->own[rank], own, sizeof own, cudaMemcpyHostToDevice, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

static cudaError_t start_trial(const struct tri_nccl_push *push, int32_t rank, cudaStream_t stream,
                               uint32_t *abort_flag)
{
    trib_status status = TRIB_OK;
    for (int32_t lane = 0; lane < TRI_NCCL_LANES && status == TRIB_OK; lane++) {
        const struct tri_call call = {.send = push->own[rank][lane].sent,
                                      .recv = push->own[rank][lane].received,
                                      .count = TRI_NCCL_TRIED,
                                      .dtype = TRIB_F32,
                                      .op = TRIB_SUM,
                                      .stream = stream};
        status = tri_nccl_push_launch(push, rank, (enum tri_nccl_lane)lane, &call, abort_flag,
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

static cudaError_t end_trial(const struct tri_nccl_push *push, int32_t rank, cudaStream_t stream,
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
                              const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag)
{
    cudaError_t error = cudaSuccess;
    bool right = true;
    for (int32_t i = 0; i < push->size && error == cudaSuccess; i++)
        error = tri_nccl_push_switch(ranks, i) ? prepare(push, i, ranks->of[i]->stream)
                                               : cudaErrorUnknown;
    for (int32_t i = 0; i < push->size && error == cudaSuccess; i++)
        error = tri_nccl_push_switch(ranks, i)
                    ? start_trial(push, i, ranks->of[i]->stream, abort_flag)
                    : cudaErrorUnknown;
    if (error != cudaSuccess) /* whoever has started waits for nobody */
        __atomic_store_n(abort_flag, TRI_PUSH_ABORTED, __ATOMIC_RELEASE);
    for (int32_t i = 0; i < push->size; i++) {
        bool own = false;
        const cudaError_t end = tri_nccl_push_switch(ranks, i)
                                    ? end_trial(push, i, ranks->of[i]->stream, &own)
                                    : cudaErrorUnknown;
        error = error == cudaSuccess ? end : error;
        right = right && own;
    }
    if (error != cudaSuccess)
        return cudaGetErrorString(error);
    return right ? NULL : "what one device writes to another does not arrive";
}
