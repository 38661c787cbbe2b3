// Tiles on their way from memory while the warp works on another: copied to shared memory, past
// registers, by instructions that nobody waits for until the tile is wanted (from sm_80 on). A lane
// reads back only what it has copied itself: so there is no barrier, and what it has read it may
// overwrite.
#pragma once

#include "kernels/cuda/stream.cuh"

namespace {

// Shared memory whose size the launch says.
__device__ inline char *launched_shared()
{
    extern __shared__ uint4 launched[];
    return reinterpret_cast<char *>(launched);
}

// 8 or 16 bytes, aligned so, read once: the second cache need not keep them.
template <uint32_t Bytes>
__device__ inline void copy_ahead(void *shared, const void *global)
{
    static_assert(Bytes == 8 || Bytes == 16, "cp.async knows these");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    uint64_t once;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
    if constexpr (Bytes == 16)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
                     :
                     : "r"(to), "l"(global), "l"(once)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 8, %2;"
                     :
                     : "r"(to), "l"(global), "l"(once)
                     : "memory");
#else
    if constexpr (Bytes == 16)
        *static_cast<uint4 *>(shared) = *static_cast<const uint4 *>(global);
    else
        *static_cast<uint2 *>(shared) = *static_cast<const uint2 *>(global);
#endif
}

// What this thread has asked for since the last end of a group is a group.
__device__ inline void end_group()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

// All of this thread's groups have come but the last `Groups`.
template <uint32_t Groups>
__device__ inline void wait_for_groups()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory");
#endif
}

// The fours of a warp's tile, so that neighbouring lanes have neighbouring words.
template <uint32_t Steps, typename X>
struct Fours {
    static constexpr uint32_t kBytes = sizeof(X) * kFour < 16 ? sizeof(X) * kFour : 16;
    static constexpr uint32_t kWords = sizeof(X) * kFour / kBytes, kEach = kFour / kWords;
    struct alignas(kBytes) Word {
        X element[kEach];
    };
    Word word[Steps][kWords][kWarp];

    // From this lane's first.
    __device__ void ask(const X *from)
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
            for (uint32_t w = 0; w < kWords; w++)
                copy_ahead<kBytes>(&word[s][w][lane_of()], from + s * kWarp * kFour + w * kEach);
    }

    __device__ void get(X (&out)[kFour], uint32_t step) const
    {
#pragma unroll
        for (uint32_t w = 0; w < kWords; w++) {
            const Word mine = word[step][w][lane_of()];
#pragma unroll
            for (uint32_t q = 0; q < kEach; q++)
                out[w * kEach + q] = mine.element[q];
        }
    }
};

// A warp's tile of a range.
template <uint32_t Steps, typename T, typename G>
struct Ahead {
    Fours<Steps, T> residual;
    Fours<Steps, G> gradient;

    __device__ void ask(const Range<T, G> &range, uint64_t begin)
    {
        gradient.ask(range.gradient + begin + lane_of() * kFour);
        residual.ask(range.residual + begin + lane_of() * kFour);
    }

    __device__ void make(T (&value)[Steps][kFour], const Range<T, G> &range) const
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++) {
            G of_gradient[kFour];
            T of_residual[kFour];
            gradient.get(of_gradient, s);
            residual.get(of_residual, s);
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                value[s][q] = accumulated(widen(of_gradient[q]), of_residual[q], range.decay);
        }
    }
};

template <uint32_t Steps, typename T>
struct Ahead<Steps, T, None> {
    Fours<Steps, T> sum;

    __device__ void ask(const Range<T, None> &range, uint64_t begin)
    {
        sum.ask(range.sum + begin + lane_of() * kFour);
    }

    __device__ void make(T (&value)[Steps][kFour], const Range<T, None> &) const
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
            sum.get(value[s], s);
    }
};

} // namespace
