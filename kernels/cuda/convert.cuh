// Element types as the weighted kernels see them: f16 and bf16 from and to f32, with the bits that
// kernels/cpu/half.h gives: round to nearest even, overflow to infinity, any NaN to 0x7fff.
#pragma once

#include <cstdint>

namespace {

struct F16 {
    uint16_t bits;
};
struct Bf16 {
    uint16_t bits;
};

__device__ inline float widen(F16 x)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
}

__device__ inline float widen(Bf16 x)
{
    return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

__device__ inline float widen(float x)
{
    return x;
}

__device__ inline double widen(double x)
{
    return x;
}

__device__ inline void narrow(F16 &out, float value)
{
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
}

// In integers, because the instruction came with sm_80.
__device__ inline void narrow(Bf16 &out, float value)
{
    const uint32_t bits = __float_as_uint(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    out.bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

__device__ inline void narrow(float &out, float value)
{
    out = value;
}

__device__ inline void narrow(double &out, double value)
{
    out = value;
}

} // namespace
