// select, second launch: the one pass over the tensor. A warp takes a tile: it makes acc, counts what
// reaches the guess, draws so many places with one atomic addition, and stores those elements there.
// acc is written last, with `clear` without what a candidate would take out of it: taking it out is
// free here, and finish gives the few that are not selected back.
#pragma once

#include "kernels/cuda/select_guess.cuh"

namespace {

constexpr uint32_t kGatherThreads = 512;

// What a lane has of the tile that reaches the guess: for each step a number of 0 to 4, and after the
// sum over lanes at most 128; four steps share a word.
template <uint32_t Steps>
struct Packed {
    uint32_t word[Steps / 4];

    __device__ uint32_t at(uint32_t step) const
    {
        return word[step / 4] >> step % 4 * 8 & 0xff;
    }
};

// Candidates of this block by the digit of their distance from the guess.
__device__ inline void add_window(uint32_t *window, uint64_t digit)
{
    if (digit < kDigits)
        atomicAdd(&window[digit], 1);
}

// The candidates of a tile: to their places from `base` on, in index order.
template <bool Clears, uint32_t Steps, typename T>
__device__ inline void store_candidates(const Select &job, T (&value)[Steps][kFour],
                                        const Packed<Steps> &own, const Packed<Steps> &inclusive,
                                        const Packed<Steps> &all, uint32_t base, uint64_t index,
                                        Key<T> low, uint32_t *window)
{
    uint32_t before = base; // places of the steps before
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++) {
        if (own.at(s) != 0) {
            uint32_t place = before + inclusive.at(s) - own.at(s);
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++) {
                const Key<T> key = key_of(value[s][q]);
                if (key < low)
                    continue;
                static_cast<T *>(job.value)[place] = value[s][q];
                job.index[place] = static_cast<uint32_t>(index + s * kWarp * kFour + q);
                add_window(window, static_cast<uint64_t>(key - low) >> kWindowShift<T>);
                if (Clears && job.clear)
                    value[s][q] = left_of(value[s][q], job.out.dtype);
                place++;
            }
        }
        before += all.at(s);
    }
}

template <uint32_t Steps, typename T>
__device__ inline Packed<Steps> count_candidates(const T (&value)[Steps][kFour], Key<T> low)
{
    Packed<Steps> own = {};
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++)
            own.word[s / 4] += key_of(value[s][q]) >= low ? 1u << s % 4 * 8 : 0;
    return own;
}

// One tile; returns how many infinities and NaNs this lane has seen.
template <uint32_t Steps, typename T, typename G>
__device__ inline uint32_t gather_tile(const Select &job, const Range<T, G> &range, uint32_t tile,
                                       Key<T> low, uint32_t *window)
{
    const uint64_t begin = static_cast<uint64_t>(tile) * (Steps * kWarp * kFour);
    T value[Steps][kFour];
    load_tile<kWarp>(value, range, begin, lane_of());

    const Packed<Steps> own = count_candidates(value, low);
    Packed<Steps> inclusive, all;
    uint32_t total = 0;
#pragma unroll
    for (uint32_t w = 0; w < Steps / 4; w++) {
        inclusive.word[w] = warp_inclusive(own.word[w]);
        all.word[w] = __shfl_sync(kAllLanes, inclusive.word[w], kWarp - 1);
    }
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
        total += all.at(s);

    uint32_t bad = 0;
    uint32_t base = 0;
    if (total != 0) {
        if (lane_of() == 0) {
            base = atomicAdd(&job.control->candidates, total);
            if (base > job.capacity || total > job.capacity - base)
                atomicMax(&job.control->lost, ~base);
        }
        base = __shfl_sync(kAllLanes, base, 0);
        // What is not finite is mostly among the candidates, so that only here it is looked for.
        if (low <= KeyOf<T>::kInfinity)
            bad = count_nonfinite(value);
        if (base <= job.capacity && total <= job.capacity - base)
            store_candidates<Has<G>::kGradient>(
                job, value, own, inclusive, all, base,
                job.first + begin + lane_of() * kFour - range.begin, low, window);
    }
    if (low > KeyOf<T>::kInfinity)
        bad = count_nonfinite(value);
    if (lane_of() == 0)
        job.tile[tile] = {base, total};
    if constexpr (Has<G>::kGradient)
        store_tile<kWarp>(value, range, begin, lane_of());
    return bad;
}

template <typename T, typename G>
__global__ void __launch_bounds__(kGatherThreads, 1) select_gather(const Select job)
{
    __shared__ uint32_t window[kDigits];
    __shared__ MedianRoom room;
    for (uint32_t d = threadIdx.x; d < kDigits; d += kGatherThreads)
        window[d] = 0;
    const uint64_t lowest = lowest_of<T>(job, room);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        job.control->low = lowest;
        job.control->floor = floor_of<T>(job);
    }
    __syncthreads();

    const Key<T> low = static_cast<Key<T>>(lowest);
    const Range<T, G> range = range_of<T, G>(job.acc, job.first, job.count);
    const uint32_t warps = gridDim.x * (kGatherThreads / kWarp);
    uint32_t bad = 0;
    for (uint32_t tile = blockIdx.x * (kGatherThreads / kWarp) + threadIdx.x / kWarp;
         tile < job.tiles; tile += warps)
        bad += gather_tile<kSteps<T, G>>(job, range, tile, low, window);

    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < kDigits; d += kGatherThreads)
        if (window[d] != 0)
            atomicAdd(&job.control->window[d], window[d]);
}

} // namespace
