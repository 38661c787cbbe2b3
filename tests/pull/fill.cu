#include <cstdint>

#include "kernels/cuda/clock.cuh"
#include "tests/pull/fill.h"

namespace {

constexpr int kThreads = 1024; /* two such blocks are all that a multiprocessor takes, if not one */
constexpr int kBlocks = 2;

__global__ void __launch_bounds__(kThreads) occupy(uint64_t ns)
{
    const uint64_t begin = global_ns();
    while (global_ns() - begin < ns) {}
}

} // namespace

extern "C" cudaError_t fill_device(cudaStream_t stream, int ms, int waves)
{
    int device = 0, multiprocessors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess)
        return error;
    occupy<<<kBlocks * waves * multiprocessors, kThreads, 0, stream>>>(
        static_cast<uint64_t>(ms) * 1000000 / static_cast<uint64_t>(waves));
    return cudaGetLastError();
}
