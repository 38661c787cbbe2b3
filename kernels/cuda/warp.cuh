// A warp.
#pragma once

#include <cstdint>

namespace {

constexpr uint32_t kWarp = 32; // lanes
constexpr uint32_t kAllLanes = 0xffffffffu;

__device__ inline uint32_t lane_of()
{
    return threadIdx.x % kWarp;
}

} // namespace
