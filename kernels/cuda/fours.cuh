// A warp and the few elements of a tile that reach a key: it finds them, ranks them in index order,
// and collects the fours that contain them in shared memory, so that its lanes can share the work
// on them.
#pragma once

#include "kernels/cuda/stream.cuh"

namespace {

// The elements of a lane that reach a key: a bit for each, four neighbouring bits per step.
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

// The number of fours with a candidate.
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

// The number in each step: a byte for each, as a sum over lanes is at most 128. A mask's word
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

// The numbers of candidates in each step of the lanes before this one, and of all lanes.
template <uint32_t Steps>
struct Ranks {
    Packed<Steps> below, all;

    __device__ uint32_t total() const
    {
        uint32_t sum = 0;
#pragma unroll
        for (uint32_t w = 0; w < sizeof all / sizeof all.word[0]; w++)
            sum = __dp4a(all.word[w], 0x01010101u, sum);
        return sum;
    }
};

template <uint32_t Steps>
__device__ inline Ranks<Steps> rank_candidates(const Mask<Steps> &mask)
{
    const Packed<Steps> own = count_bits(mask);
    Ranks<Steps> ranks;
#pragma unroll
    for (uint32_t w = 0; w < sizeof own / sizeof own.word[0]; w++) {
        const uint32_t inclusive = warp_inclusive(own.word[w]);
        ranks.below.word[w] = inclusive - own.word[w];
        ranks.all.word[w] = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
    }
    return ranks;
}

// A staged four in one word: which of its elements are candidates, its number in the tile, and how
// many of the tile's candidates come before it.
struct FourTag {
    uint32_t word; // 4, 12 and 16 bits

    __device__ bool has(uint32_t q) const
    {
        return (word >> q & 1) != 0;
    }
    // The place of its element q in the tile.
    __device__ uint32_t place(uint32_t q) const
    {
        return (word >> 4 & 0xfff) * kFour + q;
    }
    __device__ uint32_t before() const
    {
        return word >> 16;
    }
};

__device__ inline FourTag tag_of(uint32_t before, uint32_t four, uint32_t candidates)
{
    return {before << 16 | four << 4 | candidates};
}

// The room in which a warp collects the fours with a candidate, at most Room at a time.
template <typename T, uint32_t Room>
struct Stage {
    alignas(16) T value[Room][kFour];
    FourTag tag[Room];
};

// Those of the lane's fours whose number, from `first` on, is less than Room.
template <uint32_t Steps, typename T, uint32_t Room>
__device__ inline void stage_fours(Stage<T, Room> &stage, const T (&value)[Steps][kFour],
                                   const Mask<Steps> &mask, const Ranks<Steps> &ranks,
                                   uint32_t first)
{
    static_assert(Steps * kWarp <= 1u << 12, "the place of a four has 12 bits");
    uint32_t before = 0; // of the steps before
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++) {
        const uint32_t bits = mask.at(s);
        if (bits != 0) {
            if (first < Room) {
                copy_four(stage.value[first], value[s]);
                stage.tag[first] = tag_of(before + ranks.below.at(s), s * kWarp + lane_of(), bits);
            }
            first++;
        }
        before += ranks.all.at(s);
    }
}

} // namespace
