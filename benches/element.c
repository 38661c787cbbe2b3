/* Elements in host memory, written and read as numbers. */
#include "benches/element.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static uint16_t f16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) == 0)
        return 0;
    const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
    return (uint16_t)((bits >> 16 & 0x8000u) | exponent << 10 | (bits >> 13 & 0x3ffu));
}

static double of_f16(uint16_t half)
{
    const int exponent = half >> 10 & 0x1f;
    const double mantissa = half & 0x3ff;
    const double size =
        exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -size : size;
}

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

#define STORE(type) ((type *)out)[i] = (type)value
#define STORE_WRAPPED(type) ((type *)out)[i] = (type)(uint64_t)(int64_t)fmod(value, 0x1p62)

void bench_encode(void *out, size_t i, double value, trib_dtype dtype)
{
    switch (dtype) {
    case TRIB_F16:
        ((uint16_t *)out)[i] = f16_of((float)value);
        break;
    case TRIB_BF16:
        ((uint16_t *)out)[i] = bf16_of((float)value);
        break;
    case TRIB_F32:
        STORE(float);
        break;
    case TRIB_F64:
        STORE(double);
        break;
    case TRIB_I8:
        STORE_WRAPPED(int8_t);
        break;
    case TRIB_U8:
        STORE_WRAPPED(uint8_t);
        break;
    case TRIB_I32:
        STORE_WRAPPED(int32_t);
        break;
    case TRIB_U32:
        STORE_WRAPPED(uint32_t);
        break;
    case TRIB_I64:
        STORE_WRAPPED(int64_t);
        break;
    case TRIB_U64:
        STORE_WRAPPED(uint64_t);
        break;
    default:
        break;
    }
}

double bench_decode(const void *in, size_t i, trib_dtype dtype)
{
    switch (dtype) {
    case TRIB_F16:
        return of_f16(((const uint16_t *)in)[i]);
    case TRIB_BF16: {
        const uint32_t bits = (uint32_t)((const uint16_t *)in)[i] << 16;
        float single;
        memcpy(&single, &bits, sizeof single);
        return (double)single;
    }
    case TRIB_F32:
        return (double)((const float *)in)[i];
    case TRIB_F64:
        return ((const double *)in)[i];
    case TRIB_I8:
        return ((const int8_t *)in)[i];
    case TRIB_U8:
        return ((const uint8_t *)in)[i];
    case TRIB_I32:
        return ((const int32_t *)in)[i];
    case TRIB_U32:
        return ((const uint32_t *)in)[i];
    case TRIB_I64:
        return (double)((const int64_t *)in)[i];
    case TRIB_U64:
        return (double)((const uint64_t *)in)[i];
    default:
        return NAN;
    }
}
