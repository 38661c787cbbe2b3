/* What collectives should give, computed naively from a formula, without the library. */
#include "tests/conformance/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Inputs repeat after this many elements, which makes large counts cheap to compute. A prime, so
 * that no chunk, block or vector length is a multiple of it and a shifted result is seen. */
enum { PERIOD = 1021 };

static bool is_float(trib_dtype dtype)
{
    return dtype <= TRIB_F64;
}

static bool is_signed(trib_dtype dtype)
{
    return dtype == TRIB_I8 || dtype == TRIB_I32 || dtype == TRIB_I64;
}

uint64_t reference_bits(uint64_t seed, uint64_t rank, uint64_t index)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + rank * 0xd1342543de82ef95u + index + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---------------------------------------------------------------------------------- elements */

static uint16_t half_bits(double value)
{
    if (value == 0)
        return 0;
    if (!isfinite(value))
        return isnan(value) ? 0x7e00 : value < 0 ? 0xfc00 : 0x7c00;
    int exponent;
    const double fraction = frexp(fabs(value), &exponent);
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 |
                      (int)((2 * fraction - 1) * 1024));
}

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    const double fraction = (bits & 1023) / 1024.0;
    double value =
        exponent == 0 ? 0x1p-14 * fraction : (1 + fraction) * (double)(1u << exponent) * 0x1p-15;
    if (exponent == 31)
        value = fraction == 0 ? INFINITY : NAN;
    return bits & 0x8000 ? -value : value;
}

