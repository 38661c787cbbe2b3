// select, second launch: the one pass over the tensor. A warp takes a tile: it makes acc, counts what
// reaches the guess, draws so many places with one atomic addition, and stores those elements there.
// acc is written with `clear` without what a candidate would take out of it: taking it out is free here,
// and finish gives the few that are not selected back.
//
// While the places are on their way, which takes as long as memory, acc is written and the warp's next
// tile is asked for: the candidates wait in shared memory.
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

// What a warp does, tile after tile.
template <typename T, typename G>
struct Gather {
    static constexpr uint32_t kSize = kSteps<T, G> * kWarp * kFour; // of a tile

    const Select &job;
    const Range<T, G> range;
    const Key<T> low;
    GatherStage<T> &stage;
    uint32_t *const window;
    Coming<kWarp, kSteps<T, G>, T, G> coming;

    __device__ static uint64_t begin_of(uint32_t tile)
    {
        return static_cast<uint64_t>(tile) * kSize;
    }

    // Ask for what will be next, if there is such a tile and it is whole. Otherwise forget what was
    // there, so that no registers are kept for it.
    __device__ void ask(uint64_t tile)
    {
        if (tile < job.tiles && whole_tile<kWarp, kSteps<T, G>>(range, tile * kSize))
            coming.load(range, tile * kSize, lane_of());
        else
            coming = {};
    }

    // Places for `total` candidates of a tile, known to lane 0 when they have come.
    __device__ uint32_t draw(uint32_t tile, uint32_t total) const
    {
        if (lane_of() != 0)
            return 0;
        atomicAdd(&job.control->groups[tile >> job.group_bits], total);
        return atomicAdd(&job.control->candidates, total);
    }

    __device__ bool room(uint32_t total, uint32_t base) const
    {
        return base <= job.capacity && total <= job.capacity - base;
    }

    // Write the candidates of `n` staged fours, the tile's first to `base`. If there is no room for the
    // tile, and acc has been written without them, they go back there. Returns how many of this
    // lane's are not finite.
    __device__ uint32_t write_staged(uint32_t n, uint32_t tile, uint32_t total, uint32_t base,
                                     bool taken_out) const
    {
        const bool kept = room(total, base);
        uint32_t bad = 0;
        for (uint32_t i = lane_of(); i < n; i += kWarp) {
            const uint32_t about = stage.about[i];
            uint32_t at = base + (about >> 16);
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                if ((about >> q & 1) != 0) {
                    const T value = stage.value[i][q];
                    const uint64_t place = begin_of(tile) + (about >> 4 & 0xfff) * kFour + q;
                    const uint64_t digit =
                        static_cast<uint64_t>(key_of(value) - low) >> kWindowShift<T>;
                    if (kept) {
                        static_cast<T *>(job.value)[at] = value;
                        job.index[at] = static_cast<uint32_t>(job.first + place - range.begin);
                    } else if (taken_out) {
                        range.sum[place] = value;
                    }
                    if (digit < kDigits)
                        atomicAdd(&window[digit], 1);
                    bad += !finite(value);
                    at++;
                }
        }
        return bad;
    }

    // A tile that has been asked for; asks for `next`. Returns how many infinities and NaNs this lane
    // has seen.
    __device__ uint32_t take(uint32_t tile, uint64_t next)
    {
        constexpr uint32_t kFours = kSteps<T, G>;
        const bool takes_out = Has<G>::kGradient && job.clear;
        T value[kFours][kFour];
        if (whole_tile<kWarp, kFours>(range, begin_of(tile)))
            coming.make(value, range);
        else
            load_elements<kWarp>(value, range, begin_of(tile), lane_of());
        const Mask<kFours> mask = find_candidates(value, low);
        const Packed<kFours> own = count_bits(mask);
        Packed<kFours> below, all;
        uint32_t total = 0;
#pragma unroll
        for (uint32_t w = 0; w < sizeof own / sizeof own.word[0]; w++) {
            const uint32_t inclusive = warp_inclusive(own.word[w]);
            below.word[w] = inclusive - own.word[w];
            all.word[w] = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
            total = __dp4a(all.word[w], 0x01010101u, total);
        }
        // What is not finite is mostly among the candidates.
        const bool beyond = low > KeyOf<T>::kInfinity;
        uint32_t bad = beyond ? count_nonfinite(value) : 0, drawn = 0, left = 0;
        if (total != 0) {
            drawn = draw(tile, total);
            const uint32_t fours = count_fours(mask), last = warp_inclusive(fours);
            uint32_t first = last - fours;
            left = __shfl_sync(kAllLanes, last, kWarp - 1);
            bool lost = false;
            for (; left > kStaged<T>; left -= kStaged<T>, first -= kStaged<T>) { // hardly ever
                const uint32_t base = __shfl_sync(kAllLanes, drawn, 0);
                stage_fours(stage, value, mask, below, all, first);
                __syncwarp();
                const uint32_t found = write_staged(kStaged<T>, tile, total, base, false);
                bad += beyond ? 0 : found;
                lost = !room(total, base);
                __syncwarp();
            }
            stage_fours(stage, value, mask, below, all, first);
            if (takes_out && !lost)
                clear_candidates(value, mask, job.out.dtype);
        }
        if constexpr (Has<G>::kGradient)
            store_tile<kWarp>(value, range, begin_of(tile), lane_of());
        ask(next);
        const uint32_t base = __shfl_sync(kAllLanes, drawn, 0); // now it is waited for
        if (lane_of() == 0) {
            job.tile[tile] = {base, total};
            if (!room(total, base))
                atomicMax(&job.control->lost, ~base);
        }
        __syncwarp();
        const uint32_t found = write_staged(left, tile, total, base, takes_out);
        __syncwarp();
        return bad + (beyond ? 0 : found);
    }
};

template <typename T, typename G>
__global__ void __launch_bounds__(kGatherThreads<T, G>, 1) select_gather(const Select job)
{
    constexpr uint32_t kThreads = kGatherThreads<T, G>, kWarps = kThreads / kWarp;
    __shared__ uint32_t window[kDigits];
    __shared__ MedianRoom room;
    __shared__ GatherStage<T> stages[kWarps];
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        window[d] = 0;
    wait_for_previous();
    let_next_start();
    const uint64_t lowest = lowest_of<T>(job, room);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        job.control->low = lowest;
        job.control->floor = floor_of<T>(job);
    }
    __syncthreads();

    Gather<T, G> gather = {job,
                           range_of<T, G>(job.acc, job.first, job.count),
                           static_cast<Key<T>>(lowest),
                           stages[threadIdx.x / kWarp],
                           window,
                           {}};
    const uint32_t warps = gridDim.x * kWarps;
    uint64_t tile = blockIdx.x * kWarps + threadIdx.x / kWarp;
    uint32_t bad = 0;
    for (gather.ask(tile); tile < job.tiles; tile += warps)
        bad += gather.take(static_cast<uint32_t>(tile), tile + warps);

    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        if (window[d] != 0)
            atomicAdd(&job.control->window[d], window[d]);
}

} // namespace
