// Shared by the sparse kernels: magnitudes as bits, the accumulator, entries and their rounding,
// sums over a warp and a block, the size of a grid.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warp.cuh"
#include "kernels/sparse.h"

namespace {

// ------------------------------------------------------------------------------------- magnitudes

// key(x): the bits of x without the sign. Magnitudes are compared by it; a zero's is 0.
template <typename T>
struct KeyOf;
template <>
struct KeyOf<float> {
    using Type = uint32_t;
    static constexpr int kBits = 31;
    static constexpr Type kInfinity = 0x7f800000u;
};
template <>
struct KeyOf<double> {
    using Type = uint64_t;
    static constexpr int kBits = 63;
    static constexpr Type kInfinity = 0x7ff0000000000000ull;
};
template <typename T>
using Key = typename KeyOf<T>::Type;

__device__ inline uint32_t key_of(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

__device__ inline uint64_t key_of(double x)
{
    return static_cast<uint64_t>(__double_as_longlong(x)) & 0x7fffffffffffffffull;
}

// The magnitude that has this key.
__device__ inline float magnitude(uint32_t key)
{
    return __uint_as_float(key);
}

__device__ inline double magnitude(uint64_t key)
{
    return __longlong_as_double(static_cast<long long>(key));
}

template <typename T>
__device__ inline bool finite(T x)
{
    return key_of(x) < KeyOf<T>::kInfinity;
}

// Bits without a pattern (the finalizer of MurmurHash3, Appleby 2011).
__device__ inline uint64_t mixed(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

// ------------------------------------------------------------------------------------- arithmetic

// gradient + decay * residual: the product rounded, then the sum; never one fused operation.
__device__ inline float accumulated(float gradient, float residual, float decay)
{
    return __fadd_rn(gradient, __fmul_rn(decay, residual));
}

__device__ inline double accumulated(double gradient, double residual, double decay)
{
    return __dadd_rn(gradient, __dmul_rn(decay, residual));
}

// x as an entry of bf16 holds it: see struct tri_entries.
__device__ inline Bf16 as_bf16(float x)
{
    Bf16 value;
    narrow(value, x);
    if ((value.bits & 0x7fffu) == 0x7f80u && (__float_as_uint(x) & 0x7fffffffu) < 0x7f800000u)
        value.bits--;
    return value;
}

// The rest that stays in acc of a value that was taken out as an entry of type `entry`.
template <typename T>
__device__ inline T left_of(T value, trib_dtype entry)
{
    if constexpr (sizeof(T) == 4)
        if (entry == TRIB_BF16)
            return plus(value, -widen(as_bf16(value)));
    return plus(value, -value);
}

// values[place] = value, rounded to `entry`: T's own type, or bf16 where T is float.
template <typename T>
__device__ inline void put_entry(void *values, trib_dtype entry, size_t place, T value)
{
    if constexpr (sizeof(T) == 4)
        if (entry == TRIB_BF16) {
            static_cast<Bf16 *>(values)[place] = as_bf16(value);
            return;
        }
    static_cast<T *>(values)[place] = value;
}

// --------------------------------------------------------------------------------- the accumulator

// The residual as it is now: after decide, that of this call.
template <typename T>
__device__ inline T *residual_of(const tri_accumulator &acc)
{
    const bool second = acc.current != nullptr && (*acc.current & 1) != 0;
    return static_cast<T *>(second ? acc.buffer[1] : acc.buffer[0]);
}

// acc, before decide.
template <typename T>
__device__ inline T *sum_of(const tri_accumulator &acc)
{
    const bool second = acc.current != nullptr && (*acc.current & 1) == 0;
    return static_cast<T *>(second ? acc.buffer[1] : acc.buffer[0]);
}

// Before decide. With a velocity it is that of this call.
template <typename G>
__device__ inline const G *gradient_of(const tri_accumulator &acc)
{
    if (acc.velocity_current == nullptr)
        return static_cast<const G *>(acc.gradient);
    const bool second = (*acc.velocity_current & 1) == 0;
    return static_cast<const G *>(second ? acc.velocity[1] : acc.velocity[0]);
}

// Of an accumulator that makes a velocity: the old one, and the one that is made.
template <typename T>
__device__ inline const T *old_velocity_of(const tri_accumulator &acc)
{
    return static_cast<const T *>((*acc.velocity_current & 1) != 0 ? acc.velocity[1]
                                                                   : acc.velocity[0]);
}

template <typename T>
__device__ inline T *new_velocity_of(const tri_accumulator &acc)
{
    return static_cast<T *>((*acc.velocity_current & 1) == 0 ? acc.velocity[1] : acc.velocity[0]);
}

// ----------------------------------------------------------------------------------------- entries

__device__ inline uint32_t count_of(const tri_entries &entries)
{
    const uint32_t capacity = entries.capacity;
    if (entries.count == nullptr)
        return capacity;
    const uint32_t count = *entries.count;
    return count < capacity ? count : capacity;
}

// -------------------------------------------------------------------------------------------- sums

// The sum of x over the lanes up to and with this one. All lanes take part.
__device__ inline uint32_t warp_inclusive(uint32_t x)
{
    const uint32_t lane = lane_of();
#pragma unroll
    for (uint32_t d = 1; d < kWarp; d *= 2) {
        const uint32_t lower = __shfl_up_sync(kAllLanes, x, d);
        x += lane >= d ? lower : 0;
    }
    return x;
}

__device__ inline uint32_t warp_sum(uint32_t x)
{
#pragma unroll
    for (uint32_t d = kWarp / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(kAllLanes, x, d);
    return x;
}

// The sum of x over the threads below this one, and over all. Every thread of the block takes part;
// Threads is the size of the block, a multiple of 32 and at most 1,024. `room` is shared memory
// that the next scan may use again at once.
template <uint32_t Threads>
struct ScanRoom {
    uint32_t warps[Threads / kWarp];
};

template <uint32_t Threads>
__device__ inline uint32_t block_exclusive(uint32_t x, uint32_t &total, ScanRoom<Threads> &room)
{
    constexpr uint32_t kWarps = Threads / kWarp;
    const uint32_t inclusive = warp_inclusive(x);
    if (lane_of() == kWarp - 1)
        room.warps[threadIdx.x / kWarp] = inclusive;
    __syncthreads();
    // Every warp adds up the sums of all: there are at most 32.
    const uint32_t warp = threadIdx.x / kWarp;
    const uint32_t sums = warp_inclusive(lane_of() < kWarps ? room.warps[lane_of()] : 0);
    const uint32_t lower = __shfl_sync(kAllLanes, sums, warp - 1);
    const uint32_t below = warp == 0 ? 0 : lower;
    total = __shfl_sync(kAllLanes, sums, kWarp - 1);
    __syncthreads();
    return below + inclusive - x;
}

// ------------------------------------------------------------------------------------- on the host

// The multiprocessors of the current device; at least 1.
inline uint32_t multiprocessors()
{
    int device = 0, n = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || n < 1)
        return 1;
    return static_cast<uint32_t>(n);
}

// Blocks for `items` items, `per_block` each, and no more than `limit`; at least one.
inline uint32_t blocks_for(uint64_t items, uint64_t per_block, uint32_t limit)
{
    const uint64_t blocks = (items + per_block - 1) / per_block;
    return blocks > limit ? limit : blocks == 0 ? 1 : static_cast<uint32_t>(blocks);
}

// *word = 0; nothing if it is NULL.
inline trib_status zero_word(uint32_t *word, trib_stream stream)
{
    if (word == nullptr ||
        cudaMemsetAsync(word, 0, sizeof *word, static_cast<cudaStream_t>(stream)) == cudaSuccess)
        return TRIB_OK;
    (void)cudaGetLastError();
    return TRIB_ERR_CUDA;
}

inline size_t aligned_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

} // namespace
