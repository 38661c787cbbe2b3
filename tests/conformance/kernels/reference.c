/* The arithmetic of the kernels once more, one element at a time, in double where that is exact. */
#include <math.h>
#include <string.h>

#include "tests/conformance/kernels/kernels.h"

uint64_t kernels_random(void)
{
    static uint64_t state;
    uint64_t z = state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* ------------------------------------------------------------------------------------ floats */

static bool is_float(trib_dtype dtype)
{
    return dtype == TRIB_F16 || dtype == TRIB_BF16 || dtype == TRIB_F32 || dtype == TRIB_F64;
}

/* A 16-bit float of `digits` mantissa bits: sign, exponent, mantissa. */
static double small_get(uint16_t bits, int digits)
{
    const int exponent = (bits & 0x7fff) >> digits, top = 0x7fff >> digits;
    const int mantissa = bits & ((1 << digits) - 1), bias = top / 2;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == top)
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - digits);
    return sign * ldexp(mantissa + (1 << digits), exponent - bias - digits);
}

static uint16_t small_put(double value, int digits)
{
    const int top = 0x7fff >> digits, bias = top / 2;
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return 0x7fff;
    if (value == 0)
        return sign;
    int exponent = 0;
    (void)frexp(value, &exponent); /* |value| is in [2^(exponent-1), 2^exponent) */
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    const double steps =
        isinf(value) ? ldexp(2, digits) : nearbyint(ldexp(fabs(value), digits - exponent));
    if (isinf(value) || ldexp(steps, exponent - digits) >= ldexp(1, top - bias))
        return (uint16_t)(sign | top << digits);
    /* A mantissa that was rounded up to 2^(digits + 1) carries into the exponent by itself. */
    return (uint16_t)(sign + ((exponent + bias - 1) << digits) + (int)steps);
}

double kernels_get(const void *element, trib_dtype dtype)
{
    uint16_t small;
    float f32;
    double f64;
    switch (dtype) {
    case TRIB_F32:
        memcpy(&f32, element, sizeof f32);
        return (double)f32;
    case TRIB_F64:
        memcpy(&f64, element, sizeof f64);
        return f64;
    default:
        memcpy(&small, element, sizeof small);
        return small_get(small, dtype == TRIB_F16 ? 10 : 7);
    }
}

void kernels_put(void *element, trib_dtype dtype, double value)
{
    const float f32 = (float)value;
    uint16_t small;
    switch (dtype) {
    case TRIB_F32:
        memcpy(element, &f32, sizeof f32);
        break;
    case TRIB_F64:
        memcpy(element, &value, sizeof value);
        break;
    default:
        small = small_put(value, dtype == TRIB_F16 ? 10 : 7);
        memcpy(element, &small, sizeof small);
        break;
    }
}

void kernels_fill(void *data, trib_dtype dtype, size_t count, enum kernels_numbers numbers)
{
    const size_t size = trib_dtype_size(dtype);
    unsigned char *element = data;
    for (size_t i = 0; i < count; i++, element += size) {
        const uint64_t bits = kernels_random();
        memcpy(element, &bits, size);
        if (!is_float(dtype))
            continue;
        const double value = kernels_get(element, dtype);
        if (numbers == KERNELS_TAME || (numbers == KERNELS_WILD && isnan(value)))
            kernels_put(element, dtype, ldexp((double)(int64_t)bits, -62));
    }
}

/* --------------------------------------------------------------------------------- reductions */

static double fold_float(double a, double b, trib_op op)
{
    switch (op) {
    case TRIB_PROD:
        return a * b;
    case TRIB_MIN:
        return b < a ? b : a;
    case TRIB_MAX:
        return b > a ? b : a;
    default:
        return a + b;
    }
}

/* Sums, products and quotients of two f32 in f64 round to f32 as if made there (53 >= 2 * 24 +
 * 2). */
static void reduce_float(void *dst, const void *const *src, size_t nsrc, trib_dtype dtype,
                         trib_op op)
{
    double sum = kernels_get(src[0], dtype);
    for (size_t i = 1; i < nsrc; i++) {
        sum = fold_float(sum, kernels_get(src[i], dtype), op);
        sum = dtype == TRIB_F64 ? sum : (double)(float)sum;
    }
    if (op == TRIB_AVG) {
        sum /= (double)nsrc;
        sum = dtype == TRIB_F64 ? sum : (double)(float)sum;
    }
    kernels_put(dst, dtype, sum);
}

/* The low bytes of the element, extended to 64 bits by its sign if it has one. */
static uint64_t get_integer(const void *element, size_t size, bool has_sign)
{
    uint64_t bits = 0;
    memcpy(&bits, element, size);
    const uint64_t sign = (uint64_t)1 << (8 * size - 1);
    return has_sign && (bits & sign) ? bits | ~(sign | (sign - 1)) : bits;
}

static bool is_less(uint64_t a, uint64_t b, bool has_sign)
{
    return has_sign ? (int64_t)a < (int64_t)b : a < b;
}

static void reduce_integer(void *dst, const void *const *src, size_t nsrc, trib_dtype dtype,
                           trib_op op)
{
    const size_t size = trib_dtype_size(dtype);
    const bool has_sign = dtype == TRIB_I8 || dtype == TRIB_I32 || dtype == TRIB_I64;
    uint64_t sum = get_integer(src[0], size, has_sign);
    for (size_t i = 1; i < nsrc; i++) {
        const uint64_t next = get_integer(src[i], size, has_sign);
        if (op == TRIB_PROD)
            sum *= next;
        else if (op == TRIB_MIN)
            sum = is_less(next, sum, has_sign) ? next : sum;
        else if (op == TRIB_MAX)
            sum = is_less(sum, next, has_sign) ? next : sum;
        else
            sum += next;
    }
    if (op == TRIB_AVG) { /* of the sum as it wrapped */
        sum = get_integer(&sum, size, has_sign);
        sum = has_sign ? (uint64_t)((int64_t)sum / (int64_t)nsrc) : sum / nsrc;
    }
    memcpy(dst, &sum, size);
}

void kernels_fold(void *dst, const void *const *src, size_t nsrc, trib_dtype dtype, trib_op op)
{
    if (is_float(dtype))
        reduce_float(dst, src, nsrc, dtype, op);
    else
        reduce_integer(dst, src, nsrc, dtype, op);
}
