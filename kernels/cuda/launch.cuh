// Every launch goes through here.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "tributary.h"

namespace {

// Queue `kernel` on `blocks` blocks of `threads`. Our caller alone learns of a refused launch: it
// is not left behind as CUDA's last error; nor does our caller get an error that others left.
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
    return launch_kernel(reinterpret_cast<const void *>(kernel), blocks, threads, arguments,
                         stream);
}

// Does wait_for_previous() wait in `kernel`, on the current device? It is compiled for sm_90 and
// newer only, and a newer device may run code of an older architecture. All kernels of a file are
// compiled for the same architectures, so the first kernel's answer holds for all.
inline bool waits_for_previous(const void *kernel)
{
    static std::atomic<int> known[64]; // of a device: 0 unknown, 1 yes, 2 no
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= 64)
        return false;
    int answer = known[device].load(std::memory_order_relaxed);
    if (answer == 0) {
        cudaFuncAttributes attributes = {};
        answer =
            cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90
                ? 1
                : 2;
        known[device].store(answer, std::memory_order_relaxed);
    }
    return answer == 1;
}

// For a kernel that begins with wait_for_previous() and follows one of ours in the stream that says
// let_next_start(): its blocks may be on the device before the last of the other are gone, which
// takes the way to the device out of the time between them.
template <typename Job>
inline trib_status launch_next(void (*kernel)(Job), uint32_t blocks, uint32_t threads, Job job,
                               trib_stream stream)
{
    if (!waits_for_previous(reinterpret_cast<const void *>(kernel)))
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

// Wait until the results of the kernels before this one in the stream are visible. A block must not
// touch memory that they may touch before it, and every block calls it: so kernels end in order.
__device__ inline void wait_for_previous()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// The next kernel in the stream may start, if it waits as above.
__device__ inline void let_next_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

} // namespace
