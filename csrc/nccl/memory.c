/* Device memory, and copies. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/log.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/reaper.h"

trib_status tri_nccl_alloc(int32_t device, void **out, size_t bytes)
{
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter(&scope, device);
    if (status != TRIB_OK)
        return status;
    /* 0 bytes still give a pointer of their own. cudaMalloc aligns to 256. */
    const enum cudaStreamCaptureMode before = tri_nccl_relax();
    cudaError_t error = cudaMalloc(out, bytes == 0 ? 1 : bytes);
    tri_nccl_unrelax(before);
    tri_nccl_leave(&scope);
    if (error == cudaSuccess)
        return TRIB_OK;
    char operation[64];
    (void)snprintf(operation, sizeof operation, "allocating %zu bytes", bytes);
    return tri_nccl_cuda_fail(error, operation, device);
}

trib_status tri_nccl_free(int32_t device, void *data)
{
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter(&scope, device);
    if (status != TRIB_OK)
        return status;
    const enum cudaStreamCaptureMode before = tri_nccl_relax();
    cudaError_t error = cudaFree(data);
    tri_nccl_unrelax(before);
    tri_nccl_leave(&scope);
    if (error == cudaSuccess)
        return TRIB_OK;
    if (error != cudaErrorInvalidValue)
        return tri_nccl_cuda_fail(error, "freeing memory", device);
    (void)cudaGetLastError();
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                    "device_free: data %p is not the start of memory that CUDA allocated; pass "
                    "what trib_device_alloc of device %d gave, once",
                    data, (int)device);
}

struct leaving {
    struct tri_nccl_errand errand; /* first */
    void *data;
};

static void free_leaving(struct tri_nccl_errand *errand)
{
    struct leaving *leaving = (struct leaving *)errand;
    if (tri_nccl_free(errand->device, leaving->data) != TRIB_OK)
        tri_log(TRIB_LOG_ERROR, "memory is leaked: %s", tri_detail());
    free(leaving);
}

/* cudaFree may wait for everything on the device. A kernel there may wait for a rank that only this
 * thread can drive. */
void tri_nccl_free_later(int32_t device, void *data)
{
    struct leaving *leaving = calloc(1, sizeof *leaving);
    if (leaving == NULL) {
        tri_log(TRIB_LOG_ERROR, "no host memory to free memory of device %d: it is leaked",
                (int)device);
        return;
    }
    leaving->data = data;
    leaving->errand.finish = free_leaving;
    leaving->errand.device = device;
    tri_nccl_post(&leaving->errand);
}

/* cudaMemcpyDefault finds out from the addresses which side is where. A copy from or to pageable
 * host memory goes through CUDA's staging buffers, and CUDA may then wait for the stream inside the
 * call; pinned memory is queued truly. */
trib_status tri_nccl_copy(int32_t device, void *dst, const void *src, size_t bytes,
                          trib_stream stream)
{
    if (bytes == 0)
        return TRIB_OK;
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter(&scope, device);
    if (status != TRIB_OK)
        return status;
    cudaError_t error = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
    tri_nccl_leave(&scope);
    return error == cudaSuccess ? TRIB_OK : tri_nccl_cuda_fail(error, "queueing a copy", device);
}

trib_status tri_nccl_fetch(int32_t device, void *dst, const void *src, size_t bytes,
                           trib_stream stream)
{
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter(&scope, device);
    if (status != TRIB_OK)
        return status;
    cudaError_t error = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    tri_nccl_leave(&scope);
    return error == cudaSuccess ? TRIB_OK : tri_nccl_cuda_fail(error, "fetching memory", device);
}
