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

} // namespace
