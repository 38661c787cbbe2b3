// select, second launch: the one pass over the tensor. A warp takes a tile: it makes acc, counts what
// reaches the guess, draws so many places with one atomic addition, and stores those elements there.
// acc is written last, with `clear` without what a candidate would take out of it: taking it out is
// free here, and finish gives the few that are not selected back.
#pragma once

#include "kernels/cuda/select_guess.cuh"

namespace {

template <typename T, typename G>
constexpr uint32_t kGatherThreads = Has<G>::kGradient && sizeof(T) == 4 ? 640 : 512;

// Which elements of a lane reach the guess: a bit each, four neighbouring bits a step.
template <uint32_t Steps>
struct Mask {
    uint32_t word[(Steps + 7) / 8];

    __device__ uint32_t at(uint32_t step) const
    {
        return word[step / 8] >> step % 8 * 4 & 15;
    }
};

// x reaches `low`, as a comparison of numbers: `low` is not above infinity, and a NaN reaches it.
__device__ inline bool reaches(float x, float low)
{
    return !(fabsf(x) < low);
}

__device__ inline bool reaches(double x, double low)
{
    return !(fabs(x) < low);
}

template <uint32_t Steps, typename T>
__device__ inline Mask<Steps> find_candidates(const T (&value)[Steps][kFour], Key<T> low)
{
    Mask<Steps> mask = {};
    const T least = magnitude(low);
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++)
            mask.word[s / 8] |= reaches(value[s][q], least) ? 1u << (s % 8 * 4 + q) : 0;
    if (low > KeyOf<T>::kInfinity) { // hardly ever: no number does
        mask = {};
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                mask.word[s / 8] |= key_of(value[s][q]) >= low ? 1u << (s % 8 * 4 + q) : 0;
    }
    // Otherwise the compiler remembers each comparison by itself, and runs out of registers.
#pragma unroll
    for (uint32_t w = 0; w < sizeof mask / sizeof mask.word[0]; w++)
        asm("" : "+r"(mask.word[w]));
    return mask;
}

// How many fours have a candidate.
template <uint32_t Steps>
__device__ inline uint32_t count_fours(const Mask<Steps> &mask)
{
    uint32_t n = 0;
#pragma unroll
    for (uint32_t w = 0; w < sizeof mask / sizeof mask.word[0]; w++) {
        const uint32_t pairs = mask.word[w] | mask.word[w] >> 1;
        n += __popc((pairs | pairs >> 2) & 0x11111111u);
    }
    return n;
}

// How many there are in each step: a byte each, for a sum over lanes is at most 128. A mask's word
// makes two words of bytes, one for its even and one for its odd steps.
template <uint32_t Steps>
struct Packed {
    uint32_t word[(Steps + 7) / 8 * 2];

    __device__ uint32_t at(uint32_t step) const
    {
        return word[step / 8 * 2 + step % 2] >> step % 8 / 2 * 8 & 0xff;
    }
};

template <uint32_t Steps>
__device__ inline Packed<Steps> count_bits(const Mask<Steps> &mask)
{
    Packed<Steps> counts;
#pragma unroll
    for (uint32_t w = 0; w < (Steps + 7) / 8; w++) {
        uint32_t bits = mask.word[w];
        bits -= bits >> 1 & 0x55555555u;
        bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u); // four bits: 0 to 4
        counts.word[2 * w] = bits & 0x0f0f0f0fu;
        counts.word[2 * w + 1] = bits >> 4 & 0x0f0f0f0fu;
    }
    return counts;
}

// Where a warp collects the fours that have a candidate, so many at a time, so that its lanes can
// share what then has to be done.
template <typename T>
constexpr uint32_t kStaged = sizeof(T) == 8 ? 32 : 64;

template <typename T>
struct Stage {
    alignas(16) T value[kStaged<T>][kFour];
    // The bits of the mask; from bit 4 on, where in the tile the four lies; from bit 16 on, how many
    // of the tile's candidates come before.
    uint32_t about[kStaged<T>];
};

// Those of the lane's fours whose number, from `first` on, is less than kStaged.
template <uint32_t Steps, typename T>
__device__ inline void stage_fours(Stage<T> &stage, const T (&value)[Steps][kFour],
                                   const Mask<Steps> &mask, const Packed<Steps> &below,
                                   const Packed<Steps> &all, uint32_t first)
{
    static_assert(Steps * kWarp <= 1u << 12, "the place of a four has 12 bits");
    uint32_t before = 0; // of the steps before
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++) {
        const uint32_t bits = mask.at(s);
        if (bits != 0) {
            if (first < kStaged<T>) {
                copy_four(stage.value[first], value[s]);
                stage.about[first] =
                    (before + below.at(s)) << 16 | (s * kWarp + lane_of()) << 4 | bits;
            }
            first++;
        }
        before += all.at(s);
    }
}

