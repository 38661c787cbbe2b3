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

/* What is tried, and not push's controls: calls may have been made. */
static cudaError_t prepare(const struct trial *trial, int32_t rank, cudaStream_t stream)
{
    struct tri_nccl_push_own *const own = trial->push->own[rank];
    float sent[TRI_NCCL_LANES][TRI_NCCL_TRIED];
    cudaError_t error = cudaSuccess;
    for (int32_t lane = 0; lane < TRI_NCCL_LANES && error == cudaSuccess; lane++) {
        fill(sent[lane], (rank + 1) * (lane + 1));
        error = cudaMemcpyAsync(own[lane].sent, sent[lane], sizeof sent[lane],
                                cudaMemcpyHostToDevice, stream);
        if (error == cudaSuccess)
            error = cudaMemsetAsync(own[lane].received, 0, sizeof own[lane].received, stream);
    }
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

/* `step` on every rank of this process, up to the first that fails. */
static cudaError_t on_each(const struct trial *trial, const struct tri_nccl_push_ranks *ranks,
                           cudaError_t (*step)(const struct trial *trial, int32_t rank,
                                               cudaStream_t stream))
{
    cudaError_t error = cudaSuccess;
    for (int32_t i = 0; i < trial->push->size && error == cudaSuccess; i++)
        if (ranks->of[i] != NULL)
            error = tri_nccl_push_switch(ranks, i) ? step(trial, i, ranks->of[i]->stream)
                                                   : cudaErrorUnknown;
    return error;
}

/* Of all of them, whatever happens. */
static cudaError_t end_all(const struct trial *trial, const struct tri_nccl_push_ranks *ranks,
                           bool *out_right)
{
    cudaError_t error = cudaSuccess;
    *out_right = true;
    for (int32_t i = 0; i < trial->push->size; i++) {
        bool own = false;
        if (ranks->of[i] == NULL)
            continue;
        const cudaError_t ended = tri_nccl_push_switch(ranks, i)
                                      ? end(trial->push, i, ranks->of[i]->stream, &own)
                                      : cudaErrorUnknown;
        error = error == cudaSuccess ? ended : error;
        *out_right = *out_right && own;
    }
    return error;
}

const char *tri_nccl_push_try(const struct tri_nccl_push *push,
                              const struct tri_nccl_push_ranks *ranks, tri_nccl_launch *launch,
                              const void *of, uint32_t *abort_flag)
{
    const struct trial trial = {push, launch, of, abort_flag};
    bool right = true;
    cudaError_t error = on_each(&trial, ranks, prepare);
    if (error == cudaSuccess)
        error = on_each(&trial, ranks, start);
    if (error != cudaSuccess) /* whoever has started waits for nobody */
        __atomic_store_n(abort_flag, TRI_PUSH_ABORTED, __ATOMIC_RELEASE);
    const cudaError_t ended = end_all(&trial, ranks, &right);
    error = error == cudaSuccess ? ended : error;
    if (error != cudaSuccess)
        return cudaGetErrorString(error);
    return right ? NULL : "what one device has for another does not arrive";
}
