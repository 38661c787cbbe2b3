// One warp, one small tile of a dense result, in shared memory: made without a barrier of the
// block, so that while one warp waits for entries the others write.
#pragma once

#include "kernels/cuda/lists.cuh"
#include "kernels/cuda/tile.cuh"

namespace {

constexpr uint32_t kWarpTileBytes = 4 * 1024;

template <typename T>
constexpr uint32_t kWarpTile = kWarpTileBytes / sizeof(T); // elements

// ---------------------------------------------------------------------------------------- the tile

// All lanes; a __syncwarp() follows before others add.
template <typename T>
__device__ inline void clear_warp_tile(T *sum)
{
#pragma unroll
    for (uint32_t i = 0; i < kWarpTileBytes / 16 / kWarp; i++)
        reinterpret_cast<Unit<T> *>(sum)[i * kWarp + lane_of()] = Unit<T>{};
}

// One element, or a unit of 16 bytes, of the result; what it is made of becomes 0.
template <typename Out, typename T>
__device__ inline void move_element(Out *out, T *sum, const Divisor<T> &divisor)
{
    narrow(*out, divided(*sum, divisor));
    *sum = 0;
}

template <bool Aligned, typename Out, typename T>
__device__ inline void move_unit(Out *out, T *sum, const Divisor<T> &divisor)
{
    constexpr uint32_t kPer = 16 / sizeof(Out), kParts = kPer * sizeof(T) / 16;
    union {
        Unit<T> part[kParts];
        T element[kPer];
    } from;
    if constexpr (Aligned) {
#pragma unroll
        for (uint32_t part = 0; part < kParts; part++) {
            from.part[part] = reinterpret_cast<const Unit<T> *>(sum)[part];
            reinterpret_cast<Unit<T> *>(sum)[part] = Unit<T>{};
        }
    } else {
#pragma unroll
        for (uint32_t j = 0; j < kPer; j++) {
            from.element[j] = sum[j];
            sum[j] = 0;
        }
    }
    Unit<Out> to;
#pragma unroll
    for (uint32_t j = 0; j < kPer; j++)
        narrow(to.element[j], divided(from.element[j], divisor));
    store_unit(out, to);
}

// out[i] = sum[i] / divisor for the `size` elements of a tile, and sum[i] = 0 for the next one: of
// each element one lane, so nothing is waited for in between. As store_tile: wherever `out` begins,
// all its whole units are written as such.
template <typename Out, typename T>
__device__ inline void move_warp_tile(Out *out, T *sum, uint32_t size, const Divisor<T> &divisor)
{
    constexpr uint32_t kPer = 16 / sizeof(Out);
    const uint32_t lane = lane_of();
    const uint32_t misplaced = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % 16);
    const uint32_t head = min((16 - misplaced) % 16 / static_cast<uint32_t>(sizeof(Out)), size);
    const uint32_t units = (size - head) / kPer, tail = head + units * kPer;
    if (head == 0) {
#pragma unroll 4
        for (uint32_t i = lane; i < units; i += kWarp)
            move_unit<true>(out + i * kPer, sum + i * kPer, divisor);
    } else {
        for (uint32_t i = lane; i < units; i += kWarp)
            move_unit<false>(out + head + i * kPer, sum + head + i * kPer, divisor);
    }
    if (lane < head)
        move_element(out + lane, sum + lane, divisor);
    if (lane < size - tail)
        move_element(out + tail + lane, sum + tail + lane, divisor);
}

// --------------------------------------------------------------------------------------- the lists

// A warp's place in a list: entries [at, at + 32), one a lane, and the 32 behind them, on their
// way. What lies beyond the list is no entry: its index is UINT32_MAX.
template <typename T>
struct Window {
    uint32_t at, count; // of the list
    Loaded<T> now, next;
};

template <typename T>
__device__ inline Loaded<T> load_window(const tri_entries &list, uint64_t at, uint32_t count)
{
    const uint64_t i = at + lane_of();
    return load_entry<T>(i < count, list, i);
}

// Adds to sum[i] the value at index first + i, i < size, of one list, and moves the window on
// behind them. Entries of the window that lie before the tile have had their turn: their places,
// below 0, are far beyond it. A list that has no order leads nowhere else, and ends.
template <typename T>
__device__ inline void add_window(T *sum, uint32_t first, uint32_t size, const tri_entries &list,
                                  Window<T> &window)
{
    for (;;) {
        const uint32_t place = window.now.index - first;
        const T value = value_of(window.now, list, size_t{window.at} + lane_of());
        if (place < size)
            sum[place] += value;
        if (!__all_sync(kAllLanes, window.now.index < first + size))
            return;
        window.at += kWarp; // at most `count`, for all lanes had an entry
        window.now = window.next;
        window.next = load_window<T>(list, uint64_t{window.at} + kWarp, window.count);
    }
}

constexpr uint32_t kSeekers = 8;                 // lanes that search one list
constexpr uint32_t kSought = kWarp / kSeekers;   // lists that are searched at once

// Where the whole warp begins in the lists to find all entries from index `bound` on: at[l], a
// multiple of 32, so that windows are whole lines, with no more than 31 entries before them. Eight
// lanes share a list, so that a step of the search costs few requests for all lists together.
template <uint32_t Capacity>
__device__ inline void seek(uint32_t (&at)[Capacity], const Lists<Capacity> &lists, uint32_t n,
                            uint64_t bound)
{
    static_assert(Capacity % kSought == 0, "kSought of them are looked at together");
    constexpr uint32_t kRounds = Capacity / kSought;
    const uint32_t own = lane_of() / kSeekers, seeker = lane_of() % kSeekers;
    uint32_t low[kRounds], left[kRounds]; // in windows that are full
    bool any = false;
#pragma unroll
    for (uint32_t r = 0; r < kRounds; r++) {
        const uint32_t l = r * kSought + own;
        low[r] = 0;
        left[r] = l < n ? count_of(lists.list[l]) / kWarp : 0;
        any = any || left[r] != 0;
    }
    while (__any_sync(kAllLanes, any)) {
        any = false;
#pragma unroll
        for (uint32_t r = 0; r < kRounds; r++) {
            const uint32_t step = left[r] / kSeekers + (left[r] % kSeekers != 0);
            const uint32_t place = seeker * step + step - 1; // the last window of this lane's share
            const size_t i = (low[r] + size_t{place}) * kWarp + (kWarp - 1);
            const bool below =
                place < left[r] && lists.list[r * kSought + own].index[i] < bound;
            const uint32_t votes = __ballot_sync(kAllLanes, below) >> own * kSeekers;
            const uint32_t skip = __popc(votes & ((1u << kSeekers) - 1)) * step;
            low[r] += skip;
            left[r] = step <= 1 ? 0 : min(left[r] - skip, step);
            any = any || left[r] != 0;
        }
    }
#pragma unroll
    for (uint32_t l = 0; l < Capacity; l++)
        at[l] = __shfl_sync(kAllLanes, low[l / kSought], l % kSought * kSeekers) * kWarp;
}

} // namespace
