// A stable partition of a list: kept are the items whose magnitude is above a level, and the first
// few of those at it; the others are dropped.
//
// The list is cut into one piece per block. One launch counts the items of each piece, a second
// adds up the counts of the pieces before its own and writes. `Items` has:
//   Type                                       f32 or f64
//   uint32_t n() const                         how many there are
//   Level level() const
//   Key<Type> load(uint32_t i, bool wanted) const, Type value(uint32_t i, Key<Type> bits) const
//   uint32_t load_index(uint32_t i, bool wanted) const
//   void keep(uint32_t i, uint32_t index, Type value, uint32_t at) const   i is the at-th item in
//   void drop(...) const                                                   and that is out
//   void end(uint32_t kept, uint32_t dropped) const
#pragma once

#include "kernels/cuda/entries.cuh"

namespace {

struct Level {
    uint64_t key;
    uint32_t ties; // so many of those at it are in
};

constexpr uint32_t kRows = 4;                // items of a thread at a time
constexpr uint32_t kStep = kRows * kThreads; // of a block
constexpr uint32_t kWarps = kThreads / kWarp;
static_assert(kRows * kWarps == kWarp, "one warp adds up the counts of all warps and rows");

struct Found {
    uint32_t in, ties;
};
static_assert(kMaxBlocks * sizeof(Found) <= kEntriesScratch, "the table exceeds the scratch");

struct Piece {
    uint32_t begin, end;
};

// The piece of this block: whole steps, but for the end of the list.
__device__ inline Piece piece_of(uint32_t n)
{
    const uint64_t steps = (static_cast<uint64_t>(n) + kStep - 1) / kStep;
    const uint64_t each = (steps + gridDim.x - 1) / gridDim.x * kStep;
    const uint64_t begin = min(blockIdx.x * each, static_cast<uint64_t>(n));
    const uint64_t end = min(begin + each, static_cast<uint64_t>(n));
    return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

// Count the items of this block's piece.
template <typename Items>
__device__ inline Found count_piece(const Items &items)
{
    using T = typename Items::Type;
    __shared__ ScanRoom<kThreads> room;
    const Piece piece = piece_of(items.n());
    const uint64_t level = items.level().key;
    uint32_t in = 0, ties = 0;
    for (uint32_t begin = piece.begin, size; begin < piece.end; begin += size) {
        size = min(kStep, piece.end - begin);
        Key<T> bits[kRows];
#pragma unroll
        for (uint32_t row = 0; row < kRows; row++) {
            const uint32_t at = row * kThreads + threadIdx.x;
            bits[row] = items.load(begin + at, at < size);
        }
#pragma unroll
        for (uint32_t row = 0; row < kRows; row++) {
            const uint32_t at = row * kThreads + threadIdx.x;
            const uint64_t key = key_of(items.value(begin + at, bits[row]));
            in += at < size && key > level;
            ties += at < size && key == level;
        }
    }
    in = block_sum(in, room);
    return {in, block_sum(ties, room)};
}

// Add up the counts of the pieces before this block's.
__device__ inline Found found_before(const Found *table)
{
    __shared__ ScanRoom<kThreads> room;
    uint32_t in = 0, ties = 0;
    for (uint32_t piece = threadIdx.x; piece < blockIdx.x; piece += kThreads) {
        in += table[piece].in;
        ties += table[piece].ties;
    }
    in = block_sum(in, room);
    return {in, block_sum(ties, room)};
}

template <typename Items>
__global__ void __launch_bounds__(kThreads) partition_count(const Items items, Found *table)
{
    const Found mine = count_piece(items);
    if (threadIdx.x == 0)
        table[blockIdx.x] = mine;
}

// The items of a step, as a thread holds them: one per row. `in`, `tied`: of all lanes.
template <typename T>
struct Rows {
    Key<T> bits[kRows];
    uint32_t index[kRows], in[kRows], tied[kRows];
};

template <typename Items, typename T>
__device__ inline void load_rows(Rows<T> &rows, const Items &items, uint32_t begin, uint32_t size)
{
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++) {
        const uint32_t at = row * kThreads + threadIdx.x;
        rows.bits[row] = items.load(begin + at, at < size);
        rows.index[row] = items.load_index(begin + at, at < size);
    }
}

// Compare the items with the level. counts[] = how many of each warp and row are above it, and at
// it in the upper half.
template <typename Items, typename T>
__device__ inline void compare_rows(Rows<T> &rows, const Items &items, uint64_t level,
                                    uint32_t begin, uint32_t size, uint32_t *counts)
{
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++) {
        const uint32_t at = row * kThreads + threadIdx.x;
        const uint64_t key = key_of(items.value(begin + at, rows.bits[row]));
        rows.in[row] = __ballot_sync(kAllLanes, at < size && key > level);
        rows.tied[row] = __ballot_sync(kAllLanes, at < size && key == level);
        if (lane_of() == 0)
            counts[row * kWarps + threadIdx.x / kWarp] =
                __popc(rows.in[row]) | __popc(rows.tied[row]) << 16;
    }
}

