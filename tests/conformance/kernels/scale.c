/* The conformance suite of kernel tables: scale, and reductions of data that are multiplied. */
#include <math.h>
#include <string.h>

#include "tests/conformance/kernels/kernels.h"

enum { MOST = 9 };

/* The factor, rounded to `dtype` as scale says. */
static double rounded(double factor, trib_dtype dtype)
{
    uint64_t element = 0;
    kernels_put(&element, dtype, dtype == TRIB_F64 ? factor : (double)(float)factor);
    return kernels_get(&element, dtype);
}

/* One product; the arithmetic of f16, bf16 and f32 is that of f32. */
static double product(double a, double b, trib_dtype dtype)
{
    if (dtype == TRIB_F64)
        return a * b;
    volatile float narrow = (float)a * (float)b;
    return (double)narrow;
}

enum way { APART, IN_PLACE, NO_SOURCE, WAYS };

static void scale_case(struct arena *arena, trib_dtype dtype, size_t count, double factor,
                       bool on_device, enum way way)
{
    const size_t size = trib_dtype_size(dtype);
    const double f = rounded(on_device ? (double)(float)factor : factor, dtype);
    arena_reset(arena);
    const size_t from = arena_place(arena, count * size, kernels_random() % 16 / size * size);
    const size_t to = way == IN_PLACE ? from : arena_place(arena, count * size, count % 2 * size);
    const size_t word = arena_place(arena, sizeof(float), 4);
    kernels_fill(arena->image + from, dtype, count, KERNELS_WILD_NANS);
    kernels_put(arena->image + word, TRIB_F32, factor);
    arena_upload(arena);
    const struct tri_factor given = {
        on_device ? (const float *)(void *)(arena->device + word) : NULL, on_device ? 77 : factor};
    CHECK_OK(arena->place->kernels->scale(arena->device + to,
                                          way == NO_SOURCE ? NULL : arena->device + from, count,
                                          dtype, &given, arena->place->stream));
    for (size_t i = 0; i < count; i++) {
        const double in = kernels_get(arena->image + from + i * size, dtype);
        kernels_put(arena->image + to + i * size, dtype,
                    way == NO_SOURCE ? f : product(f, in, dtype));
    }
    arena_mark(arena, from, count, dtype);
    arena_mark(arena, to, count, dtype);
    arena_mark(arena, word, 1, TRIB_F32);
    (void)arena_check(arena, way == NO_SOURCE ? "scale of nothing" : "scale");
}

void kernels_scale(struct arena *arena, bool quick)
{
    /* The fourth rounds up from f64 to f32, and would round down to the halves at once. */
    static const double factors[] = {1,    -2,    0.3,     1 + 0x1p-8 + 0x1p-40, 0, -0.0, NAN, 1e-8,
                                     1e30, 1e300, INFINITY};
    static const size_t counts[] = {0, 1, 255, 1025, 100003, (4096 * 256) + 77};
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_F64; dtype++) {
        check_begin("%s scale %s", arena->place->kernels->name, trib_dtype_name(dtype));
        for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++)
            for (size_t c = 0; c < (quick || i > 2 ? 4 : 6); c++)
                for (int way = 0; way < 2 * WAYS; way++)
                    scale_case(arena, dtype, counts[c], factors[i], way % 2 != 0,
                               (enum way)(way / 2));
        check_end();
    }
}

/* ------------------------------------------------------------------------------------ reduce */

/* The products of element `j`, as they are added up. */
static void expect_sum(struct arena *arena, const size_t *src_at, const void *factors, size_t nsrc,
                       trib_dtype dtype, size_t j, void *out)
{
    const size_t size = trib_dtype_size(dtype);
    const trib_dtype wide = dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32;
    uint64_t products[MOST], sum = 0;
    const void *elements[MOST];
    for (size_t i = 0; i < nsrc; i++) {
        const double f = kernels_get((const char *)factors + i * size, dtype);
        elements[i] = &products[i];
        kernels_put(&products[i], wide,
                    product(f, kernels_get(arena->image + src_at[i] + j * size, dtype), dtype));
    }
    kernels_fold(&sum, elements, nsrc, wide, TRIB_SUM);
    kernels_put(out, dtype, kernels_get(&sum, wide));
}

static void reduce_case(struct arena *arena, trib_dtype dtype, size_t nsrc, size_t count,
                        bool in_place, enum kernels_numbers numbers)
{
    const size_t size = trib_dtype_size(dtype);
    size_t src_at[MOST];
    const void *src[MOST];
    uint64_t factors[MOST];
    arena_reset(arena);
    for (size_t i = 0; i < nsrc; i++) {
        src_at[i] = arena_place(arena, count * size, i % 3 * size);
        src[i] = arena->device + src_at[i];
        kernels_fill(arena->image + src_at[i], dtype, count, numbers);
    }
    kernels_fill(factors, dtype, nsrc, numbers);
    const size_t at = in_place ? src_at[nsrc - 1] : arena_place(arena, count * size, 0);
    void *dst = arena->device + at;
    arena_upload(arena);
    const struct tri_reduction reduction = {src, nsrc, dtype, TRIB_SUM, factors};
    CHECK_OK(arena->place->kernels->reduce(&dst, 1, &reduction, count, arena->place->stream));
    for (size_t j = 0; j < count; j++) {
        uint64_t sum = 0;
        expect_sum(arena, src_at, factors, nsrc, dtype, j, &sum);
        memcpy(arena->image + at + j * size, &sum, size);
    }
    for (size_t i = 0; i < nsrc; i++)
        arena_mark(arena, src_at[i], count, dtype);
    arena_mark(arena, at, count, dtype);
    (void)arena_check(arena, "reduce with factors");
}

void kernels_reduce_scaled(struct arena *arena, bool quick)
{
    static const size_t counts[] = {0, 1, 7, 2049, 8195};
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_F64; dtype++) {
        check_begin("%s reduce with factors %s", arena->place->kernels->name,
                    trib_dtype_name(dtype));
        for (size_t nsrc = 1; nsrc <= MOST; nsrc++)
            for (size_t c = 0; c < (quick ? 4 : 5); c++) {
                reduce_case(arena, dtype, nsrc, counts[c], false, KERNELS_TAME);
                reduce_case(arena, dtype, nsrc, counts[c], true, KERNELS_WILD_NANS);
            }
        check_end();
    }
}
