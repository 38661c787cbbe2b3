// Lists that are added up in a stretch of indices, a tile, by one block: list after list, and all
// entries of a list at once, for no index occurs twice in it.
#pragma once

#include "kernels/cuda/abort.cuh"
#include "kernels/cuda/entries.cuh"

namespace {

constexpr uint32_t kAhead = 4;    // loads in flight, of a thread
constexpr uint32_t kFewLists = 8; // travel in a small launch, which costs less

template <uint32_t Capacity>
struct Lists {
    static_assert(Capacity % kAhead == 0, "kAhead of them are looked at together");
    uint32_t n;
    tri_entries list[Capacity];
};

template <uint32_t Capacity>
inline Lists<Capacity> lists_of(const tri_merge &merge)
{
    Lists<Capacity> job = {static_cast<uint32_t>(merge.n), {}};
    for (int32_t l = 0; l < merge.n; l++)
        job.list[l] = merge.lists[l];
    return job;
}

// What a merge asks that writes a dense result of `result` bytes, or none. `copy`: in its scratch.
inline Asking asking_of(const tri_merge &merge, uint64_t result, void *copy)
{
    uint64_t bytes = result;
    for (int32_t l = 0; l < merge.n; l++)
        bytes += merge.lists[l].capacity *
                 (sizeof(uint32_t) + uint64_t{trib_dtype_size(merge.lists[l].dtype)});
    return {bytes < kLongBytes ? nullptr : merge.abort_flag, static_cast<AbortCopy *>(copy)};
}

// An entry's place in the tile, and its value. A place beyond the tile: no entry.
template <typename T>
struct Addend {
    uint32_t place;
    T value;
};

// The tiles of a block: up to kRun side by side.
constexpr uint32_t kRun = 4, kEnds = kRun + 1;

struct Run {
    uint64_t first, end; // indices
    uint32_t width;      // of a tile

    __device__ uint64_t bound(uint32_t tile) const
    {
        return min(first + uint64_t{tile} * width, end);
    }
};

// The entries of lists that lie in a tile.
template <typename T, uint32_t Capacity>
struct Stretches {
    const Lists<Capacity> &lists;
    const uint32_t *ends; // of list l: entries [ends[kEnds * l], ends[kEnds * l + 1])
    uint32_t first, size; // of the tile; it ends at 2^32 - 1 or before

    __device__ Stretches(const Lists<Capacity> &all, const uint32_t *of_tile, const Run &run,
                         uint32_t tile)
        : lists(all), ends(of_tile), first(static_cast<uint32_t>(run.bound(tile))),
          size(static_cast<uint32_t>(run.bound(tile + 1) - run.bound(tile)))
    {
    }

