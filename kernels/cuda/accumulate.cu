// accumulate: acc = gradient + decay * residual. decay, residual: the residual by itself. The first
// two move every element once, each warp one tile at a time.
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/stream.cuh"

namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / kWarp;
constexpr uint32_t kBlocksEach = 4; // of a multiprocessor
template <typename T, typename G = None>
constexpr uint32_t kSteps = sizeof(T) == 8 || Has<G>::kVelocity ? 4 : 8;

// body(where the tile begins), for every tile of the first `end` elements.
template <uint32_t Size, typename Body>
__device__ inline void for_tiles(uint64_t end, Body body)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * kWarps * Size;
    for (uint64_t begin = static_cast<uint64_t>(blockIdx.x * kWarps + threadIdx.x / kWarp) * Size;
         begin < end; begin += stride)
        body(begin);
}

struct Accumulate {
    tri_accumulator acc;
    uint32_t *nonfinite;
};

template <typename T, typename G>
__global__ void __launch_bounds__(kThreads) accumulate(const Accumulate job)
{
    const Range<T, G> range = range_of<T, G>(job.acc, 0, job.acc.count);
    uint32_t bad = 0;
    for_tiles<kSteps<T, G> * kWarp * kFour>(range.end, [&](uint64_t begin) {
        T value[kSteps<T, G>][kFour];
        load_tile<kWarp>(value, range, begin, lane_of());
        bad += count_nonfinite(value);
        if constexpr (Has<G>::kGradient)
            store_tile<kWarp>(value, range, begin, lane_of());
    });
    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
}

template <typename T, typename G>
trib_status run(const Accumulate &job, trib_stream stream)
{
    const trib_status status = zero_word(job.nonfinite, stream);
    if (status != TRIB_OK)
        return status;
    if (job.acc.count == 0 || (!Has<G>::kGradient && job.nonfinite == nullptr))
        return TRIB_OK;
    const uint32_t blocks =
        blocks_for(job.acc.count, kSteps<T, G> * kFour * kThreads, kBlocksEach * multiprocessors());
    return launch_job<accumulate<T, G>>(blocks, kThreads, job, stream);
}

struct Decay {
    tri_accumulator acc;
    double factor;
    const uint32_t *decision;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) decay(const Decay job)
{
    if (*job.decision == 0)
        return;
    // The residual is what is walked over.
    tri_accumulator acc = job.acc;
    acc.buffer[0] = residual_of<T>(job.acc);
    acc.current = nullptr;
    const Range<T, None> range = range_of<T, None>(acc, 0, acc.count);
    const T factor = static_cast<T>(job.factor);
    for_tiles<kSteps<T> * kWarp * kFour>(range.end, [&](uint64_t begin) {
        T value[kSteps<T>][kFour];
        if (factor != T(0))
            load_tile<kWarp>(value, range, begin, lane_of());
#pragma unroll
        for (uint32_t s = 0; s < kSteps<T>; s++)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                value[s][q] = factor == T(0) ? T(0) : product(value[s][q], factor);
        store_tile<kWarp>(value, range, begin, lane_of());
    });
}

struct Residual {
    tri_accumulator acc;
    void *out;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) residual(const Residual job)
{
    const T *const from = residual_of<T>(job.acc);
    T *const to = static_cast<T *>(job.out);
    if (to == from)
        return;
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * kThreads;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < job.acc.count;
         i += stride)
        to[i] = from[i];
}

} // namespace

trib_status tri_cuda_sparse_accumulate(const struct tri_accumulator *acc, uint32_t *nonfinite,
                                       trib_stream stream)
{
    const Accumulate job = {*acc, nonfinite};
    return dispatch_velocity(*acc, acc->current != nullptr, [&](auto sum, auto gradient) {
        return run<decltype(sum), decltype(gradient)>(job, stream);
    });
}

trib_status tri_cuda_sparse_decay(const struct tri_accumulator *acc, double factor,
                                  const uint32_t *decision, trib_stream stream)
{
    if (acc->count == 0)
        return TRIB_OK;
    const uint32_t blocks =
        blocks_for(acc->count, kSteps<float> * kFour * kThreads, kBlocksEach * multiprocessors());
    return dispatch_sum(acc->dtype, [&](auto sum) {
        return launch_job<decay<decltype(sum)>>(blocks, kThreads, Decay{*acc, factor, decision},
                                                stream);
    });
}

trib_status tri_cuda_sparse_residual(const struct tri_accumulator *acc, void *out,
                                     trib_stream stream)
{
    if (acc->count == 0)
        return TRIB_OK;
    const uint32_t blocks =
        blocks_for(acc->count, kFour * kThreads, kBlocksEach * multiprocessors());
    return dispatch_sum(acc->dtype, [&](auto sum) {
        return launch_job<residual<decltype(sum)>>(blocks, kThreads, Residual{*acc, out}, stream);
    });
}
