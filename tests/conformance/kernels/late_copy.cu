#include <cstdint>

#include "kernels/cuda/clock.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/conformance/kernels/late_copy.h"

namespace {

constexpr int kThreads = 256, kBlocks = 64;
constexpr uint64_t kLateNs = 50000;

__global__ void __launch_bounds__(kThreads) copy_late(char *dst, const char *src, size_t bytes)
{
    const uint64_t begin = global_ns();
    const size_t first = blockIdx.x * kThreads + threadIdx.x, step = kBlocks * kThreads;
    let_next_start();
    while (global_ns() - begin < kLateNs) {}
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
