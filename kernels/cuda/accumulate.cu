// accumulate: acc = gradient + decay * residual, and its bf16 taken out. decay, residual: the residual
// by itself. The first two move every element once, each warp one tile at a time.
#include "kernels/cuda/sign.cuh"
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

// A four of Bf16, aligned as one.
__device__ inline void store_four(Bf16 *out, const Bf16 (&in)[kFour])
{
    __stcs(reinterpret_cast<uint2 *>(out),
           make_uint2(in[0].bits | static_cast<uint32_t>(in[1].bits) << 16,
                      in[2].bits | static_cast<uint32_t>(in[3].bits) << 16));
}

// Takes what is sent out of a tile. `out`: where the range begins.
template <uint32_t Width, uint32_t Steps, typename G>
__device__ inline void round_off(float (&value)[Steps][kFour], Bf16 *out,
                                 const Range<float, G> &range, uint64_t begin, uint32_t me)
{
    const bool whole =
        whole_tile<Width, Steps>(range, begin) && aligned_four(out) && range.begin == 0;
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++) {
        const uint64_t i = begin + (s * Width + me) * kFour;
        Bf16 rounded[kFour];
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++) {
            rounded[q] = as_bf16(value[s][q]);
            rounded[q].bits = (rounded[q].bits & 0x7fffu) == 0 ? 0 : rounded[q].bits;
            value[s][q] = plus(value[s][q], -widen(rounded[q]));
        }
        if (whole) {
            store_four(out + i, rounded);
            continue;
        }
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++)
            if (i + q >= range.begin && i + q < range.end)
                out[i + q - range.begin] = rounded[q];
    }
}

// Rounds: acc.rounded is there. Both in one would cost the others half of their threads.
template <typename T, typename G, bool Rounds>
__global__ void __launch_bounds__(kThreads) accumulate(const Accumulate job)
{
    const Range<T, G> range = range_of<T, G>(job.acc, 0, job.acc.count);
    uint32_t bad = 0;
    for_tiles<kSteps<T, G> * kWarp * kFour>(range.end, [&](uint64_t begin) {
        T value[kSteps<T, G>][kFour];
        load_tile<kWarp>(value, range, begin, lane_of());
        bad += count_nonfinite(value);
        if constexpr (Rounds)
            round_off<kWarp>(value, static_cast<Bf16 *>(job.acc.rounded), range, begin, lane_of());
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
    if (job.acc.count == 0 || (!Has<G>::kGradient && job.nonfinite == nullptr))
        return TRIB_OK;
    const uint32_t blocks =
        blocks_for(job.acc.count, kSteps<T, G> * kFour * kThreads, kBlocksEach * multiprocessors());
    if constexpr (sizeof(T) == 4 && Has<G>::kGradient)
        if (job.acc.rounded != nullptr)
            return launch_job<accumulate<T, G, true>>(blocks, kThreads, job, stream);
    return launch_job<accumulate<T, G, false>>(blocks, kThreads, job, stream);
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

trib_status tri_cuda_sparse_accumulate(const struct tri_accumulator *acc,
                                       struct tri_signing signing, trib_stream stream)
{
    const Accumulate job = {*acc, nonfinite_of(signing)};
    const trib_status status = tri_cuda_sign(signing, stream);
    if (status != TRIB_OK)
        return status;
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
