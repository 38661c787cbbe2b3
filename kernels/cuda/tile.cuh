// One block, one tile of a dense result: sums are made in shared memory, and then every element of
// the tile is written once, in 16 bytes, past the caches.
#pragma once

#include "kernels/cuda/lists.cuh"

namespace {

constexpr uint32_t kTileBytes =
    32 * 1024; // of shared memory: six blocks on a multiprocessor of 228 KiB

template <typename T>
constexpr uint32_t kTile = kTileBytes / sizeof(T); // elements

template <typename T>
inline uint32_t tiles_of(uint64_t count)
{
    return static_cast<uint32_t>((count + kTile<T> - 1) / kTile<T>);
}

// 16 bytes.
template <typename T>
struct alignas(16) Unit {
    T element[16 / sizeof(T)];
};

template <typename T>
__device__ inline void clear_tile(T *sum)
{
    Unit<T> *units = reinterpret_cast<Unit<T> *>(sum);
#pragma unroll
    for (uint32_t i = 0; i < kTileBytes / 16 / kThreads; i++)
        units[i * kThreads + threadIdx.x] = Unit<T>{};
}

template <typename Out>
__device__ inline void store_unit(Out *out, const Unit<Out> &unit)
{
    union {
        Unit<Out> from;
        uint4 to;
    } bits = {unit};
    __stcs(reinterpret_cast<uint4 *>(out), bits.to);
}

// Write the whole units of a tile, whose sums begin at `from`; if `from` is aligned to a unit, they
// are read as units. True if this thread has written an infinity or a NaN.
template <bool Aligned, typename Out, typename T>
__device__ inline bool store_units(Out *out, const T *from, uint32_t units,
                                   const Divisor<T> &divisor)
{
    constexpr uint32_t kPer = 16 / sizeof(Out), kParts = kPer * sizeof(T) / 16;
    bool overflows = false;
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < units; i += kThreads) {
        union {
            Unit<T> part[kParts];
            T element[kPer];
        } sum;
        if constexpr (Aligned) {
#pragma unroll
            for (uint32_t part = 0; part < kParts; part++)
                sum.part[part] = reinterpret_cast<const Unit<T> *>(from)[i * kParts + part];
        } else {
#pragma unroll
            for (uint32_t j = 0; j < kPer; j++)
                sum.element[j] = from[i * kPer + j];
        }
        Unit<Out> to;
#pragma unroll
        for (uint32_t j = 0; j < kPer; j++)
            overflows |= put_quotient(to.element[j], sum.element[j], divisor);
        store_unit(out + static_cast<size_t>(i) * kPer, to);
    }
    return overflows;
}

// out[i] = sum[i] / divisor for the `size` elements of a tile. Wherever `out` begins, all its whole
// units of 16 bytes are written as such. True if this thread has written what is not finite.
template <typename Out, typename T>
__device__ inline bool store_tile(Out *out, const T *sum, uint32_t size, const Divisor<T> &divisor)
{
    constexpr uint32_t kPer = 16 / sizeof(Out);
    const uint32_t misplaced = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % 16);
    const uint32_t head = min((16 - misplaced) % 16 / static_cast<uint32_t>(sizeof(Out)), size);
    const uint32_t units = (size - head) / kPer, tail = head + units * kPer;
    bool overflows = head == 0 ? store_units<true>(out, sum, units, divisor)
                               : store_units<false>(out + head, sum + head, units, divisor);
    if (threadIdx.x < head)
        overflows |= put_quotient(out[threadIdx.x], sum[threadIdx.x], divisor);
    if (threadIdx.x < size - tail)
        overflows |= put_quotient(out[tail + threadIdx.x], sum[tail + threadIdx.x], divisor);
    return overflows;
}

// The sums of a tile, in shared memory.
template <typename T>
struct AddTo {
    T *sum;
    uint32_t size;

    __device__ void operator()(const Addend<T> &addend) const
    {
        if (addend.place < size)
            sum[addend.place] += addend.value;
    }
};

} // namespace
