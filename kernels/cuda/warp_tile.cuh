// One warp, one small tile of a dense result, in shared memory: made without a barrier of the
// block, so that while one warp waits for entries the others write.
#pragma once

#include "kernels/cuda/lists.cuh"
#include "kernels/cuda/tile.cuh"

namespace {

constexpr uint32_t kWarpTileBytes = 4 * 1024;

constexpr uint32_t kSeekers = 8;                 // lanes that search one list
constexpr uint32_t kSought = kWarp / kSeekers;   // lists that are searched at once

// Blocks of a multiprocessor: with few windows there are registers for more.
template <typename T, uint32_t Capacity>
constexpr uint32_t kBlocks = sizeof(T) == 4 && Capacity <= kSought ? 4 : 2;

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

// What a warp walks along: `count` places in ascending order of their indices. load(i, wanted) asks
// for place i, and entry(loaded, i) is what came: where it is not wanted, index UINT32_MAX.
template <typename T>
struct Entry {
    uint32_t index;
    T value; // of a place without an entry 0
};

template <typename T>
struct ListPlaces {
    const tri_entries &list;

    __device__ Loaded<T> load(size_t i, bool wanted) const
    {
        return load_entry<T>(wanted, list, i);
    }
    __device__ Entry<T> entry(const Loaded<T> &loaded, size_t i, bool) const
    {
        return {loaded.index, value_of(loaded, list, i)};
    }
};

// Where a warp is: places [at, at + 32), one a lane, and the 32 behind them, on their way.
template <typename T>
struct Window {
    uint32_t at, count;
    Entry<T> now;
    Loaded<T> next;
};

// The lane's place in the 32 from `at` on.
template <typename T, typename Places>
__device__ inline Loaded<T> load_places(const Places &places, uint64_t at, uint32_t count)
{
    return places.load(at + lane_of(), at + lane_of() < count);
}

template <typename T, typename Places>
__device__ inline Entry<T> entry_at(const Places &places, const Loaded<T> &loaded, uint64_t at,
                                    uint32_t count)
{
    return places.entry(loaded, at + lane_of(), at + lane_of() < count);
}

// Adds to sum[i] the value at index first + i, i < size, and moves the window on behind them.
// Entries of the window that lie before the tile have had their turn: their places in it, below 0,
// are far beyond it. A list that has no order leads nowhere else, and ends. Zeros change no sum,
// and need not have an index of their own.
template <typename T, typename Places>
__device__ inline void add_window(T *sum, uint32_t first, uint32_t size, const Places &places,
                                  Window<T> &window)
{
    for (;;) {
        const uint32_t place = window.now.index - first;
        if (place < size && window.now.value != 0)
            sum[place] += window.now.value;
        if (!__all_sync(kAllLanes, window.now.index < first + size))
            return;
        window.at += kWarp; // at most `count`, for all lanes had an entry
        window.now = entry_at(places, window.next, window.at, window.count);
        window.next = load_places<T>(places, uint64_t{window.at} + kWarp, window.count);
    }
}

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
