#include <cstdint>

#include "benches/busy.h"
#include "kernels/cuda/clock.cuh"

static __global__ void count(uint64_t ns)
{
    const uint64_t begin = global_ns();
    while (global_ns() - begin < ns) {}
}

extern "C" bool bench_busy_cuda(int rank, trib_stream stream, double us)
{
    static thread_local int current = -1;
    if (current != rank && cudaSetDevice(rank) != cudaSuccess)
        return false;
    current = rank;
    count<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<uint64_t>(us * 1e3));
    return cudaGetLastError() == cudaSuccess;
}
