// select, first launch: every block guesses by a sample of its own, spread over the whole range.
// Later launches take the median of the guesses: so no block waits for another, and nothing needs
// to be zero before. This launch zeroes the memory that the later ones need to be zero, and signs the
// header, before they write anything behind it.
#pragma once

#include "kernels/cuda/select.cuh"
#include "kernels/cuda/sign.cuh"

namespace {

// Somewhere in the j-th of so many equal parts of the range.
__device__ inline uint64_t sampled(uint64_t j, uint64_t parts, uint64_t count)
{
    const uint64_t low = j * count / parts, high = (j + 1) * count / parts;
    return low + __umul64hi(mixed(j), high - low);
}

template <typename T, typename G>
__global__ void __launch_bounds__(kGuessThreads) select_guess(const Select job)
{
    __shared__ uint32_t histogram[kDigits];
    __shared__ DigitRoom<kGuessThreads> room;
    constexpr int kBits = KeyOf<T>::kBits;
    let_next_start();

    uint32_t *const control = reinterpret_cast<uint32_t *>(job.control);
    for (uint32_t i = blockIdx.x * kGuessThreads + threadIdx.x; i < sizeof(Control) / 4;
         i += gridDim.x * kGuessThreads)
        control[i] = 0;
    // partition waits for the end of this launch, not for let_next_start: the header is in memory
    // before anything behind it changes.
    if (blockIdx.x == 0 && threadIdx.x == 0 && job.signing.header != nullptr)
        sign_header(job.signing);
    if (job.rank == 0)
        return;

    const Range<T, G> range = range_of<T, G>(job.acc, job.first, job.count);
    const uint64_t part = static_cast<uint64_t>(threadIdx.x) * gridDim.x + blockIdx.x;
    const Key<T> key = key_of(
        element_of(range, range.begin + sampled(part, gridDim.x * kGuessThreads, job.count)));
    Key<T> prefix = 0; // of the guess: two digits are precise enough
    // Ranks in between are those of some of the blocks.
    uint32_t wanted = min(max((job.rank + blockIdx.x) / gridDim.x, 1u), kGuessThreads);
    int shift = kBits;
#pragma unroll
    for (int round = 0; round < 2; round++) {
        for (uint32_t d = threadIdx.x; d < kDigits; d += kGuessThreads)
            histogram[d] = 0;
        __syncthreads();
        if (key >> shift == prefix >> shift)
            atomicAdd(&histogram[key >> (shift - kDigitBits) & (kDigits - 1)], 1);
        __syncthreads();
        uint32_t total;
        const uint32_t digit = find_digit(histogram, 0, wanted, total, room);
        shift -= kDigitBits;
        prefix |= static_cast<Key<T>>(digit) << shift;
    }
    if (threadIdx.x == 0)
        job.guesses[blockIdx.x] = prefix | blockIdx.x; // no two are equal
}

static_assert((kMostGuesses - 1) >> (31 - 2 * kDigitBits) == 0,
              "two digits leave a block's number room");

// The median of the guesses, for all threads of a block. Four of them compare one guess with the
// others.
struct MedianRoom {
    uint64_t guesses[kMostGuesses];
    uint64_t median;
};

__device__ inline uint64_t median_of(const uint64_t *guesses, uint32_t n, MedianRoom &room)
{
    if (threadIdx.x < n)
        room.guesses[threadIdx.x] = guesses[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 4 * n) {
        const uint64_t mine = room.guesses[threadIdx.x / 4];
        uint32_t below = 0;
#pragma unroll 8
        for (uint32_t i = threadIdx.x % 4; i < n; i += 4)
            below += room.guesses[i] < mine;
        below += __shfl_xor_sync(kAllLanes, below, 1);
        below += __shfl_xor_sync(kAllLanes, below, 2);
        if (below == n / 2)
            room.median = mine - threadIdx.x / 4; // without the block's number
    }
    __syncthreads();
    return room.median;
}

// The least key of a candidate.
template <typename T>
__device__ inline uint64_t lowest_of(const Select &job, MedianRoom &room)
{
    const uint64_t least = static_cast<uint64_t>(floor_of<T>(job)) + 1;
    if (job.k == 0 || job.guess == TRI_GUESS_HIGH)
        return kNothing<T>;
    if (job.rank == 0)
        return least;
    const uint64_t median = median_of(job.guesses, job.guessers, room);
    return median > least ? median : least;
}

// Where memory is read anyway, samples cost time; of more elements, candidates too many cost more.
inline uint32_t guessers_of(uint64_t count)
{
    return count < uint64_t{1} << 26 ? kMostGuesses / 2 : kMostGuesses;
}

// The rank, in parts of `guessers`, in a sample of kGuessThreads that somewhat more than k of
// `count` elements reach. The median of the r-th largest of n lies at (r - 1/3) / (n + 1/3); how
// far the median over the blocks is off has a standard deviation of 1.25 over the root of all
// samples that reach it. Four of them: it misses once in 30,000 times, and every candidate too many
// costs something each time.
inline uint32_t rank_of(uint64_t count, uint32_t k, uint32_t guessers)
{
    const double samples = static_cast<double>(guessers) * kGuessThreads;
    const double share = static_cast<double>(k) / static_cast<double>(count);
    const double spread = 4 * 1.25 * sqrt(share * samples) / samples;
    const double rank = (share + spread) * (kGuessThreads + 1 / 3.0) + 1 / 3.0;
    return rank >= kGuessThreads ? kGuessThreads * guessers
                                 : static_cast<uint32_t>(rank * guessers) + 1;
}

} // namespace
