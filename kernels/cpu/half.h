/* f16 and bf16, held as their bits, from and to f32. To narrower: round to nearest even, overflow to
 * infinity, any NaN to 0x7fff (what a GPU gives). No branches, so that loops of these vectorise, and
 * no f32 denormals on the way, so that a thread's flush-to-zero mode changes nothing. */
#ifndef TRI_CPU_HALF_H
#define TRI_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tri_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tri_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float tri_bf16_to_f32(uint16_t half)
{
    return tri_f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t tri_f32_to_bf16(float value)
{
    const uint32_t bits = tri_f32_bits(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

/* The fields of a normal f16 move up by 13 bits and its exponent is 112 less; infinities and NaNs
 * get all ones as exponent, that is 112 more once again. A denormal is its mantissa times 2^-24. */
static inline float tri_f16_to_f32(uint16_t half)
{
    const uint32_t magnitude = half & 0x7fffu;
    const uint32_t special = magnitude >= 0x7c00u ? 112u << 23 : 0;
    const uint32_t normal = (magnitude << 13) + (112u << 23) + special;
    const uint32_t denormal = tri_f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    const uint32_t bits = magnitude < 0x0400u ? denormal : normal;
    return tri_f32_from_bits(bits | (uint32_t)(half & 0x8000u) << 16);
}

/* 65520 and above round to infinity. Below 2^-14 the result is a denormal: added to 0.5, whose last
 * place is 2^-24, the value is rounded at that very place. */
static inline uint16_t tri_f32_to_f16(float value)
{
    const uint32_t bits = tri_f32_bits(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t denormal = tri_f32_bits(tri_f32_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t result = magnitude < 0x38800000u ? denormal : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;
    result = magnitude > 0x7f800000u ? 0x7fffu : result | (bits >> 16 & 0x8000u);
    return (uint16_t)result;
}

#endif
