// select, second launch: the one pass over the tensor. A warp takes a tile: it makes acc, counts what
// reaches the guess, draws so many places with one atomic addition, and stores those elements there.
// acc is written last, with `clear` without what a candidate would take out of it: taking it out is
// free here, and finish gives the few that are not selected back.
#pragma once

#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/select_guess.cuh"

namespace {

template <typename T, typename G>
constexpr uint32_t kGatherThreads = Has<G>::kGradient && sizeof(T) == 4 ? 640 : 512;

// Fours that a warp collects at a time.
template <typename T>
constexpr uint32_t kStaged = sizeof(T) == 8 ? 32 : 64;
template <typename T>
using GatherStage = Stage<T, kStaged<T>>;

// Write the candidates of `n` fours, the tile's first to `place`; returns how many of this lane's are
// not finite.
template <typename T>
__device__ inline uint32_t write_staged(const Select &job, const GatherStage<T> &stage, uint32_t n,
                                        uint32_t place, uint32_t index, Key<T> low,
                                        uint32_t *window)
{
    uint32_t bad = 0;
    for (uint32_t i = lane_of(); i < n; i += kWarp) {
        const uint32_t about = stage.about[i];
        uint32_t at = place + (about >> 16);
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++)
            if ((about >> q & 1) != 0) {
                const T value = stage.value[i][q];
                const uint64_t digit =
                    static_cast<uint64_t>(key_of(value) - low) >> kWindowShift<T>;
                static_cast<T *>(job.value)[at] = value;
                job.index[at] = index + (about >> 4 & 0xfff) * kFour + q;
                if (digit < kDigits)
                    atomicAdd(&window[digit], 1);
                bad += !finite(value);
                at++;
            }
    }
    return bad;
}

// What is left of the lane's candidates.
template <uint32_t Steps, typename T>
__device__ inline void clear_candidates(T (&value)[Steps][kFour], const Mask<Steps> &mask,
                                        trib_dtype entry)
{
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
        if (mask.at(s) != 0)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                if ((mask.at(s) >> q & 1) != 0)
                    value[s][q] = left_of(value[s][q], entry);
}

// One tile; returns how many infinities and NaNs this lane has seen.
template <uint32_t Steps, typename T, typename G>
__device__ inline uint32_t gather_tile(const Select &job, const Range<T, G> &range, uint32_t tile,
                                       Key<T> low, GatherStage<T> &stage, uint32_t *window)
{
    const uint64_t begin = static_cast<uint64_t>(tile) * (Steps * kWarp * kFour);
    T value[Steps][kFour];
    load_tile<kWarp>(value, range, begin, lane_of());

    const Mask<Steps> mask = find_candidates(value, low);
    const Packed<Steps> own = count_bits(mask);
    Packed<Steps> below, all;
    uint32_t total = 0;
#pragma unroll
    for (uint32_t w = 0; w < sizeof own / sizeof own.word[0]; w++) {
        const uint32_t inclusive = warp_inclusive(own.word[w]);
        below.word[w] = inclusive - own.word[w];
        all.word[w] = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
        total = __dp4a(all.word[w], 0x01010101u, total);
    }

    uint32_t base = 0;
    if (total != 0 && lane_of() == 0) {
        base = atomicAdd(&job.control->candidates, total);
        job.tile[tile] = {base, total};
        if (base > job.capacity || total > job.capacity - base)
            atomicMax(&job.control->lost, ~base);
    } else if (lane_of() == 0) {
        job.tile[tile] = {0, 0};
    }
    base = __shfl_sync(kAllLanes, base, 0);
    const bool room = base <= job.capacity && total <= job.capacity - base;
    uint32_t bad = 0;
    // What is not finite is mostly among the candidates.
    if (!room || low > KeyOf<T>::kInfinity)
        bad = count_nonfinite(value);
    if (room && total != 0) {
        const uint32_t index = static_cast<uint32_t>(job.first + begin - range.begin);
        const uint32_t fours = count_fours(mask), last = warp_inclusive(fours);
        const uint32_t all_fours = __shfl_sync(kAllLanes, last, kWarp - 1);
        uint32_t found = 0;
        for (uint32_t start = 0; start < all_fours; start += kStaged<T>) {
            stage_fours(stage, value, mask, below, all, last - fours - start);
            __syncwarp();
            found += write_staged(job, stage, min(all_fours - start, kStaged<T>), base, index, low,
                                  window);
            __syncwarp();
        }
        bad += low > KeyOf<T>::kInfinity ? 0 : found;
        if (Has<G>::kGradient && job.clear)
            clear_candidates(value, mask, job.out.dtype);
    }
    if constexpr (Has<G>::kGradient)
        store_tile<kWarp>(value, range, begin, lane_of());
    return bad;
}

template <typename T, typename G>
__global__ void __launch_bounds__(kGatherThreads<T, G>, 1) select_gather(const Select job)
{
    constexpr uint32_t kThreads = kGatherThreads<T, G>, kWarps = kThreads / kWarp;
    __shared__ uint32_t window[kDigits];
    __shared__ MedianRoom room;
    __shared__ GatherStage<T> stages[kWarps];
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        window[d] = 0;
    const uint64_t lowest = lowest_of<T>(job, room);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        job.control->low = lowest;
        job.control->floor = floor_of<T>(job);
    }
    __syncthreads();

    const Key<T> low = static_cast<Key<T>>(lowest);
    const Range<T, G> range = range_of<T, G>(job.acc, job.first, job.count);
    const uint32_t warps = gridDim.x * kWarps;
    uint32_t bad = 0;
    for (uint32_t tile = blockIdx.x * kWarps + threadIdx.x / kWarp;
         tile < job.tiles; tile += warps)
        bad += gather_tile<kSteps<T, G>>(job, range, tile, low, stages[threadIdx.x / kWarp], window);

    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        if (window[d] != 0)
            atomicAdd(&job.control->window[d], window[d]);
}

} // namespace