static uint16_t bfloat_bits(double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double bfloat_value(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store_bits(void *dst, trib_dtype dtype, size_t index, uint64_t bits)
{
    const size_t size = trib_dtype_size(dtype);
    memcpy((char *)dst + index * size, &bits, size); /* little endian, as every GPU host is */
}

void reference_store(void *dst, trib_dtype dtype, size_t index, double value)
{
    uint64_t bits = 0;
    const float narrow = (float)value;
    if (dtype == TRIB_F64)
        memcpy(&bits, &value, sizeof value);
    else if (dtype == TRIB_F32)
        memcpy(&bits, &narrow, sizeof narrow);
    else if (dtype == TRIB_F16)
        bits = half_bits(value);
    else if (dtype == TRIB_BF16)
        bits = bfloat_bits(value);
    else
        bits = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
    store_bits(dst, dtype, index, bits);
}

double reference_load(const void *src, trib_dtype dtype, size_t index)
{
    const size_t size = trib_dtype_size(dtype);
    const char *element = (const char *)src + index * size;
    uint64_t bits = 0;
    float narrow;
    double wide;
    memcpy(&bits, element, size);
    switch (dtype) {
    case TRIB_F16:
        return half_value((uint16_t)bits);
    case TRIB_BF16:
        return bfloat_value((uint16_t)bits);
    case TRIB_F32:
        memcpy(&narrow, element, sizeof narrow);
        return narrow;
    case TRIB_F64:
        memcpy(&wide, element, sizeof wide);
        return wide;
    case TRIB_I8:
        return (int8_t)bits;
    case TRIB_I32:
        return (int32_t)bits;
    case TRIB_I64:
        return (double)(int64_t)bits;
    default:
        return (double)bits;
    }
}

/* ------------------------------------------------------------------------------------ inputs */

/* All integers up to here are exact in `dtype`. */
static double exact_limit(trib_dtype dtype)
{
    switch (dtype) {
    case TRIB_F16:
        return 2048;
    case TRIB_BF16:
        return 256;
    case TRIB_F32:
        return 16777216;
    default:
        return 4503599627370496;
    }
}

/* An integer in -bound .. bound. */
static double spread(uint64_t bits, double bound)
{
    const uint64_t limit = bound < 1 ? 1 : (uint64_t)bound;
    return (double)(bits % (2 * limit + 1)) - (double)limit;
}

static double float_input(trib_dtype dtype, trib_op op, int rank, int size, uint64_t bits)
{
    const double limit = exact_limit(dtype);
    switch (op) {
    case TRIB_SUM: /* every partial sum is exact */
        return spread(bits, limit / size);
    case TRIB_AVG: /* so are the sum, the shares and the quotient */
        return size * spread(bits, limit / size / size);
    case TRIB_PROD: /* eight factors at most are not 1, so that binary16 can hold the product */
        return (bits & 1 ? -1 : 1) * (rank < 8 ? ldexp(1, (int)(bits >> 1 & 0xffff) % 3 - 1) : 1);
    default:
        return spread(bits, limit);
    }
}

/* The integer that is left of `bits` in `dtype`, widened again. */
static uint64_t narrow(trib_dtype dtype, uint64_t bits)
{
    switch (dtype) {
    case TRIB_I8:
        return (uint64_t)(int64_t)(int8_t)bits;
    case TRIB_U8:
        return (uint8_t)bits;
    case TRIB_I32:
        return (uint64_t)(int64_t)(int32_t)bits;
    case TRIB_U32:
        return (uint32_t)bits;
    default:
        return bits;
    }
}

static uint64_t int_input(trib_dtype dtype, trib_op op, int size, uint64_t bits)
{
    if (op != TRIB_AVG)
        return narrow(dtype, bits);
    /* An average of numbers whose sum does not wrap, rounded in both directions. */
    const int width = 8 * (int)trib_dtype_size(dtype) - (is_signed(dtype) ? 1 : 0);
    const uint64_t limit = (UINT64_MAX >> (64 - width)) / (uint64_t)size;
    const uint64_t magnitude = limit == UINT64_MAX ? bits : bits % (limit + 1);
    return is_signed(dtype) && bits >> 63 ? 0 - magnitude : magnitude;
}

static void input_element(void *dst, size_t index, const struct reference *inputs, int rank,
                          size_t position)
{
    const uint64_t bits = reference_bits(inputs->seed, (uint64_t)rank, position);
    const trib_dtype dtype = inputs->dtype;
    if (inputs->op == REFERENCE_MOVED)
        store_bits(dst, dtype, index, bits);
    else if (is_float(dtype))
        reference_store(dst, dtype, index,
                        float_input(dtype, inputs->op, rank, inputs->size, bits));
    else
        store_bits(dst, dtype, index, int_input(dtype, inputs->op, inputs->size, bits));
}

/* -------------------------------------------------------------------------------- reductions */

static double float_reduced(const struct reference *inputs, size_t position)
{
    const trib_dtype dtype = inputs->dtype;
    const trib_op op = inputs->op;
    const int size = inputs->size;
    double result = float_input(dtype, op, 0, size, reference_bits(inputs->seed, 0, position));
    for (int rank = 1; rank < size; rank++) {
        const double next = float_input(dtype, op, rank, size,
                                        reference_bits(inputs->seed, (uint64_t)rank, position));
        if (op == TRIB_PROD)
            result *= next;
        else if (op == TRIB_MIN)
            result = next < result ? next : result;
        else if (op == TRIB_MAX)
            result = next > result ? next : result;
        else
            result += next;
    }
    return op == TRIB_AVG ? result / size : result;
}

static bool int_less(trib_dtype dtype, uint64_t a, uint64_t b)
{
    return is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t int_reduced(const struct reference *inputs, size_t position)
{
    const trib_dtype dtype = inputs->dtype;
    const trib_op op = inputs->op;
    const int size = inputs->size;
    uint64_t result = int_input(dtype, op, size, reference_bits(inputs->seed, 0, position));
    for (int rank = 1; rank < size; rank++) {
        const uint64_t next =
            int_input(dtype, op, size, reference_bits(inputs->seed, (uint64_t)rank, position));
        if (op == TRIB_PROD)
            result *= next;
        else if (op == TRIB_MIN)
            result = int_less(dtype, next, result) ? next : result;
        else if (op == TRIB_MAX)
            result = int_less(dtype, result, next) ? next : result;
        else
            result += next;
    }
    if (op == TRIB_AVG)
        result = is_signed(dtype) ? (uint64_t)((int64_t)result / size) : result / (uint64_t)size;
    return result;
}

static void reduced_element(void *dst, size_t index, const struct reference *inputs,
                            size_t position)
{
    if (is_float(inputs->dtype))
        reference_store(dst, inputs->dtype, index, float_reduced(inputs, position));
    else
        store_bits(dst, inputs->dtype, index, int_reduced(inputs, position));
}

/* ------------------------------------------------------------------------------------ ranges */

/* The first period is there: continue it to `count` elements. */
static void repeat(void *dst, size_t size, size_t count)
{
    for (size_t done = PERIOD; done < count;) {
        const size_t more = done < count - done ? done : count - done;
        memcpy((char *)dst + done * size, dst, more * size);
        done += more;
    }
}

void reference_input(void *dst, const struct reference *inputs, int rank, size_t first,
                     size_t count)
{
    for (size_t i = 0; i < count && i < PERIOD; i++)
        input_element(dst, i, inputs, rank, (first + i) % PERIOD);
    repeat(dst, trib_dtype_size(inputs->dtype), count);
}

void reference_reduced(void *dst, const struct reference *inputs, size_t first, size_t count)
{
    for (size_t i = 0; i < count && i < PERIOD; i++)
        reduced_element(dst, i, inputs, (first + i) % PERIOD);
    repeat(dst, trib_dtype_size(inputs->dtype), count);
}

bool reference_close(const void *found, const void *exact, trib_dtype dtype, size_t count, int size)
{
    /* Rounded: 1 / size, each of `size` products, each partial sum. Inputs reach limit / size. */
    const double limit = exact_limit(dtype);
    const double unit = 1 / limit; /* half of the distance between 1 and the next number */
    const double largest = size * (limit / size / size < 1 ? 1 : floor(limit / size / size));
    const double allowed = (size + 2) * unit * largest;
    for (size_t i = 0; i < count; i++) {
        const double difference =
            fabs(reference_load(found, dtype, i) - reference_load(exact, dtype, i));
        if (!(difference <= allowed))
            return false;
    }
    return true;
}
