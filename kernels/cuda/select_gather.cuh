// select, second launch: the one pass over the tensor. A warp takes a tile: it makes acc, counts what
// reaches the guess, draws so many places with one atomic addition, and stores those elements there.
// acc is written with `clear` without what a candidate would take out of it: taking it out is free here,
// and finish gives the few that are not selected back.
//
// Nothing is waited for at once. A warp asks for its next tile as soon as it has this one in registers,
// so that all the time a tile of every warp is on its way. And the places are needed only when the next
// tile's candidates are known: until then those of this tile wait in shared memory.
#pragma once

#include "kernels/cuda/ahead.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/select_guess.cuh"

namespace {

// Of a block: as many as there are registers for, if there is as much shared memory.
template <typename T, typename G>
constexpr uint32_t kGatherThreads = sizeof(T) == 8 ? 512 : Has<G>::kGradient ? 768 : 640;

// Fours that a warp collects at a time.
template <typename T>
constexpr uint32_t kStaged = sizeof(T) == 8 ? 32 : 48;
template <typename T>
using GatherStage = Stage<T, kStaged<T>>;

// What a warp has in shared memory, and what a block has.
template <typename T, typename G>
struct GatherWarp {
    Ahead<kSteps<T, G>, T, G> ahead;
    GatherStage<T> stage;
};
struct GatherBlock {
    uint32_t window[kDigits];
    MedianRoom median;
};

// What is left of the lane's candidates.
template <uint32_t Steps, typename T>
__device__ inline void clear_candidates(T (&value)[Steps][kFour], const Mask<Steps> &mask,
                                        trib_dtype entry)
{
    const bool narrow = entry == TRIB_BF16;
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
        if (!narrow) {
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                value[s][q] =
                    (mask.at(s) >> q & 1) != 0 ? plus(value[s][q], -value[s][q]) : value[s][q];
        } else if (mask.at(s) != 0) {
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                if ((mask.at(s) >> q & 1) != 0)
                    value[s][q] = left_of(value[s][q], entry);
        }
}

// What a warp does, tile after tile.
template <typename T, typename G>
struct Gather {
    static constexpr uint32_t kFours = kSteps<T, G>, kSize = kFours * kWarp * kFour; // of a tile
    static constexpr bool kTakesOut = Has<G>::kGradient; // with `clear`
    static constexpr uint32_t kNone = ~0u;

    const Select &job;
    const Range<T, G> range;
    const Key<T> low;
    Ahead<kFours, T, G> &ahead; // the tile that was asked for, if it is whole
    GatherStage<T> &stage;
    uint32_t *const window;
    // The tile whose candidates are staged, if any: where, how many it has, in how many fours that are
    // not written yet; what lane 0 has drawn.
    uint32_t waiting, total, left, drawn;

    __device__ static uint64_t begin_of(uint64_t tile)
    {
        return tile * kSize;
    }

    // What is not finite is among the candidates, unless so.
    __device__ bool beyond() const
    {
        return low > KeyOf<T>::kInfinity;
    }

    __device__ bool whole(uint64_t tile) const
    {
        return tile < job.tiles && whole_tile<kWarp, kFours>(range, begin_of(tile));
    }

    // Ask for what will be next.
    __device__ void ask(uint64_t tile)
    {
        if (whole(tile))
            ahead.ask(range, begin_of(tile));
        end_group();
    }

