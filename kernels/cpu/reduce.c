/* reduce: several sources into one sum, product, minimum, maximum or average, in rank order.
 *
 * Works block by block: a block is accumulated in a buffer that stays in the nearest cache, then
 * written to every destination. So each source is read once and each destination written once,
 * whatever their number, and a destination may be one of the sources. */
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"

enum { BLOCK = 2048 }; /* elements; at most 16 KiB of accumulators */

/* X(name, element, accumulator, wrapping, wide, load, store): `wrapping` is the type in which sums
 * and products are taken (unsigned for integers, which then wrap), `wide` the type in which an
 * average is divided (the quotient of two 32-bit integers, taken in f64, is cut off at the right
 * place, and that division vectorises). */
#define SAME(x) (x)
#define TYPES(X)                                                                                   \
    X(f16, uint16_t, float, float, float, tri_f16_to_f32, tri_f32_to_f16)                          \
    X(bf16, uint16_t, float, float, float, tri_bf16_to_f32, tri_f32_to_bf16)                       \
    X(f32, float, float, float, float, SAME, SAME)                                                 \
    X(f64, double, double, double, double, SAME, SAME)                                             \
    X(i8, int8_t, int8_t, uint8_t, double, SAME, SAME)                                             \
    X(u8, uint8_t, uint8_t, uint8_t, double, SAME, SAME)                                           \
    X(i32, int32_t, int32_t, uint32_t, double, SAME, SAME)                                         \
    X(u32, uint32_t, uint32_t, uint32_t, double, SAME, SAME)                                       \
    X(i64, int64_t, int64_t, uint64_t, int64_t, SAME, SAME)                                        \
    X(u64, uint64_t, uint64_t, uint64_t, uint64_t, SAME, SAME)

#define SUM(accumulator, wrapping, a, b) ((accumulator)((wrapping)(a) + (wrapping)(b)))
#define PROD(accumulator, wrapping, a, b) ((accumulator)((wrapping)(a) * (wrapping)(b)))
#define MIN(accumulator, wrapping, a, b) ((b) < (a) ? (b) : (a))
#define MAX(accumulator, wrapping, a, b) ((b) > (a) ? (b) : (a))

/* NAME_first_OP: sum = a OP b. NAME_next_OP: sum = sum OP x. */
#define DEFINE_OP(name, element, accumulator, wrapping, load, op, OP)                              \
    static void name##_first_##op(void *sum, const void *a, const void *b, size_t n)               \
    {                                                                                              \
        accumulator *restrict out = sum;                                                           \
        const element *left = a, *right = b;                                                       \
        for (size_t i = 0; i < n; i++) {                                                           \
            const accumulator x = load(left[i]), y = load(right[i]);                               \
            out[i] = OP(accumulator, wrapping, x, y);                                              \
        }                                                                                          \
    }                                                                                              \
    static void name##_next_##op(void *sum, const void *a, size_t n)                               \
    {                                                                                              \
        accumulator *restrict out = sum;                                                           \
        const element *right = a;                                                                  \
        for (size_t i = 0; i < n; i++) {                                                           \
            const accumulator x = out[i], y = load(right[i]);                                      \
            out[i] = OP(accumulator, wrapping, x, y);                                              \
        }                                                                                          \
    }

/* NAME_divide: an average. NAME_store: to elements. */
#define DEFINE_TYPE(name, element, accumulator, wrapping, wide, load, store)                       \
    DEFINE_OP(name, element, accumulator, wrapping, load, sum, SUM)                                \
    DEFINE_OP(name, element, accumulator, wrapping, load, prod, PROD)                              \
    DEFINE_OP(name, element, accumulator, wrapping, load, min, MIN)                                \
    DEFINE_OP(name, element, accumulator, wrapping, load, max, MAX)                                \
    static void name##_divide(void *sum, size_t divisor, size_t n)                                 \
    {                                                                                              \
        accumulator *out = sum;                                                                    \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = (accumulator)((wide)out[i] / (wide)divisor);                                  \
    }                                                                                              \
    static void name##_store(void *elements, const void *sum, size_t n)                            \
    {                                                                                              \
        element *restrict out = elements;                                                          \
        const accumulator *from = sum;                                                             \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = store(from[i]);                                                               \
    }

TYPES(DEFINE_TYPE)

/* What is done with one element type. */
struct arithmetic {
    void (*first[TRIB_AVG])(void *sum, const void *a, const void *b, size_t n);
    void (*next[TRIB_AVG])(void *sum, const void *a, size_t n);
    void (*divide)(void *sum, size_t divisor, size_t n);
    void (*store)(void *elements, const void *sum, size_t n);
    int widened; /* the accumulator is not the element: store it before it is copied out */
};

#define ROW(name, element, accumulator, wrapping, wide, load, store_)                             \
    {                                                                                              \
        .first = {[TRIB_SUM] = name##_first_sum, [TRIB_PROD] = name##_first_prod,                  \
                  [TRIB_MIN] = name##_first_min, [TRIB_MAX] = name##_first_max},                   \
        .next = {[TRIB_SUM] = name##_next_sum, [TRIB_PROD] = name##_next_prod,                     \
                 [TRIB_MIN] = name##_next_min, [TRIB_MAX] = name##_next_max},                      \
        .divide = name##_divide, .store = name##_store,                       \
        .widened = sizeof(element) != sizeof(accumulator),                                         \
    },
static const struct arithmetic types[] = {TYPES(ROW)}; /* in the order of trib_dtype, from f16 */

static void copy_to_all(void *const *dst, size_t ndst, size_t at, const void *from, size_t bytes)
{
    for (size_t d = 0; d < ndst; d++)
        memcpy((char *)dst[d] + at, from, bytes);
}

/* Of one source every reduction is the source itself, to the bit. */
static void copy_one(void *const *dst, size_t ndst, const void *src, size_t bytes)
{
    for (size_t d = 0; d < ndst; d++)
        if (dst[d] != src && bytes != 0)
            memcpy(dst[d], src, bytes);
}

trib_status tri_cpu_reduce(void *const *dst, size_t ndst, const void *const *src, size_t nsrc,
                           size_t count, trib_dtype dtype, trib_op op, trib_stream stream)
{
    (void)stream;
    _Alignas(64) unsigned char sum[BLOCK * sizeof(uint64_t)];
    _Alignas(64) unsigned char narrow[BLOCK * sizeof(uint16_t)];
    const struct arithmetic *type = &types[dtype - TRIB_F16];
    const trib_op fold = op == TRIB_AVG ? TRIB_SUM : op;
    const size_t size = trib_dtype_size(dtype);

    if (nsrc == 1) {
        copy_one(dst, ndst, src[0], count * size);
        return TRIB_OK;
    }
    for (size_t begin = 0; begin < count; begin += BLOCK) {
        const size_t n = count - begin < BLOCK ? count - begin : BLOCK;
        const size_t at = begin * size;
        type->first[fold](sum, (const char *)src[0] + at, (const char *)src[1] + at, n);
        for (size_t i = 2; i < nsrc; i++)
            type->next[fold](sum, (const char *)src[i] + at, n);
        if (op == TRIB_AVG)
            type->divide(sum, nsrc, n);
        if (type->widened)
            type->store(narrow, sum, n);
        copy_to_all(dst, ndst, at, type->widened ? narrow : sum, n * size);
    }
    return TRIB_OK;
}
