// Lists that are added up in a stretch of indices, a tile, by one block: list after list, and all
// entries of a list at once, for no index occurs twice in it.
#pragma once

#include "kernels/cuda/entries.cuh"

namespace {

constexpr uint32_t kAhead = 4;    // loads in flight, of a thread
constexpr uint32_t kFewLists = 8; // travel in a small launch, which costs less

template <uint32_t Capacity>
struct Lists {
    uint32_t n;
    tri_entries list[Capacity];
};

template <uint32_t Capacity>
inline Lists<Capacity> lists_of(const tri_entries *lists, int32_t n)
{
    Lists<Capacity> job = {static_cast<uint32_t>(n), {}};
    for (int32_t l = 0; l < n; l++)
        job.list[l] = lists[l];
    return job;
}

// One entry: where in the tile, and its value. Places beyond the tile are none.
template <typename T>
struct Addend {
    uint32_t place;
    T value;
};

// The entries of `Capacity` lists that lie in a tile.
template <typename T, uint32_t Capacity>
struct Stretches {
    const Lists<Capacity> &lists;
    const uint32_t *ends; // list l: entries [ends[2l], ends[2l + 1])
    uint64_t first;       // of the tile
    uint32_t size;

    __device__ uint32_t length(uint32_t l) const
    {
        const uint32_t begin = ends[2 * l], end = ends[2 * l + 1];
        return end > begin ? min(end - begin, size) : 0;
    }
    __device__ uint32_t place(uint32_t l, uint32_t at) const
    {
        return static_cast<uint32_t>(
            lists.list[l].index[static_cast<size_t>(ends[2 * l]) + at] - first);
    }
    __device__ Addend<T> get(uint32_t l, uint32_t at) const
    {
        if (at >= length(l))
            return {UINT32_MAX, T(0)};
        const size_t i = static_cast<size_t>(ends[2 * l]) + at;
        return {place(l, at), value_at<T>(lists.list[l].value, lists.list[l].dtype, i)};
    }
};

// Find the ends of the first n lists, by all warps of the block. A barrier has to follow.
template <uint32_t Capacity>
__device__ inline void find_ends(uint32_t *ends, const Lists<Capacity> &lists, uint32_t n,
                                 uint64_t first, uint32_t size)
{
    for (uint32_t e = threadIdx.x / kWarp; e < 2 * n; e += kThreads / kWarp) {
        const uint64_t bound = e % 2 == 0 ? first : first + size;
        const uint32_t end =
            count_below(lists.list[e / 2].index, count_of(lists.list[e / 2]), bound);
        if (lane_of() == 0)
            ends[e] = end;
    }
}

// add(place, value) for every entry of the tile: those of list 0 by all threads, a barrier, those of
// list 1, and so on; a barrier at the end. `Source` is as Stretches. While one list is added, the first
// entries of the next ones are on their way.
template <typename T, typename Source, typename Add>
__device__ inline void add_in_order(const Source &source, uint32_t n, Add add)
{
    for (uint32_t l = 0; l < n; l += kAhead) {
        Addend<T> next[kAhead];
#pragma unroll
        for (uint32_t j = 0; j < kAhead; j++) {
            next[j] = {UINT32_MAX, T(0)};
            if (l + j < n)
                next[j] = source.get(l + j, threadIdx.x);
        }
#pragma unroll
        for (uint32_t j = 0; j < kAhead; j++) {
            if (l + j >= n)
                break;
            const uint32_t length = source.length(l + j);
            add(next[j]);
            for (uint32_t at = kThreads + threadIdx.x; at < length; at += kAhead * kThreads) {
                Addend<T> rest[kAhead];
#pragma unroll
                for (uint32_t i = 0; i < kAhead; i++)
                    rest[i] = source.get(l + j, at + i * kThreads);
#pragma unroll
                for (uint32_t i = 0; i < kAhead; i++)
                    add(rest[i]);
            }
            __syncthreads();
        }
    }
}

} // namespace
