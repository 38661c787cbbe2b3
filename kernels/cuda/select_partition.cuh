// select, second launch: the one pass over the tensor. A warp takes a tile: it makes acc, counts
// the elements that reach the guess, and stores them in places of their own. With `clear`, acc is
// written as if every candidate were selected: clearing is free here, and finish restores the few
// that are not selected.
//
// A warp reserves places for several tiles with one atomic addition: all warps add to one word, one
// after the other, and in place an addition a tile takes a sixth of select's time. It reserves those of
// a tile with many candidates alone; while that is on its way, the warp writes acc and prefetches its
// next tile. The candidates wait in shared memory.
#pragma once

#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/select_guess.cuh"

namespace {

// As many as have registers for a tile on its way.
template <typename T, typename G>
constexpr uint32_t kPartitionThreads =
    Has<G>::kGradient && !Has<G>::kVelocity && sizeof(T) == 4 ? 640 : 512;

// Fours that a warp collects at a time.
template <typename T>
constexpr uint32_t kStaged = sizeof(T) == 8 ? 32 : 64;
template <typename T>
using PartitionStage = Stage<T, kStaged<T>>;

// Replace the lane's candidates by the rest that their entries leave.
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

// A warp's work, tile after tile.
template <typename T, typename G>
struct Partition {
    static constexpr uint32_t kFours = kSteps<T, G>;          // of a lane
    static constexpr uint32_t kSize = kFours * kWarp * kFour; // of a tile

    const Select &job;
    const Range<T, G> range;
    PartitionStage<T> &stage;
    uint32_t *const window;
    Prefetch<kWarp, kSteps<T, G>, T, G> prefetched;
    Key<T> low;                // the least of a candidate
    uint32_t chunk, chunk_end; // places that are reserved and not used yet
    uint32_t found;            // candidates

    __device__ static uint64_t begin_of(uint32_t tile)
    {
        return static_cast<uint64_t>(tile) * kSize;
    }

    // Load the next tile, if there is one and it is whole. Otherwise forget the last one, so that
    // no registers are kept for it.
    __device__ void prefetch(uint64_t tile)
    {
        if (tile < job.tiles && whole_tile<kWarp, kSteps<T, G>>(range, tile * kSize))
            prefetched.load(range, tile * kSize, lane_of());
        else
            prefetched = {};
    }

    // Candidates leave acc as it is written.
    __device__ bool clears() const
    {
        return Has<G>::kGradient && job.clear;
    }

    // Reserve `n` places. Lane 0 has the first.
    __device__ uint32_t draw(uint32_t n) const
    {
        return lane_of() == 0 ? atomicAdd(&job.control->reserved, n) : 0;
    }

    // Reserve places for `total` candidates of a tile: of the chunk, or of a new one, or its own if
    // they are more than a quarter of a chunk. Lane 0 has the first.
    __device__ uint32_t reserve(uint32_t tile, uint32_t total)
    {
        if (lane_of() == 0)
            atomicAdd(&job.control->groups[tile >> job.group_bits], total);
        found += total;
        if (total > chunk_end - chunk) {
            if (total * 4 >= job.chunk)
                return draw(total);
            empty(chunk, chunk_end);
            chunk = __shfl_sync(kAllLanes, draw(job.chunk), 0);
            chunk_end = chunk + job.chunk;
        }
        const uint32_t base = chunk;
        chunk += total;
        return base;
    }

    // No candidate is in these places.
    __device__ void empty(uint32_t begin, uint32_t end) const
    {
        for (uint32_t at = begin + lane_of(); at < min(end, job.capacity); at += kWarp)
            static_cast<T *>(job.value)[at] = T(0);
    }

    __device__ bool fits(uint32_t total, uint32_t base) const
    {
        return base <= job.capacity && total <= job.capacity - base;
    }