// Keep or drop each item of a step. `before`: what the steps before hold; `counts`, a lane per
// warp and row: what those before it in this step hold.
template <typename Items, typename T>
__device__ inline void write_rows(const Rows<T> &rows, const Items &items, uint32_t ties,
                                  uint32_t begin, uint32_t size, Found before, uint32_t counts)
{
    const uint32_t lane = lane_of(), below = (1u << lane) - 1;
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++) {
        const uint32_t at = row * kThreads + threadIdx.x;
        const uint32_t packed = __shfl_sync(kAllLanes, counts, row * kWarps + threadIdx.x / kWarp);
        const uint32_t tie = before.ties + (packed >> 16) + __popc(rows.tied[row] & below);
        const uint32_t kept =
            before.in + (packed & 0xffff) + __popc(rows.in[row] & below) + min(tie, ties);
        const bool is_in = (rows.in[row] >> lane & 1) != 0;
        const bool is_tie = (rows.tied[row] >> lane & 1) != 0 && tie < ties;
        if (at >= size)
            continue;
        const T value = items.value(begin + at, rows.bits[row]);
        if (is_in || is_tie)
            items.keep(begin + at, rows.index[row], value, kept);
        else
            items.drop(begin + at, rows.index[row], value, begin + at - kept);
    }
}

template <typename Items>
__global__ void __launch_bounds__(kThreads) partition_write(const Items items, const Found *table)
{
    __shared__ uint32_t counts[2][kWarp];
    const uint32_t n = items.n();
    const Level level = items.level();
    const Piece piece = piece_of(n);
    Found before = found_before(table);
    for (uint32_t begin = piece.begin, side = 0, size; begin < piece.end;
         begin += size, side ^= 1) {
        size = min(kStep, piece.end - begin);
        Rows<typename Items::Type> rows;
        load_rows(rows, items, begin, size);
        compare_rows(rows, items, level.key, begin, size, counts[side]);
        // The one barrier of a step: what is written in the next lies on the other side.
        __syncthreads();
        const uint32_t own = counts[side][lane_of()];
        const uint32_t through = warp_inclusive(own);
        write_rows(rows, items, level.ties, begin, size, before, through - own);
        const uint32_t all = __shfl_sync(kAllLanes, through, kWarp - 1);
        before.in += all & 0xffff;
        before.ties += all >> 16;
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        const uint32_t kept = before.in + min(before.ties, level.ties);
        items.end(kept, n - kept);
    }
}

// Blocks for a list of at most `capacity` items: one alone, which need not count first, if it is
// short.
inline uint32_t pieces_for(uint64_t capacity)
{
    return capacity <= 4 * kStep ? 1 : blocks_for(capacity, 2 * kStep, kMaxBlocks);
}

template <typename Items>
inline trib_status partition(Items items, uint64_t capacity, void *scratch, trib_stream stream)
{
    Found *table = static_cast<Found *>(scratch);
    void *arguments[] = {&items, &table};
    const uint32_t blocks = pieces_for(capacity);
    if (blocks != 1) {
        const trib_status status =
            launch_kernel<partition_count<Items>>(blocks, kThreads, arguments, stream);
        if (status != TRIB_OK)
            return status;
    }
    return launch_kernel<partition_write<Items>>(blocks, kThreads, arguments, stream);
}

} // namespace
