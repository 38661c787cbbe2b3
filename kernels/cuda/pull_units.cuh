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
struct alignas(N * sizeof(T)) Piece {
    static constexpr int kElements = N;
    T element[N];
};
template <typename T>
using Unit = Piece<T, TRI_PULL_UNIT / static_cast<int>(sizeof(T))>;
template <typename T>
using Single = Piece<T, 1>;

// Where the buffers of ranks begin; in shared memory.
struct Buffers {
    const char *send[TRI_PULL_RANKS];
    char *recv[TRI_PULL_RANKS];
};

// What a block folds: `send` of all ranks into `recv` of the `goals` ranks from `rank` on. Elements are
// counted from `from` bytes behind each rank's send, and from `to` bytes behind recv, where units begin.
struct Work {
    int64_t from, to;
    int size, rank, goals;
    trib_op op;
};

// This thread, among those that share the work.
struct Worker {
    uint64_t first, step;
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

// The parts at, at + step, ... as far as they lie before `end`.
template <typename Part, int Ranks>
__device__ inline void fold_bunch(const Buffers &buffers, const Work &work, uint64_t at,
                                  uint64_t end, uint64_t step)
{
    constexpr int kParts = kPullLoads / Ranks;
    Part parts[kParts][Ranks];
#pragma unroll
    for (int i = 0; i < kParts; i++)
#pragma unroll
        for (int r = 0; r < Ranks; r++)
            parts[i][r] =
                load_part_if<Part>(r < work.size && at + i * step < end,
                                   buffers.send[r] + work.from + (at + i * step) * sizeof(Part));
#pragma unroll
    for (int i = 0; i < kParts; i++) {
        if (at + i * step >= end)
            return;
        const Part result = reduce(parts[i], work.size, work.op);
#pragma unroll 1
        for (int g = 0; g < work.goals; g++) {
            const int rank = work.rank + g;
            store_part(buffers.recv[rank < work.size ? rank : rank - work.size] + work.to +
                           (at + i * step) * sizeof(Part),
                       result);
        }
    }
}

// All parts [begin, end).
template <typename Part, int Ranks>
__device__ inline void fold_parts(const Buffers &buffers, const Work &work, const Worker &worker,
                                  uint64_t begin, uint64_t end)
{
    for (uint64_t at = begin + worker.first; at < end; at += kPullLoads / Ranks * worker.step)
        fold_bunch<Part, Ranks>(buffers, work, at, end, worker.step);
}

// The elements [begin, end): those of whole units as such, if units are aligned, then the others.
template <typename T, int Ranks>
__device__ inline void fold_elements(const Buffers &buffers, const Work &work, const Worker &worker,
                                     uint64_t begin, uint64_t end, bool aligned)
{
    constexpr uint64_t kElements = Unit<T>::kElements;
    const uint64_t first = (begin + kElements - 1) / kElements, last = end / kElements;
    const bool whole = aligned && first < last;
    if (whole)
        fold_parts<Unit<T>, Ranks>(buffers, work, worker, first, last);
#pragma unroll 1
    for (int i = whole ? 0 : 1; i < 2; i++)
        fold_parts<Single<T>, Ranks>(buffers, work, worker,
                                     whole && i == 1 ? last * kElements : begin,
                                     i == 0 ? first * kElements : end);
}

} // namespace