// Write the candidates of `n` fours, the tile's first to `place`; returns how many of this lane's are
// not finite.
template <typename T>
__device__ inline uint32_t write_staged(const Select &job, const Stage<T> &stage, uint32_t n,
                                        uint32_t place, uint32_t index, Key<T> low,
                                        uint32_t *window)
{
    uint32_t bad = 0;
    for (uint32_t i = lane_of(); i < n; i += kWarp) {
        const uint32_t about = stage.about[i];
        uint32_t at = place + (about >> 16);
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++)
            if ((about >> q & 1) != 0) {
                const T value = stage.value[i][q];
                const uint64_t digit =
                    static_cast<uint64_t>(key_of(value) - low) >> kWindowShift<T>;
                static_cast<T *>(job.value)[at] = value;
                job.index[at] = index + (about >> 4 & 0xfff) * kFour + q;
                if (digit < kDigits)
                    atomicAdd(&window[digit], 1);
                bad += !finite(value);
                at++;
            }
    }
    return bad;
}

// What is left of the lane's candidates.
template <uint32_t Steps, typename T>
__device__ inline void clear_candidates(T (&value)[Steps][kFour], const Mask<Steps> &mask,
                                        trib_dtype entry)
{
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
        if (mask.at(s) != 0)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                if ((mask.at(s) >> q & 1) != 0)
                    value[s][q] = left_of(value[s][q], entry);
}

// One tile; returns how many infinities and NaNs this lane has seen.
template <uint32_t Steps, typename T, typename G>
__device__ inline uint32_t gather_tile(const Select &job, const Range<T, G> &range, uint32_t tile,
                                       Key<T> low, Stage<T> &stage, uint32_t *window)
{
    const uint64_t begin = static_cast<uint64_t>(tile) * (Steps * kWarp * kFour);
    T value[Steps][kFour];
    load_tile<kWarp>(value, range, begin, lane_of());

    const Mask<Steps> mask = find_candidates(value, low);
    const Packed<Steps> own = count_bits(mask);
    Packed<Steps> below, all;
    uint32_t total = 0;
#pragma unroll
    for (uint32_t w = 0; w < sizeof own / sizeof own.word[0]; w++) {
        const uint32_t inclusive = warp_inclusive(own.word[w]);
        below.word[w] = inclusive - own.word[w];
        all.word[w] = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
        total = __dp4a(all.word[w], 0x01010101u, total);
    }

    uint32_t base = 0;
    if (total != 0 && lane_of() == 0) {
        base = atomicAdd(&job.control->candidates, total);
        job.tile[tile] = {base, total};
        if (base > job.capacity || total > job.capacity - base)
            atomicMax(&job.control->lost, ~base);
    } else if (lane_of() == 0) {
        job.tile[tile] = {0, 0};
    }
    base = __shfl_sync(kAllLanes, base, 0);
    const bool room = base <= job.capacity && total <= job.capacity - base;
    uint32_t bad = 0;
    // What is not finite is mostly among the candidates.
    if (!room || low > KeyOf<T>::kInfinity)
        bad = count_nonfinite(value);
    if (room && total != 0) {
        const uint32_t index = static_cast<uint32_t>(job.first + begin - range.begin);
        const uint32_t fours = count_fours(mask), last = warp_inclusive(fours);
        const uint32_t all_fours = __shfl_sync(kAllLanes, last, kWarp - 1);
        uint32_t found = 0;
        for (uint32_t start = 0; start < all_fours; start += kStaged<T>) {
            stage_fours(stage, value, mask, below, all, last - fours - start);
            __syncwarp();
            found += write_staged(job, stage, min(all_fours - start, kStaged<T>), base, index, low,
                                  window);
            __syncwarp();
        }
        bad += low > KeyOf<T>::kInfinity ? 0 : found;
        if (Has<G>::kGradient && job.clear)
            clear_candidates(value, mask, job.out.dtype);
    }
    if constexpr (Has<G>::kGradient)
        store_tile<kWarp>(value, range, begin, lane_of());
    return bad;
}

template <typename T, typename G>
__global__ void __launch_bounds__(kGatherThreads<T, G>, 1) select_gather(const Select job)
{
    constexpr uint32_t kThreads = kGatherThreads<T, G>, kWarps = kThreads / kWarp;
    __shared__ uint32_t window[kDigits];
    __shared__ MedianRoom room;
    __shared__ Stage<T> stages[kWarps];
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        window[d] = 0;
    const uint64_t lowest = lowest_of<T>(job, room);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        job.control->low = lowest;
        job.control->floor = floor_of<T>(job);
    }
    __syncthreads();

    const Key<T> low = static_cast<Key<T>>(lowest);
    const Range<T, G> range = range_of<T, G>(job.acc, job.first, job.count);
    const uint32_t warps = gridDim.x * kWarps;
    uint32_t bad = 0;
    for (uint32_t tile = blockIdx.x * kWarps + threadIdx.x / kWarp;
         tile < job.tiles; tile += warps)
        bad += gather_tile<kSteps<T, G>>(job, range, tile, low, stages[threadIdx.x / kWarp], window);

    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        if (window[d] != 0)
            atomicAdd(&job.control->window[d], window[d]);
}

} // namespace
