// Every launch goes through here, and every kernel that is launched is known before: preload.cu.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "kernels/cuda/preload.h"
#include "tributary.h"

namespace {

// A kernel is launched by what this gives, and only the launches below, which take it as a template
// argument, ask for it. So one that is compiled into a launch is in preload's list, from the time
// the program or library is loaded.
template <auto Function>
struct Kernel {
    static tri_cuda_kernel entry;

    static const void *get()
    {
        return entry.function;
    }
};
template <auto Function>
tri_cuda_kernel Kernel<Function>::entry(reinterpret_cast<const void *>(Function));

// Queue `Function` on `blocks` blocks of `threads`. Our caller alone learns of a refused launch: it
// is not left behind as CUDA's last error; nor does our caller get an error that others left.
template <auto Function>
inline trib_status launch_kernel(uint32_t blocks, uint32_t threads, void **arguments,
                                 trib_stream stream)
{
    if (cudaLaunchKernel(Kernel<Function>::get(), dim3(blocks), dim3(threads), arguments, 0,
                         static_cast<cudaStream_t>(stream)) == cudaSuccess)
        return TRIB_OK;
    (void)cudaGetLastError();
    return TRIB_ERR_CUDA;
}

// The same for a kernel whose one parameter is a `Job`.
template <auto Function, typename Job>
inline trib_status launch_job(uint32_t blocks, uint32_t threads, Job job, trib_stream stream)
{
    [[maybe_unused]] void (*const takes_job)(Job) = Function;
    void *arguments[] = {&job};
    return launch_kernel<Function>(blocks, threads, arguments, stream);
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

// For a kernel that calls wait_for_previous() before it touches what the one before it in the stream
// may touch. If that is one of ours that says let_next_start(), its blocks may be on the device before
// the last of the other are gone, which takes the way to the device out of the time between them.
template <auto Function>
inline trib_status launch_next_kernel(uint32_t blocks, uint32_t threads, void **arguments,
                                      trib_stream stream)
{
    if (!waits_for_previous(Kernel<Function>::get()))
        return launch_kernel<Function>(blocks, threads, arguments, stream);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &early;
    config.numAttrs = 1;
    if (cudaLaunchKernelExC(&config, Kernel<Function>::get(), arguments) == cudaSuccess)
        return TRIB_OK;
    (void)cudaGetLastError();
    return TRIB_ERR_CUDA;
}

// The same for a kernel whose one parameter is a `Job`.
template <auto Function, typename Job>
inline trib_status launch_next(uint32_t blocks, uint32_t threads, Job job, trib_stream stream)
{
    [[maybe_unused]] void (*const takes_job)(Job) = Function;
    void *arguments[] = {&job};
    return launch_next_kernel<Function>(blocks, threads, arguments, stream);
}

// Wait until the results of the kernels before this one in the stream are visible. A block must not
// touch memory that they may write before it, and every block calls it: so kernels end in order.
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
