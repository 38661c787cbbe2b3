// Keys in digits of 11 bits: in which of them does the wanted-th largest lie?
#pragma once

#include "kernels/cuda/sparse.cuh"

namespace {

constexpr uint32_t kDigitBits = 11, kDigits = 1u << kDigitBits;

// The wanted-th largest key lies in [base, base + 2^shift): `wanted` is its rank there.
template <typename T>
struct Search {
    Key<T> base;
    int shift;
    uint32_t wanted;
};

// The digit of the wanted-th largest item. `histogram`: how many items have each digit, in shared
// memory; `total` becomes their sum, and if `all` is more, what it is more lies above every digit.
// `wanted` becomes the rank within the digit. kDigits, and `wanted` as it was, if it is none of
// them. By all threads of a block, and for them.
template <uint32_t Threads>
struct DigitRoom {
    ScanRoom<Threads> scan;
    uint32_t digit, wanted;
};

template <uint32_t Threads>
__device__ inline uint32_t find_digit(const uint32_t *histogram, uint32_t all, uint32_t &wanted,
                                      uint32_t &total, DigitRoom<Threads> &room)
{
    constexpr uint32_t kEach = kDigits / Threads;
    // Thread 0 has the highest digits: a sum over the threads below is one over higher digits.
    const uint32_t top = kDigits - 1 - threadIdx.x * kEach;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < kEach; i++)
        sum += histogram[top - i];
    if (threadIdx.x == 0)
        room.digit = kDigits;
    uint32_t above = block_exclusive<Threads>(sum, total, room.scan);
    above += all > total ? all - total : 0;
    if (above < wanted && wanted - above <= sum) // it is one of mine
        for (uint32_t i = 0; i < kEach; i++) {
            const uint32_t here = histogram[top - i];
            if (wanted - above <= here) {
                room.digit = top - i;
                room.wanted = wanted - above;
                break;
            }
            above += here;
        }
    __syncthreads();
    const uint32_t digit = room.digit;
    if (digit != kDigits)
        wanted = room.wanted;
    __syncthreads();
    return digit;
}

// The wanted-th largest key, as Search.base, and its rank among those equal to it, as Search.wanted: digit by
// digit, by all threads of a block. each(body): body(key) of every key, each by some thread.
template <typename T, uint32_t Threads, typename Each>
__device__ inline Search<T> narrow(Search<T> search, uint32_t *histogram, DigitRoom<Threads> &room,
                                   Each each)
{
    while (search.shift > 0) {
        const int next = search.shift > static_cast<int>(kDigitBits)
                             ? search.shift - static_cast<int>(kDigitBits)
                             : 0;
        for (uint32_t d = threadIdx.x; d < kDigits; d += Threads)
            histogram[d] = 0;
        __syncthreads();
        each([&](Key<T> key) {
            const Key<T> distance = key - search.base;
            if (key >= search.base && distance >> search.shift == 0)
                atomicAdd(&histogram[distance >> next], 1);
        });
        __syncthreads();
        uint32_t total;
        const uint32_t digit = find_digit(histogram, 0, search.wanted, total, room);
        search.base += static_cast<Key<T>>(digit) << next;
        search.shift = next;
    }
    return search;
}

} // namespace