    __device__ uint32_t length(uint32_t l) const
    {
        const uint32_t begin = ends[kEnds * l], end = ends[kEnds * l + 1];
        return end > begin ? min(end - begin, size) : 0;
    }
    // Entry `at` of those of list l.
    __device__ uint32_t load_index(uint32_t l, uint32_t at, bool wanted) const
    {
        return load_if(wanted, lists.list[l].index + (static_cast<size_t>(ends[kEnds * l]) + at),
                       UINT32_MAX);
    }
    __device__ Loaded<T> load(uint32_t l, uint32_t at, bool wanted) const
    {
        return load_entry<T>(wanted, lists.list[l], static_cast<size_t>(ends[kEnds * l]) + at);
    }
    __device__ Addend<T> addend(uint32_t l, uint32_t at, const Loaded<T> &loaded) const
    {
        const size_t i = static_cast<size_t>(ends[kEnds * l]) + at;
        return {loaded.index - first, value_of(loaded, lists.list[l], i)};
    }
};

// ends[kEnds * l + i] = where in list l the i-th tile of the run begins, i <= tiles, for the first
// n lists. Each warp looks for one at a time: for both ends of the run first, then between them for
// the others. A barrier before and after.
template <uint32_t Capacity>
__device__ inline void find_ends(uint32_t *ends, const Lists<Capacity> &lists, uint32_t n,
                                 const Run &run, uint32_t tiles)
{
    constexpr uint32_t kWarps = kThreads / kWarp;
    const uint32_t warp = threadIdx.x / kWarp;
    for (uint32_t e = warp; e < 2 * n; e += kWarps) {
        const tri_entries &list = lists.list[e / 2];
        const uint32_t tile = e % 2 * tiles;
        const uint32_t place = count_below(list.index, count_of(list), run.bound(tile));
        if (lane_of() == 0)
            ends[kEnds * (e / 2) + tile] = place;
    }
    __syncthreads();
    for (uint32_t e = warp; e < (tiles - 1) * n; e += kWarps) {
        const uint32_t l = e / (tiles - 1), tile = 1 + e % (tiles - 1);
        const uint32_t begin = ends[kEnds * l], end = max(ends[kEnds * l + tiles], begin);
        const uint32_t place =
            begin + count_below(lists.list[l].index + begin, end - begin, run.bound(tile));
        if (lane_of() == 0)
            ends[kEnds * l + tile] = place;
    }
}

// The same for lists that have starts, of all at once, for memory of other devices is far away: the run
// begins at 0 or a multiple of TRI_STRETCH, and so does each tile. Starts may be anything, as entries may.
template <uint32_t Capacity>
__device__ inline void load_ends(uint32_t *ends, const Lists<Capacity> &lists, uint32_t n,
                                 const Run &run, uint32_t tiles)
{
    for (uint32_t e = threadIdx.x; e < (tiles + 1) * n; e += kThreads) {
        const uint32_t l = e / (tiles + 1), tile = e % (tiles + 1);
        const uint64_t start = (run.bound(tile) + TRI_STRETCH - 1) / TRI_STRETCH;
        ends[kEnds * l + tile] = min(lists.list[l].starts[start], lists.list[l].capacity);
    }
}

// Entries at, at + kThreads, ... of list l.
template <typename T, typename Source, typename Add>
__device__ inline void add_batch(const Source &source, uint32_t l, uint32_t at, uint32_t length,
                                 Add add)
{
    Loaded<T> loaded[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++)
        loaded[i] = source.load(l, at + i * kThreads, at + i * kThreads < length);
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++)
        add(source.addend(l, at + i * kThreads, loaded[i]));
}

// The first entries of lists l to l + kAhead - 1, one per thread and list, on their way: of as many
// lists, even if there are fewer, for with branches the thread would wait for each load.
template <typename T>
struct Group {
    Loaded<T> loaded[kAhead];
};

template <typename T, typename Source>
__device__ inline Group<T> load_group(const Source &source, uint32_t n, uint32_t l)
{
    Group<T> group;
#pragma unroll
    for (uint32_t j = 0; j < kAhead; j++) {
        const uint32_t length = l + j < n ? source.length(l + j) : 0;
        group.loaded[j] = source.load(l + j, threadIdx.x, threadIdx.x < length);
    }
    return group;
}

// add(addend) for every entry of these lists in the tile: those of the first by all threads, a
// barrier, those of the next, and so on; a barrier at the end.
template <typename T, typename Source, typename Add>
__device__ inline void add_group(const Source &source, uint32_t n, uint32_t l,
                                 const Group<T> &group, Add add)
{
#pragma unroll
    for (uint32_t j = 0; j < kAhead; j++) {
        if (l + j >= n)
            break;
        const uint32_t length = source.length(l + j);
        add(source.addend(l + j, threadIdx.x, group.loaded[j]));
        for (uint32_t at = threadIdx.x + kThreads; at < length; at += kAhead * kThreads)
            add_batch<T>(source, l + j, at, length, add);
        __syncthreads();
    }
}

// The same for lists from `l` on, in order. `Source` is as Stretches.
template <typename T, typename Source, typename Add>
__device__ inline void add_in_order(const Source &source, uint32_t n, Add add, uint32_t l = 0)
{
    for (; l < n; l += kAhead)
        add_group(source, n, l, load_group<T>(source, n, l), add);
}

} // namespace
