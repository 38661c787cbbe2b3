/* f16 and bf16, held as bits, from and to f32. Narrowing rounds to nearest even, overflows to
 * infinity, and maps any NaN to 0x7fff (as a GPU does). Without branches, so that loops vectorise,
 * and without f32 denormals, so that a thread's flush-to-zero mode changes nothing. */
#ifndef TRI_BASE_HALF_H
#define TRI_BASE_HALF_H

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
    const int32_t magnitude = (int32_t)(bits & 0x7fffffffu);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)(magnitude > 0x7f800000 ? 0x7fffu : rounded);
}

/* A select that the compiler does not turn into a branch. */
static inline uint32_t tri_pick(int condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

/* The fields of a normal f16 move up by 13 bits and its exponent is 112 less; infinities and NaNs
 * get all ones as exponent, that is 112 more once again. A denormal is its mantissa times 2^-24. */
static inline float tri_f16_to_f32(uint16_t half)
{
    const int32_t magnitude = half & 0x7fff;
    const uint32_t special = tri_pick(magnitude >= 0x7c00, 112u << 23, 0);
    const uint32_t normal = ((uint32_t)magnitude << 13) + (112u << 23) + special;
    const uint32_t denormal = tri_f32_bits((float)magnitude * 0x1p-24f);
    const uint32_t bits = tri_pick(magnitude < 0x0400, denormal, normal);
    return tri_f32_from_bits(bits | (uint32_t)(half & 0x8000u) << 16);
}

/* 65520 and above round to infinity. Below 2^-14 the result is a denormal: added to 0.5, whose last
 * place is 2^-24, the value is rounded at that very place. */
static inline uint16_t tri_f32_to_f16(float value)
{
    const uint32_t bits = tri_f32_bits(value);
    const int32_t magnitude = (int32_t)(bits & 0x7fffffffu);
    const uint32_t odd = (uint32_t)magnitude >> 13 & 1u;
    const uint32_t normal = ((uint32_t)magnitude - (112u << 23) + 0xfffu + odd) >> 13;
    const uint32_t denormal =
        tri_f32_bits(tri_f32_from_bits((uint32_t)magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t finite = tri_pick(magnitude < 0x38800000, denormal, normal);
    const uint32_t number =
        tri_pick(magnitude >= 0x477ff000, 0x7c00u, finite) | (bits >> 16 & 0x8000u);
    return (uint16_t)tri_pick(magnitude > 0x7f800000, 0x7fffu, number);
}

#endif
