/* Device memory, and copies. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/log.h"
#include "csrc/nccl/background.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"

trib_status tri_nccl_alloc(int32_t device, void **out, size_t bytes)
{
    struct tri_nccl_visit visit;
    TRI_TRY(tri_nccl_visit_begin(&visit, device));
    /* 0 bytes still get a pointer of their own. cudaMalloc aligns to 256. */
    cudaError_t error = cudaMalloc(out, bytes == 0 ? 1 : bytes);
    tri_nccl_visit_end(&visit);
    if (error == cudaSuccess)
        return TRIB_OK;
    char operation[64];
    (void)snprintf(operation, sizeof operation, "allocating %zu bytes", bytes);
    return tri_nccl_cuda_fail(error, operation, device);
}

trib_status tri_nccl_free(int32_t device, void *data)
{
    struct tri_nccl_visit visit;
    TRI_TRY(tri_nccl_visit_begin(&visit, device));
    cudaError_t error = cudaFree(data);
    tri_nccl_visit_end(&visit);
    if (error == cudaSuccess)
        return TRIB_OK;
    if (error != cudaErrorInvalidValue)
        return tri_nccl_cuda_fail(error, "freeing memory", device);
    (void)cudaGetLastError();
    return tri_fail(
        TRIB_ERR_INVALID_ARGUMENT,
        "device_free: data %p is not the start of a CUDA allocation; pass a pointer that "
        "trib_device_alloc of device %d returned, once",
        data, (int)device);
}

struct deferred_free {
    struct tri_nccl_job job; /* first */
    void *data;
};

static void finish_free(struct tri_nccl_job *job)
{
    struct deferred_free *deferred_free = (struct deferred_free *)job;
    if (tri_nccl_free(job->device, deferred_free->data) != TRIB_OK)
        tri_log(TRIB_LOG_ERROR, "leaked memory: %s", tri_detail());
    free(deferred_free);
}

/* cudaFree may wait for everything on the device. A kernel there may wait for a rank that only this
 * thread can drive. */
void tri_nccl_free_later(int32_t device, void *data)
{
    struct deferred_free *deferred_free = calloc(1, sizeof *deferred_free);
    if (deferred_free == NULL) {
        tri_log(TRIB_LOG_ERROR, "no host memory for freeing memory of device %d, which leaks",
                (int)device);
        return;
    }
    deferred_free->data = data;
    deferred_free->job.finish = finish_free;
    deferred_free->job.device = device;
    tri_nccl_post_job(&deferred_free->job);
}

/* cudaMemcpyDefault derives the direction from the addresses. A copy from or to pageable host
 * memory goes through CUDA's staging buffers, and CUDA may then wait for the stream inside the
 * call; a copy of pinned memory is always queued. */
trib_status tri_nccl_copy(int32_t device, void *dst, const void *src, size_t bytes,
                          trib_stream stream)
{
    if (bytes == 0)
        return TRIB_OK;
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device(&guard, device));
    cudaError_t error = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
    tri_nccl_pop_device(&guard);
    return error == cudaSuccess ? TRIB_OK : tri_nccl_cuda_fail(error, "queueing a copy", device);
}

trib_status tri_nccl_fetch(int32_t device, void *dst, const void *src, size_t bytes,
                           trib_stream stream)
{
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device(&guard, device));
    cudaError_t error = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    tri_nccl_pop_device(&guard);
    return error == cudaSuccess ? TRIB_OK : tri_nccl_cuda_fail(error, "fetching memory", device);
}
