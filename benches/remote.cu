#include "benches/remote.h"

namespace {

constexpr int kThreads = 512, kBlocks = 96; // as pull has them

__global__ void __launch_bounds__(kThreads) add_atomically(const bench_remote call)
{
    const size_t step = size_t{gridDim.x} * kThreads;
    for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < call.count; i += step) {
        const float part = call.send[i];
        for (int k = 0; k < call.size; k++)
            asm volatile("red.relaxed.sys.global.add.f32 [%0], %1;"
                         :
                         : "l"(call.recv[(call.rank + k) % call.size] + i), "f"(part)
                         : "memory");
    }
}

__device__ void lock(uint32_t *word)
{
    uint32_t found;
    do
        asm volatile("atom.acquire.sys.global.cas.b32 %0, [%1], 0, 1;"
                     : "=r"(found)
                     : "l"(word)
                     : "memory");
    while (found != 0);
}

__device__ void unlock(uint32_t *word)
{
    asm volatile("st.release.sys.global.u32 [%0], 0;" : : "l"(word) : "memory");
}

// A block holds one lock at a time, so whoever has it goes on.
__global__ void __launch_bounds__(kThreads) add_under_locks(const bench_remote call)
{
    const size_t tiles = (call.count + BENCH_TILE - 1) / BENCH_TILE;
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        for (int k = 0; k < call.size; k++) {
            const int to = (call.rank + k) % call.size;
            uint32_t *const word = call.locks[to] + tile % BENCH_LOCKS;
            if (threadIdx.x == 0)
                lock(word);
            __syncthreads();
            for (size_t i = tile * BENCH_TILE + threadIdx.x;
                 i < call.count && i < (tile + 1) * BENCH_TILE; i += kThreads) {
                volatile float *const at = call.recv[to] + i;
                *at = *at + call.send[i];
            }
            __threadfence_system();
            __syncthreads();
            if (threadIdx.x == 0)
                unlock(word);
        }
}

} // namespace

extern "C" bool bench_remote_add(const bench_remote *call, trib_stream stream)
{
    const auto cuda = static_cast<cudaStream_t>(stream);
    if (call->locked)
        add_under_locks<<<kBlocks, kThreads, 0, cuda>>>(*call);
    else
        add_atomically<<<kBlocks, kThreads, 0, cuda>>>(*call);
    return cudaGetLastError() == cudaSuccess;
}
