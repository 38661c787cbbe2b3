// The elements of pull as a thread has them: units of 16 bytes of all ranks, and what they reduce to. Where
// the buffers of ranks do not lie alike, and at both ends, single elements.
//
// Memory of peers is read by plain loads: a barrier lies between whoever wrote it and us, and its acquire
// makes them see that. They leave nothing in L1, where it would be of no use to anybody.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/loads.cuh"
#include "kernels/pull.h"

namespace {

// Loads that a thread has on their way before it folds the first of them, of all ranks together.
constexpr int kPullLoads = 8;

// N elements.
template <typename T, int N>
struct alignas(N * sizeof(T)) Elements {
    static constexpr int kElements = N;
    T element[N];
};
template <typename T>
using Unit = Elements<T, TRI_PULL_UNIT / static_cast<int>(sizeof(T))>;
template <typename T>
using Single = Elements<T, 1>;

// What a block folds next: `send` of all ranks into `recv` of the `goals` ranks from `rank` on. It lies in
// shared memory: the registers are for what is moved.
struct Work {
    const char *send[TRI_PULL_RANKS]; // where units begin, and elements are counted from
    char *recv[TRI_PULL_RANKS];
    uint64_t begin, end;  // the elements
    uint32_t first, step; // of the threads of all blocks that share them, the block's first; all
    int rank, goals;
    bool aligned; // units lie at multiples of 16 bytes
};

template <typename Part>
__device__ inline Part load_part_if(bool wanted, const char *from)
{
    Part part;
    if constexpr (sizeof(Part) == TRI_PULL_UNIT) {
        uint4 v = {};
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
                     "@p ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
                     : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                     : "l"(from), "r"(static_cast<uint32_t>(wanted))
                     : "memory");
        memcpy(&part, &v, sizeof part);
    } else {
        part = load_value_if<Part>(wanted, from);
    }
    return part;
}

__device__ inline uint32_t shift_of(const void *data)
{
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data) % TRI_PULL_UNIT);
}

template <typename Part>
__device__ inline void store_part(char *to, const Part &part)
{
    if constexpr (sizeof(Part) == TRI_PULL_UNIT) {
        uint4 v;
        memcpy(&v, &part, sizeof v);
        __stcs(reinterpret_cast<uint4 *>(to), v);
    } else {
        *reinterpret_cast<Part *>(to) = part;
    }
}

// The parts at the offsets at, at + step, ... as far as they lie before `end`; all in bytes.
template <typename Part, int Ranks>
__device__ inline void fold_bunch(const Work &work, int size, trib_op op, uint64_t at, uint64_t end,
                                  uint32_t step)
{
    constexpr int kParts = kPullLoads / Ranks;
    Part parts[kParts][Ranks];
#pragma unroll
    for (int i = 0; i < kParts; i++)
#pragma unroll
        for (int r = 0; r < Ranks; r++)
            parts[i][r] =
                load_part_if<Part>(r < size && at + i * step < end, work.send[r] + at + i * step);
#pragma unroll
    for (int i = 0; i < kParts; i++) {
        if (at + i * step >= end)
            return;
        const Part result = reduce(parts[i], size, op);
#pragma unroll 1
        for (int rank = work.rank, left = work.goals; left > 0; left--) {
            store_part(work.recv[rank] + at + i * step, result);
            rank = rank + 1 < size ? rank + 1 : 0;
        }
    }
}

// All parts of the elements [begin, end).
template <typename T, typename Part, int Ranks>
__device__ inline void fold_parts(const Work &work, int size, trib_op op, uint64_t begin,
                                  uint64_t end)
{
    const uint32_t step = work.step * static_cast<uint32_t>(sizeof(Part));
    begin = begin * sizeof(T) + (work.first + threadIdx.x) * sizeof(Part);
    end *= sizeof(T);
    for (; begin < end; begin += uint64_t{step} * (kPullLoads / Ranks))
        fold_bunch<Part, Ranks>(work, size, op, begin, end, step);
}

// All of the work: whole units, if they are aligned, and single elements before and behind them.
template <typename T, int Ranks>
__device__ inline void fold_work(const Work &work, int size, trib_op op)
{
    constexpr uint64_t kElements = Unit<T>::kElements;
    uint64_t first = (work.begin + kElements - 1) / kElements * kElements;
    uint64_t last = work.end / kElements * kElements;
    if (!work.aligned || first >= last)
        first = last = work.end;
    fold_parts<T, Unit<T>, Ranks>(work, size, op, first, last);
#pragma unroll 1
    for (int behind = 0; behind < 2; behind++)
        fold_parts<T, Single<T>, Ranks>(work, size, op, behind ? last : work.begin,
                                        behind ? work.end : first);
}

// ------------------------------------------------------------------------------------------ copies

// Parts [0, count), by all threads of a block.
template <typename Part>
__device__ inline void copy_parts(char *to, const char *from, uint64_t count)
{
    constexpr int kLoads = kPullLoads / 2; // more take longer
    for (uint64_t at = threadIdx.x; at < count; at += kLoads * blockDim.x) {
        Part loaded[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            loaded[i] = load_part_if<Part>(at + i * blockDim.x < count,
                                           from + (at + i * blockDim.x) * sizeof(Part));
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            if (at + i * blockDim.x < count)
                store_part(to + (at + i * blockDim.x) * sizeof(Part), loaded[i]);
    }
}

// Elements, by whole units if both ends lie alike in 16 bytes, and single ones before and behind them.
template <typename T>
__device__ inline void copy_elements(char *to, const char *from, uint64_t count)
{
    constexpr uint64_t kElements = Unit<T>::kElements;
    uint64_t before = (0 - shift_of(to)) % TRI_PULL_UNIT / sizeof(T), whole = 0;
    if (shift_of(to) != shift_of(from) || before > count)
        before = count;
    else
        whole = (count - before) / kElements;
    const uint64_t behind = before + whole * kElements;
    copy_parts<Unit<T>>(to + before * sizeof(T), from + before * sizeof(T), whole);
    copy_parts<Single<T>>(to, from, before);
    copy_parts<Single<T>>(to + behind * sizeof(T), from + behind * sizeof(T), count - behind);
}

} // namespace
