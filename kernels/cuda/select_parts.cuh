// select: the candidates as one sequence in index order, cut into one part per warp, and how a warp
// walks over its part and writes what is selected of it.
//
// They lie where warps of partition reserved places. A tile's Tile says where its candidates lie;
// the sums of the tiles before say where in the sequence: partition adds them up by groups of
// tiles, a warp the rest.
#pragma once

#include "kernels/cuda/select.cuh"

namespace {

constexpr uint32_t kRows = 4; // of 32 elements that a warp loads before it looks at them

// Parts are equal in this sense: to pass a tile costs as much as so many candidates.
constexpr uint32_t kTileWeight = 16;

struct PartsRoom {
    uint32_t before[kGroups]; // candidates in the groups before
    ScanRoom<kFinishThreads> scan;
};

// The threads of all blocks, if block `task` is this one.
struct Place {
    uint32_t task;

    __device__ uint32_t thread() const
    {
        return task * kFinishThreads + threadIdx.x;
    }

    __device__ static uint32_t threads()
    {
        return gridDim.x * kFinishThreads;
    }

    __device__ uint32_t warp() const
    {
        return thread() / kWarp;
    }

    __device__ static uint32_t warps()
    {
        return gridDim.x * kFinishWarps;
    }
};

// room.before, from the groups' numbers.
__device__ inline void scan_groups(const Select &job, PartsRoom &room)
{
    constexpr uint32_t kEach = kGroups / kFinishThreads;
    uint32_t mine[kEach], sum = 0, total;
#pragma unroll
    for (uint32_t i = 0; i < kEach; i++) {
        mine[i] = job.control->groups[threadIdx.x * kEach + i];
        sum += mine[i];
    }
    uint32_t before = block_exclusive<kFinishThreads>(sum, total, room.scan);
#pragma unroll
    for (uint32_t i = 0; i < kEach; i++) {
        room.before[threadIdx.x * kEach + i] = before;
        before += mine[i];
    }
    __syncthreads();
}

// A warp's part of `whole`.
struct Part {
    uint64_t begin, end;
};

__device__ inline Part part_of(uint64_t whole, Place place)
{
    const uint64_t each = (whole + Place::warps() - 1) / Place::warps();
    const uint64_t begin = place.warp() * each;
    return {min(begin, whole), min(begin + each, whole)};
}

// The candidates as a sequence in index order, every tile preceded by kTileWeight places that hold
// nothing.
template <typename T>
struct Listed {
    const Select &job;
    const PartsRoom &room;

    __device__ uint64_t size() const
    {
        return static_cast<uint64_t>(job.control->candidates) +
               static_cast<uint64_t>(job.tiles) * kTileWeight;
    }

    // The place at which a group begins.
    __device__ uint64_t place(uint32_t group) const
    {
        return room.before[group] + min(static_cast<uint64_t>(group) << job.group_bits,
                                        static_cast<uint64_t>(job.tiles)) *
                                        kTileWeight;
    }

    // Walk over the part, row by row: row(is there an element for this lane, it, its index).
    template <bool Indices, typename Row>
    __device__ void walk(Part part, Row row) const
    {
        if (part.begin >= part.end)
            return;
        uint32_t low = 0, high = kGroups - 1; // the last group that begins at or before the part
        while (low < high) {
            const uint32_t middle = low + (high - low + 1) / 2;
            if (place(middle) <= part.begin)
                low = middle;
            else
                high = middle - 1;
        }
        uint64_t at = place(low);
        for (uint64_t tile = static_cast<uint64_t>(low) << job.group_bits;
             tile < job.tiles && at < part.end; tile += kWarp) {
            const bool there = tile + lane_of() < job.tiles;
            const Tile mine = there ? job.tile[tile + lane_of()] : Tile{0, 0};
            const uint32_t weight = there ? mine.count + kTileWeight : 0;
            const uint32_t weights = warp_inclusive(weight);
            const uint64_t first = at + weights - mine.count; // the place of its first candidate
            at += __shfl_sync(kAllLanes, weights, kWarp - 1);
            rows<Indices>(mine.base, clipped(part.begin, first, mine.count),
                          clipped(part.end, first, mine.count), row);
        }
    }

    // The number of `count` places from `first` on that lie before `place`.
    __device__ static uint32_t clipped(uint64_t place, uint64_t first, uint32_t count)
    {
        return place <= first          ? 0
               : place - first < count ? static_cast<uint32_t>(place - first)
                                       : count;
    }

    // Candidates [base + begin, base + end) of every lane's tile, one lane after the other.
    template <bool Indices, typename Row>
    __device__ void rows(uint32_t base, uint32_t begin, uint32_t end, Row &row) const
    {
        const uint32_t n = end - begin;
        const uint32_t inclusive = warp_inclusive(n);
        const uint32_t total = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
        const uint32_t offset = base + begin - (inclusive - n); // of places from items
        for (uint32_t item = 0; item < total; item += kRows * kWarp) {
            T value[kRows];
            uint32_t index[kRows];
#pragma unroll
            for (uint32_t r = 0; r < kRows; r++) {
                const uint32_t mine = item + r * kWarp + lane_of();
                uint32_t owner = 0; // how many lanes' items all lie before mine
#pragma unroll
                for (uint32_t step = kWarp / 2; step > 0; step /= 2)
                    owner += __shfl_sync(kAllLanes, inclusive, owner + step - 1) <= mine ? step : 0;
                const uint32_t at = mine + __shfl_sync(kAllLanes, offset, owner);
                value[r] = mine < total ? static_cast<const T *>(job.value)[at] : T(0);
                index[r] = Indices && mine < total ? job.index[at] : 0;
            }
#pragma unroll
            for (uint32_t r = 0; r < kRows; r++)
                row(item + r * kWarp + lane_of() < total, value[r], index[r]);
        }
    }
};

// Write what is above `cut`, and the first `ties` of what is equal to it, of a warp's part;
// `before` it lies so much. Written(value, index, in) does to acc what has to be done.
template <typename T, typename Items, typename Written>
__device__ inline void write_part(const Select &job, const Items &items, Part part, Key<T> cut,
                                  uint32_t ties, Counts before, Written written)
{
    const uint32_t lower = (1u << lane_of()) - 1;
    items.template walk<true>(part, [&](bool there, T value, uint32_t index) {
        const Key<T> key = key_of(value);
        const uint32_t above = __ballot_sync(kAllLanes, there && key > cut);
        const uint32_t equal = __ballot_sync(kAllLanes, there && key == cut);
        const uint32_t tie = before.equal + __popc(equal & lower);
        const bool in = key > cut || (key == cut && tie < ties);
        if (there && in) {
            const uint32_t place = before.above + __popc(above & lower) + min(tie, ties);
            job.out.index[place] = index;
            put_entry(job.out.value, job.out.dtype, place, value);
        }
        if (there)
            written(value, index, in);
        before.above += __popc(above);
        before.equal += __popc(equal);
    });
}

// Partition has cleared every candidate: restore those that are not selected.
template <typename T>
struct Restore {
    T *sum;
    bool clear;

    __device__ void operator()(T value, uint32_t index, bool in) const
    {
        if (!in && clear)
            sum[index] = value;
    }
};

} // namespace
