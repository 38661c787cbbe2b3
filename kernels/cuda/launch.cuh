// Every launch goes through here.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tributary.h"

namespace {

// Queue `kernel` on `blocks` blocks of `threads`. A refusal is told to our caller alone, and not left
// behind for whoever asks CUDA for the last error next; nor is one that others left told to ours.
inline trib_status launch_kernel(const void *kernel, uint32_t blocks, uint32_t threads,
                                 void **arguments, trib_stream stream)
{
    if (cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0,
                         static_cast<cudaStream_t>(stream)) == cudaSuccess)
        return TRIB_OK;
    (void)cudaGetLastError();
    return TRIB_ERR_CUDA;
}

// The same for a kernel whose one parameter is a `Job`.
template <typename Job>
inline trib_status launch_job(void (*kernel)(Job), uint32_t blocks, uint32_t threads, Job job,
                              trib_stream stream)
{
    void *arguments[] = {&job};
    return launch_kernel(reinterpret_cast<const void *>(kernel), blocks, threads, arguments, stream);
}

// For a kernel that begins with wait_for_previous() and follows one of ours in the stream that says
// let_next_start(): its blocks may be on the device before the last of the other are gone, which takes
// the way to the device out of the time between them. Devices before sm_90 know nothing of it.
template <typename Job>
inline trib_status launch_next(void (*kernel)(Job), uint32_t blocks, uint32_t threads, Job job,
                               trib_stream stream)
{
    int device = 0, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        major < 9)
        return launch_job(kernel, blocks, threads, job, stream);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &early;
    config.numAttrs = 1;
    void *arguments[] = {&job};
    if (cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(kernel), arguments) ==
        cudaSuccess)
        return TRIB_OK;
    (void)cudaGetLastError();
    return TRIB_ERR_CUDA;
}

// What the kernels before this one in the stream have written is there. Before this nothing is read or
// written that they may touch, and every block comes here: a kernel is done only after those before.
__device__ inline void wait_for_previous()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// The next kernel in the stream may come onto the device, if it waits as above.
__device__ inline void let_next_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

} // namespace
