#include <cstdint>

#include "tests/conformance/kernels/late_copy.h"

namespace {

constexpr int kThreads = 256, kBlocks = 64;
constexpr uint64_t kLateNs = 50000;

__device__ uint64_t now_ns()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void __launch_bounds__(kThreads) copy_late(char *dst, const char *src, size_t bytes)
{
    const uint64_t begin = now_ns();
    const size_t first = blockIdx.x * kThreads + threadIdx.x, step = kBlocks * kThreads;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    while (now_ns() - begin < kLateNs) {}
    for (size_t i = first; i < bytes / sizeof(uint4); i += step)
        reinterpret_cast<uint4 *>(dst)[i] = reinterpret_cast<const uint4 *>(src)[i];
    for (size_t i = bytes / sizeof(uint4) * sizeof(uint4) + first; i < bytes; i += step)
        dst[i] = src[i];
}

} // namespace

extern "C" cudaError_t late_copy(void *dst, const void *src, size_t bytes, cudaStream_t stream)
{
    copy_late<<<kBlocks, kThreads, 0, stream>>>(static_cast<char *>(dst),
                                                static_cast<const char *>(src), bytes);
    return cudaGetLastError();
}