    // Write the candidates of `n` staged fours, the tile's first to `base`. If there is no room for
    // the tile, and they have been cleared from acc, put them back there. Returns how many of this
    // lane's are not finite.
    __device__ uint32_t write_staged(uint32_t n, uint32_t tile, uint32_t total, uint32_t base,
                                     bool cleared) const
    {
        const bool kept = fits(total, base);
        uint32_t bad = 0;
        for (uint32_t i = lane_of(); i < n; i += kWarp) {
            const FourTag tag = stage.tag[i];
            uint32_t at = base + tag.before();
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                if (tag.has(q)) {
                    const T value = stage.value[i][q];
                    const uint64_t place = begin_of(tile) + tag.place(q);
                    const uint64_t digit =
                        static_cast<uint64_t>(key_of(value) - low) >> kWindowShift<T>;
                    if (kept) {
                        static_cast<T *>(job.value)[at] = value;
                        job.index[at] = static_cast<uint32_t>(job.first + place - range.begin);
                    } else if (cleared) {
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

    // Stage the fours of a tile that have candidates. If they are more than the stage holds, which
    // is rare, all but the last are written at once, when the tile's places are known. Unless there
    // is no room for the tile, what its candidates take out of acc leaves `value`. Returns how many
    // fours are staged at the end; `bad` becomes how many of the written are not finite.
    __device__ uint32_t stage_tile(T (&value)[kFours][kFour], const Mask<kFours> &mask,
                                   const Ranks<kFours> &ranks, uint32_t tile, uint32_t reserved,
                                   uint32_t &bad) const
    {
        const uint32_t total = ranks.total();
        const uint32_t fours = count_fours(mask), last = warp_inclusive(fours);
        uint32_t first = last - fours;
        uint32_t left = __shfl_sync(kAllLanes, last, kWarp - 1);
        bool lost = false;
        for (; left > kStaged<T>; left -= kStaged<T>, first -= kStaged<T>) {
            const uint32_t base = __shfl_sync(kAllLanes, reserved, 0);
            stage_fours(stage, value, mask, ranks, first);
            __syncwarp();
            bad += write_staged(kStaged<T>, tile, total, base, false);
            lost = !fits(total, base);
            __syncwarp();
        }
        stage_fours(stage, value, mask, ranks, first);
        if (clears() && !lost)
            clear_candidates(value, mask, job.out.dtype);
        return left;
    }

    // When the tile's places are known: note where its candidates lie, and write the staged ones.
    // Returns how many of this lane's are not finite.
    __device__ uint32_t write_tile(uint32_t staged, uint32_t tile, uint32_t total,
                                   uint32_t reserved) const
    {
        const uint32_t base = __shfl_sync(kAllLanes, reserved, 0); // this waits for them
        if (lane_of() == 0)
            job.tile[tile] = {base, total};
        if (!fits(total, base)) {
            job.control->lost = 1;
            empty(base, base + total);
        }
        __syncwarp();
        const uint32_t bad = write_staged(staged, tile, total, base, clears());
        __syncwarp();
        return bad;
    }

    // Partition a tile that has been prefetched, and write its velocity; prefetch `next`. Returns how
    // many infinities and NaNs this lane has seen.
    __device__ uint32_t take(uint32_t tile, uint64_t next)
    {
        T value[kFours][kFour];
        if (whole_tile<kWarp, kFours>(range, begin_of(tile)))
            prefetched.make(value, range, begin_of(tile), lane_of());
        else
            load_elements<kWarp>(value, range, begin_of(tile), lane_of());
        const Mask<kFours> mask = find_candidates(value, low);
        const Ranks<kFours> ranks = rank_candidates(mask);
        const uint32_t total = ranks.total();
        // Infinities and NaNs are mostly among the candidates.
        const bool beyond = low > KeyOf<T>::kInfinity;
        const uint32_t others = beyond ? count_nonfinite(value) : 0;
        uint32_t reserved = 0, staged = 0, bad = 0;
        if (total != 0) {
            reserved = reserve(tile, total);
            staged = stage_tile(value, mask, ranks, tile, reserved, bad);
        }
        if constexpr (Has<G>::kGradient)
            store_tile<kWarp>(value, range, begin_of(tile), lane_of());
        prefetch(next);
        bad += write_tile(staged, tile, total, reserved);
        return beyond ? others : bad;
    }
};

template <typename T, typename G>
__global__ void __launch_bounds__(kPartitionThreads<T, G>, 1) select_partition(const Select job)
{
    constexpr uint32_t kThreads = kPartitionThreads<T, G>, kWarps = kThreads / kWarp;
    static_assert(kThreads >= 4 * kMostGuesses, "median_of has four threads for each guess");
    __shared__ uint32_t window[kDigits];
    __shared__ MedianRoom room;
    __shared__ PartitionStage<T> stages[kWarps];
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        window[d] = 0;
    // Neighbouring tiles are of different blocks, so that all multiprocessors share the last of them.
    const uint32_t warps = gridDim.x * kWarps;
    uint64_t tile = threadIdx.x / kWarp * gridDim.x + blockIdx.x;
    Partition<T, G> partition = {job,
                                 range_of<T, G>(job.acc, job.first, job.count),
                                 stages[threadIdx.x / kWarp],
                                 window,
                                 {},
                                 0,
                                 0,
                                 0,
                                 0};
    // What made the range was over before guess began, which is launched to begin behind it, and guess
    // leaves the range alone: so the first tile is on its way before the guess is known.
    partition.prefetch(tile);
    wait_for_previous();
    let_next_start();
    const uint64_t lowest = lowest_of<T>(job, room);
    partition.low = static_cast<Key<T>>(lowest);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        job.control->low = lowest;
        job.control->floor = floor_of<T>(job);
    }
    __syncthreads();

    uint32_t bad = 0;
    for (; tile < job.tiles; tile += warps)
        bad += partition.take(static_cast<uint32_t>(tile), tile + warps);

    partition.empty(partition.chunk, partition.chunk_end);
    if (lane_of() == 0 && partition.found != 0)
        atomicAdd(&job.control->candidates, partition.found);
    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        if (window[d] != 0)
            atomicAdd(&job.control->window[d], window[d]);
}

} // namespace
