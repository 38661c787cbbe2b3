// One block, one tile of a dense result: sums are made in shared memory, and then every element of
// the tile is written once, in 16 bytes, past the caches.
#pragma once

#include "kernels/cuda/lists.cuh"

namespace {

constexpr uint32_t kTileBytes = 32 * 1024; // of shared memory: six blocks on a multiprocessor of 228 KiB

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
    for (uint32_t i = threadIdx.x; i < kTileBytes / 16; i += kThreads)
        units[i] = Unit<T>{};
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

// out[i] = sum[i] / divisor for the `size` elements of a tile. Wherever `out` begins, all its whole
// units of 16 bytes are written as such; sums are read so, too, if it begins with one.
template <typename Out, typename T>
__device__ inline void store_tile(Out *out, const T *sum, uint32_t size, const Divisor<T> &divisor)
{
    constexpr uint32_t kPer = 16 / sizeof(Out), kParts = kPer * sizeof(T) / 16;
    const uint32_t misplaced = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % 16);
    const uint32_t head = min((16 - misplaced) % 16 / static_cast<uint32_t>(sizeof(Out)), size);
    const uint32_t units = (size - head) / kPer;
    for (uint32_t i = threadIdx.x; i < units; i += kThreads) {
        union {
            Unit<T> part[kParts];
            T element[kPer];
        } from;
        if (head == 0) {
#pragma unroll
            for (uint32_t part = 0; part < kParts; part++)
                from.part[part] = reinterpret_cast<const Unit<T> *>(sum)[i * kParts + part];
        } else {
#pragma unroll
            for (uint32_t j = 0; j < kPer; j++)
                from.element[j] = sum[head + i * kPer + j];
        }
        Unit<Out> to;
#pragma unroll
        for (uint32_t j = 0; j < kPer; j++)
            narrow(to.element[j], divided(from.element[j], divisor));
        store_unit(out + head + i * kPer, to);
    }
    const uint32_t tail = head + units * kPer;
    if (threadIdx.x < head)
        narrow(out[threadIdx.x], divided(sum[threadIdx.x], divisor));
    if (threadIdx.x < size - tail)
        narrow(out[tail + threadIdx.x], divided(sum[tail + threadIdx.x], divisor));
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