    __device__ void get(T (&value)[kFours][kFour], uint64_t tile) const
    {
        wait_for_groups<0>();
        if (whole(tile))
            ahead.make(value, range);
        else
            load_elements<kWarp>(value, range, begin_of(tile), lane_of());
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

    // Write the candidates of `n` staged fours of a tile that has `all`, its first to `base`. If there is
    // no room for the tile, and acc has been written without them, they go back there. Returns how
    // many of this lane's are not finite, if they are counted here.
    __device__ uint32_t write_staged(uint32_t n, uint32_t tile, uint32_t all, uint32_t base,
                                     bool taken_out) const
    {
        const bool kept = room(all, base);
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
        return beyond() ? 0 : bad;
    }

    // The places of the tile that waits have been drawn long ago.
    __device__ uint32_t write_waiting()
    {
        if (waiting == kNone)
            return 0;
        const uint32_t base = __shfl_sync(kAllLanes, drawn, 0);
        if (lane_of() == 0) {
            job.tile[waiting] = {base, total};
            if (!room(total, base))
                atomicMax(&job.control->lost, ~base);
        }
        __syncwarp();
        const uint32_t bad = write_staged(left, waiting, total, base, kTakesOut && job.clear);
        __syncwarp();
        return bad;
    }

    // Draw and stage, and take out of `value`, what has been found; `all` is how many of each step.
    // Returns how many that were written at once are not finite.
    __device__ uint32_t put_aside(T (&value)[kFours][kFour], const Mask<kFours> &mask,
                                  const Packed<kFours> &below, const Packed<kFours> &all)
    {
        uint32_t bad = 0;
        drawn = draw(waiting, total);
        const uint32_t fours = count_fours(mask), last = warp_inclusive(fours);
        uint32_t first = last - fours;
        left = __shfl_sync(kAllLanes, last, kWarp - 1);
        bool lost = false;
        for (; left > kStaged<T>; left -= kStaged<T>, first -= kStaged<T>) { // where many are
            const uint32_t base = __shfl_sync(kAllLanes, drawn, 0);
            stage_fours(stage, value, mask, below, all, first);
            __syncwarp();
            bad += write_staged(kStaged<T>, waiting, total, base, false);
            lost = !room(total, base);
            __syncwarp();
        }
        stage_fours(stage, value, mask, below, all, first);
        if (kTakesOut && job.clear && !lost)
            clear_candidates(value, mask, job.out.dtype);
        return bad;
    }

    // A tile that has been asked for; asks for `next`. Returns how many infinities and NaNs this lane
    // has seen, here or among what has waited.
    __device__ uint32_t take(uint32_t tile, uint64_t next)
    {
        T value[kFours][kFour];
        get(value, tile);
        ask(next);
        const Mask<kFours> mask = find_candidates(value, low);
        const Packed<kFours> own = count_bits(mask);
        Packed<kFours> below, all;
        uint32_t found = 0;
#pragma unroll
        for (uint32_t w = 0; w < sizeof own / sizeof own.word[0]; w++) {
            const uint32_t inclusive = warp_inclusive(own.word[w]);
            below.word[w] = inclusive - own.word[w];
            all.word[w] = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
            found = __dp4a(all.word[w], 0x01010101u, found);
        }
        uint32_t bad = write_waiting();
        bad += beyond() ? count_nonfinite(value) : 0;
        waiting = tile;
        total = found;
        left = drawn = 0;
        if (total != 0)
            bad += put_aside(value, mask, below, all);
        if constexpr (kTakesOut)
            store_tile<kWarp>(value, range, begin_of(tile), lane_of());
        return bad;
    }
};

template <typename T, typename G>
__global__ void __launch_bounds__(kGatherThreads<T, G>, 1) select_gather(const Select job)
{
    __shared__ GatherBlock block;
    for (uint32_t d = threadIdx.x; d < kDigits; d += blockDim.x)
        block.window[d] = 0;
    wait_for_previous();
    let_next_start();
    const uint64_t lowest = lowest_of<T>(job, block.median);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        job.control->low = lowest;
        job.control->floor = floor_of<T>(job);
    }
    __syncthreads();

    const uint32_t warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp;
    GatherWarp<T, G> &mine = reinterpret_cast<GatherWarp<T, G> *>(launched_shared())[warp];
    Gather<T, G> gather = {job,
                           range_of<T, G>(job.acc, job.first, job.count),
                           static_cast<Key<T>>(lowest),
                           mine.ahead,
                           mine.stage,
                           block.window,
                           Gather<T, G>::kNone,
                           0,
                           0,
                           0};
    const uint32_t stride = gridDim.x * warps;
    uint64_t tile = blockIdx.x * warps + warp;
    uint32_t bad = 0;
    for (gather.ask(tile); tile < job.tiles; tile += stride)
        bad += gather.take(static_cast<uint32_t>(tile), tile + stride);
    bad += gather.write_waiting();

    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < kDigits; d += blockDim.x)
        if (block.window[d] != 0)
            atomicAdd(&job.control->window[d], block.window[d]);
}

template <typename T, typename G>
inline trib_status launch_gather(const Select &job, uint32_t processors, trib_stream stream)
{
    constexpr uint32_t kEach = sizeof(GatherWarp<T, G>), kMost = kGatherThreads<T, G> / kWarp;
    const uint32_t room = (most_shared() - sizeof(GatherBlock)) / kEach;
    const uint32_t warps = room < kMost ? room : kMost;
    return launch_next(select_gather<T, G>, blocks_for(job.tiles, warps, processors),
                       warps * kWarp, job, stream, warps * kEach);
}

} // namespace
