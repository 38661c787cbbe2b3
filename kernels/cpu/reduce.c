/* reduce: several sources into one sum, product, minimum, maximum or average, in rank order.
 *
 * Works block by block: a block is accumulated in a buffer that stays in the nearest cache, then
 * written to every destination. So each source is read once and each destination written once,
 * whatever their number, and a destination may be one of the sources. */
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"

/* Bytes of accumulators in one block. Measured: from 4 to 16 KiB there is little to choose. */
enum { BLOCK = 8192, BLOCK_HALVES = BLOCK / sizeof(float) };

/* X(name, element, wrapping, wide): `wrapping` is the type in which sums and products are taken
 * (unsigned for integers, which then wrap), `wide` the type in which an average is divided (the
 * quotient of two 32-bit integers, taken in f64, is cut off at the right place, as is that of two
 * 8-bit ones in f32; and these divisions vectorise). */
#define TYPES(X)                                                                                   \
    X(f32, float, float, float)                                                                    \
    X(f64, double, double, double)                                                                 \
    X(i8, int8_t, uint8_t, float)                                                                  \
    X(u8, uint8_t, uint8_t, float)                                                                 \
    X(i32, int32_t, uint32_t, double)                                                              \
    X(u32, uint32_t, uint32_t, double)                                                             \
    X(i64, int64_t, uint64_t, int64_t)                                                             \
    X(u64, uint64_t, uint64_t, uint64_t)

#define SUM(element, wrapping, a, b) ((element)((wrapping)(a) + (wrapping)(b)))
#define PROD(element, wrapping, a, b) ((element)((wrapping)(a) * (wrapping)(b)))
#define MIN(element, wrapping, a, b) ((b) < (a) ? (b) : (a))
#define MAX(element, wrapping, a, b) ((b) > (a) ? (b) : (a))

/* NAME_first_OP: sum = a OP b. NAME_next_OP: sum = sum OP a. */
#define DEFINE_OP(name, element, wrapping, op, OP)                                                 \
    static void name##_first_##op(void *sum, const void *a, const void *b, size_t n)               \
    {                                                                                              \
        element *restrict out = sum;                                                               \
        const element *left = a, *right = b;                                                       \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = OP(element, wrapping, left[i], right[i]);                                     \
    }                                                                                              \
    static void name##_next_##op(void *sum, const void *a, size_t n)                               \
    {                                                                                              \
        element *restrict out = sum;                                                               \
        const element *right = a;                                                                  \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = OP(element, wrapping, out[i], right[i]);                                      \
    }

#define DEFINE_TYPE(name, element, wrapping, wide)                                                 \
    DEFINE_OP(name, element, wrapping, sum, SUM)                                                   \
    DEFINE_OP(name, element, wrapping, prod, PROD)                                                 \
    DEFINE_OP(name, element, wrapping, min, MIN)                                                   \
    DEFINE_OP(name, element, wrapping, max, MAX)                                                   \
    static void name##_divide(void *sum, size_t divisor, size_t n)                                 \
    {                                                                                              \
        element *out = sum;                                                                        \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = (element)((wide)out[i] / (wide)divisor);                                      \
    }

TYPES(DEFINE_TYPE)

/* out = factor * a. Into memory: the product is rounded before it is added to anything. */
#define DEFINE_TIMES(name, element)                                                                \
    static void name##_times(void *product, const void *a, const void *factor, size_t n)           \
    {                                                                                              \
        element *out = product;                                                                    \
        const element *in = a, by = *(const element *)factor;                                      \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = by * in[i];                                                                   \
    }

DEFINE_TIMES(f32, float)
DEFINE_TIMES(f64, double)

/* The functions for one element type. */
struct arithmetic {
    void (*first[TRIB_AVG])(void *sum, const void *a, const void *b, size_t n);
    void (*next[TRIB_AVG])(void *sum, const void *a, size_t n);
    void (*divide)(void *sum, size_t divisor, size_t n);
};

