// preload: every kernel is loaded before the first launch.
//
// CUDA loads a kernel at its first launch, and that may wait for what is running on the device: a
// kernel that waits for a peer, say, which itself waits for this launch. To ask for a kernel's
// attributes loads it as well.
#include "kernels/cuda/preload.h"

#include <cuda_runtime.h>

namespace {

// Is nullptr before any constructor runs, and written by constructors alone, which run one after
// the other before anything here can be called.
tri_cuda_kernel *first;

} // namespace

tri_cuda_kernel::tri_cuda_kernel(const void *launched) : function(launched), next(first)
{
    first = this;
}

void tri_cuda_preload(void)
{
    cudaFuncAttributes attributes;
    for (const tri_cuda_kernel *kernel = first; kernel != nullptr; kernel = kernel->next)
        if (cudaFuncGetAttributes(&attributes, kernel->function) != cudaSuccess)
            (void)cudaGetLastError();
}
