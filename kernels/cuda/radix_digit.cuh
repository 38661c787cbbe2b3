// Keys in digits of 11 bits: in which of them does the wanted-th largest lie?
#pragma once

#include "kernels/cuda/sparse.cuh"

namespace {

constexpr uint32_t kDigitBits = 11, kDigits = 1u << kDigitBits;

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

} // namespace
