// The result of a call that is not applied becomes 0: by all blocks of the launch that ends the call.
#pragma once

#include "kernels/cuda/entries.cuh"

namespace {

// In 16 bytes, but for what lies before the first such unit and behind the last.
__device__ inline void clear(const tri_clearing &result)
{
    unsigned char *const dense = static_cast<unsigned char *>(result.dense);
    const size_t bytes = dense == nullptr ? 0 : result.bytes;
    const size_t place = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
    const size_t misplaced = reinterpret_cast<uintptr_t>(dense) % 16;
    const size_t head = min((16 - misplaced) % 16, bytes), units = (bytes - head) / 16;
    uint4 *to = reinterpret_cast<uint4 *>(dense + head);
    for (size_t i = place; i < units; i += static_cast<size_t>(gridDim.x) * kThreads)
        to[i] = uint4{};
    if (place < head)
        dense[place] = 0;
    const size_t tail = head + units * 16 + place;
    if (place < 16 && tail < bytes)
        dense[tail] = 0;
    if (place == 0 && result.count != nullptr)
        *result.count = 0;
}

// Few, for there is next to never anything to do.
inline uint32_t blocks_to_clear(const tri_clearing &result)
{
    return blocks_for(result.dense == nullptr ? 0 : result.bytes, kThreads * 64, kMaxBlocks / 8);
}

} // namespace