#define ROW(name, element, wrapping, wide)                                                         \
    {                                                                                              \
        .first = {[TRIB_SUM] = name##_first_sum,                                                   \
                  [TRIB_PROD] = name##_first_prod,                                                 \
                  [TRIB_MIN] = name##_first_min,                                                   \
                  [TRIB_MAX] = name##_first_max},                                                  \
        .next = {[TRIB_SUM] = name##_next_sum,                                                     \
                 [TRIB_PROD] = name##_next_prod,                                                   \
                 [TRIB_MIN] = name##_next_min,                                                     \
                 [TRIB_MAX] = name##_next_max},                                                    \
        .divide = name##_divide,                                                                   \
    },
/* In the order of trib_dtype, from f32. */
static const struct arithmetic types[] = {TYPES(ROW)};

/* One reduction of `nsrc` sources, at least 2 unless there are factors. */
struct fold {
    const void *const *src;
    size_t nsrc;
    trib_dtype dtype;
    trib_op op; /* AVG is SUM here, and `average` is set */
    int average;
    const void *factors; /* of dtype; NULL: none */
};

/* The result for bytes [at, at + n elements) into `sum`. */
static void fold_block(const struct fold *fold, void *sum, size_t at, size_t n)
{
    const struct arithmetic *type = &types[fold->dtype - TRIB_F32];
    const char *a = fold->src[0], *b = fold->src[1];
    type->first[fold->op](sum, a + at, b + at, n);
    for (size_t i = 2; i < fold->nsrc; i++)
        type->next[fold->op](sum, (const char *)fold->src[i] + at, n);
    if (fold->average)
        type->divide(sum, fold->nsrc, n);
}

/* The same with factors; f32 or f64. */
static void fold_block_scaled(const struct fold *fold, void *sum, size_t at, size_t n)
{
    _Alignas(64) unsigned char next[BLOCK];
    const struct arithmetic *type = &types[fold->dtype - TRIB_F32];
    const size_t size = trib_dtype_size(fold->dtype);
    const char *factors = fold->factors;
    for (size_t i = 0; i < fold->nsrc; i++) {
        void *product = i == 0 ? sum : next;
        const char *src = (const char *)fold->src[i] + at;
        if (fold->dtype == TRIB_F64)
            f64_times(product, src, factors + i * size, n);
        else
            f32_times(product, src, factors + i * size, n);
        if (i > 0)
            type->next[TRIB_SUM](sum, next, n);
    }
}

/* Source `i`, widened to f32, times its factor if it has one. */
static void widen_source(const struct fold *fold, float *out, size_t i, size_t at, size_t n)
{
    float factor;
    tri_half_widen(out, (const char *)fold->src[i] + at, n, fold->dtype);
    if (fold->factors == NULL)
        return;
    tri_half_widen(&factor, (const uint16_t *)fold->factors + i, 1, fold->dtype);
    f32_times(out, out, &factor, n);
}

/* fold_block for f16 and bf16: accumulated in f32, rounded once. */
static void fold_block_half(const struct fold *fold, void *halves, size_t at, size_t n)
{
    _Alignas(64) float sum[BLOCK_HALVES], next[BLOCK_HALVES];
    const struct arithmetic *type = &types[TRIB_F32 - TRIB_F32];
    widen_source(fold, sum, 0, at, n);
    for (size_t i = 1; i < fold->nsrc; i++) {
        widen_source(fold, next, i, at, n);
        type->next[fold->op](sum, next, n);
    }
    if (fold->average)
        type->divide(sum, fold->nsrc, n);
    tri_half_narrow(halves, sum, n, fold->dtype);
}

/* Of one source without a factor every reduction is the source itself, to the bit. */
static void copy_one(void *const *dst, size_t ndst, const void *src, size_t bytes)
{
    for (size_t d = 0; d < ndst; d++)
        if (dst[d] != src && bytes != 0)
            memcpy(dst[d], src, bytes);
}

trib_status tri_cpu_reduce(void *const *dst, size_t ndst, const struct tri_reduction *reduction,
                           size_t count, trib_stream stream)
{
    (void)stream;
    _Alignas(64) unsigned char block[BLOCK];
    const trib_dtype dtype = reduction->dtype;
    const void *const factors = reduction->factors;
    const int half = dtype == TRIB_F16 || dtype == TRIB_BF16, average = reduction->op == TRIB_AVG;
    const size_t size = trib_dtype_size(dtype), step = half ? BLOCK_HALVES : BLOCK / size;
    const struct fold fold = {
        reduction->src, reduction->n, dtype, average ? TRIB_SUM : reduction->op, average, factors};
    if (reduction->n == 1 && factors == NULL) {
        copy_one(dst, ndst, reduction->src[0], count * size);
        return TRIB_OK;
    }
    for (size_t begin = 0; begin < count; begin += step) {
        const size_t n = count - begin < step ? count - begin : step;
        const size_t at = begin * size;
        if (half)
            fold_block_half(&fold, block, at, n);
        else if (factors != NULL)
            fold_block_scaled(&fold, block, at, n);
        else
            fold_block(&fold, block, at, n);
        for (size_t d = 0; d < ndst; d++)
            memcpy((char *)dst[d] + at, block, n * size);
    }
    return TRIB_OK;
}
