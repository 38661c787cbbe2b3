/* The conformance suite of kernel tables: pack and unpack with weights. */
#include <math.h>
#include <string.h>

#include "tests/conformance/kernels/kernels.h"

struct list_params list_weighted_params(trib_dtype dtype, const size_t *counts, size_t n_counts,
                                        bool aligned, bool padded)
{
    static const trib_dtype narrow_dtypes[] = {TRIB_F16, TRIB_BF16, TRIB_F32};
    const struct list_params params = {.counts = counts,
                                       .n_counts = n_counts,
                                       .dtypes = dtype == TRIB_F64 ? NULL : narrow_dtypes,
                                       .n_dtypes = 3,
                                       .aligned = aligned,
                                       .padded = padded,
                                       .extra = 1};
    return params;
}

static void fill(struct arena *arena, const struct list *list, enum kernels_numbers numbers)
{
    for (size_t i = 0; i < list->n; i++)
        kernels_fill(arena->image + list->at[i], list->slices[i].dtype, list->slices[i].count,
                     numbers);
}

static void mark(struct arena *arena, const struct list *list)
{
    arena_mark(arena, list->bucket_at, list->bucket.count, list->bucket.dtype);
    for (size_t i = 0; i < list->n; i++)
        arena_mark(arena, list->at[i], list->slices[i].count, list->slices[i].dtype);
}

/* ----------------------------------------------------------------------------------------- pack */

/* What pack makes of one slice: the product of two f32 is exact in f64, and is rounded once. */
static void expect_product(struct arena *arena, const struct list *list, size_t i, float weight)
{
    const struct tri_slice *slice = &list->slices[i];
    const trib_dtype dtype = list->bucket.dtype;
    const unsigned char *from = arena->image + list->at[i];
    unsigned char *to = arena->image + list->bucket_at + slice->offset * trib_dtype_size(dtype);
    for (size_t j = 0; j < slice->count; j++)
        kernels_put(to + j * trib_dtype_size(dtype), dtype,
                    (double)weight *
                        kernels_get(from + j * trib_dtype_size(slice->dtype), slice->dtype));
}

void list_weigh_image(struct arena *arena, const struct list *list, float weight)
{
    const size_t size = trib_dtype_size(list->bucket.dtype), last = list->bucket.count - 1;
    const bool valid = weight >= 0 && isfinite(weight);
    memset(arena->image + list->bucket_at, 0, list->bucket.count * size);
    for (size_t i = 0; valid && weight > 0 && i < list->n; i++)
        expect_product(arena, list, i, weight);
    kernels_put(arena->image + list->bucket_at + last * size, list->bucket.dtype,
                valid ? (double)weight : (double)NAN);
}

static void pack_case(struct arena *arena, trib_dtype dtype, size_t n,
                      const struct list_params *params, float value, bool on_device)
{
    struct list list;
    arena_reset(arena);
    list_make(&list, arena, dtype, n, params);
    fill(arena, &list, KERNELS_WILD_NANS);
    const size_t word = arena_place(arena, sizeof value, 4);
    memcpy(arena->image + word, &value, sizeof value);
    arena_mark(arena, word, 1, TRIB_F32);
    mark(arena, &list);
    /* On the device: the value beside it must not be looked at. */
    const struct tri_weight weight = {on_device ? (const float *)(void *)(arena->device + word)
                                                : NULL,
                                      on_device ? 77.0f : value};
    arena_upload(arena);
    list_pack(arena, &list, &weight);
    list_weigh_image(arena, &list, value);
    (void)arena_check(arena, "weighted pack");
    list_free(&list);
}

/* --------------------------------------------------------------------------------------- unpack */

/* Numbers that, divided by a small integer, lie exactly between two neighbours of the slice's
 * type. */
static void fill_ties(struct arena *arena, const struct list *list, double total)
{
    const size_t size = trib_dtype_size(list->bucket.dtype);
    for (size_t i = 0; i < list->n; i++) {
        const struct tri_slice *slice = &list->slices[i];
        unsigned char *to = arena->image + list->bucket_at + slice->offset * size;
        for (size_t j = 0; j < slice->count; j++, to += size) {
            uint16_t bits = (uint16_t)kernels_random(), next = (uint16_t)(bits + 1);
            const trib_dtype dtype = slice->dtype == TRIB_BF16 ? TRIB_BF16 : TRIB_F16;
            const double middle = (kernels_get(&bits, dtype) + kernels_get(&next, dtype)) / 2;
            kernels_put(to, list->bucket.dtype, middle * total);
        }
    }
}

/* f32 / f32, rounded as the processor does it: a detour by f64 would round denormals twice. */
static double divide(double a, double b, trib_dtype dtype)
{
    if (dtype == TRIB_F64)
        return a / b;
    volatile float quotient = (float)a / (float)b;
    return (double)quotient;
}

static void expect_quotients(struct arena *arena, const struct list *list)
{
    const trib_dtype dtype = list->bucket.dtype;
    const size_t size = trib_dtype_size(dtype);
    const unsigned char *bucket = arena->image + list->bucket_at;
    const double total = kernels_get(bucket + (list->bucket.count - 1) * size, dtype);
    for (size_t i = 0; i < list->n; i++) {
        const struct tri_slice *slice = &list->slices[i];
        for (size_t j = 0; j < slice->count; j++)
            kernels_put(
                arena->image + list->at[i] + j * trib_dtype_size(slice->dtype), slice->dtype,
                divide(kernels_get(bucket + (slice->offset + j) * size, dtype), total, dtype));
    }
}

static void unpack_case(struct arena *arena, trib_dtype dtype, size_t n,
                        const struct list_params *params, double total, bool ties,
                        uint32_t decision)
{
    const size_t size = trib_dtype_size(dtype);
    struct list list;
    arena_reset(arena);
    list_make(&list, arena, dtype, n, params);
    const size_t word = decision_place(arena, decision);
    if (ties)
        fill_ties(arena, &list, total);
    else
        kernels_fill(arena->image + list.bucket_at, dtype, list.bucket.count, KERNELS_WILD_NANS);
    kernels_put(arena->image + list.bucket_at + (list.bucket.count - 1) * size, dtype, total);
    arena_upload(arena);
    list_unpack(arena, &list, 1, word);
    if (decision != 0) {
        mark(arena, &list);
        expect_quotients(arena, &list);
    }
    (void)arena_check(arena, decision != 0 ? "weighted unpack" : "unpack that is not to happen");
    list_free(&list);
}

/* ---------------------------------------------------------------------------------------- cases */

static void shape_cases(struct arena *arena, trib_dtype dtype, size_t n,
                        const struct list_params *params)
{
    static const float weights[] = {1, 0.3f, 0, -0.0f, -1, 1e-40f, 3e38f, NAN, INFINITY, -INFINITY};
    static const double totals[] = {1, 3, 0.7f, 1e-30f, 1e30f};
    check_begin("%s weighted pack and unpack, %s, %zu slices, %s%s", arena->place->kernels->name,
                trib_dtype_name(dtype), n, params->aligned ? "aligned" : "misaligned",
                params->padded ? ", padded" : "");
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        pack_case(arena, dtype, n, params, weights[i], false);
        pack_case(arena, dtype, n, params, weights[i], true);
    }
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++)
        unpack_case(arena, dtype, n, params, totals[i], false, 1);
    unpack_case(arena, dtype, n, params, 1, true, 1);
    unpack_case(arena, dtype, n, params, 4, true, 1);
    unpack_case(arena, dtype, n, params, 15, true, 1); /* times a rounded 1 / 15 would miss them */
    unpack_case(arena, dtype, n, params, 2, false, 0);
    check_end();
}

void kernels_weighted(struct arena *arena, bool quick)
{
    static const size_t tiny[] = {0, 1, 2, 3, 64};
    static const size_t mixed[] = {0, 1, 5, 127, 255, 511, 512, 513, 1000, 4099};
    static const size_t big[] = {20003};
    static const size_t thousand[] = {1000};
    static const trib_dtype dtypes[] = {TRIB_F32, TRIB_F64};
    for (int d = 0; d < 2; d++)
        for (int aligned = 0; aligned < 2; aligned++)
            for (int padded = 0; padded < 2; padded++) {
                const struct list_params small =
                    list_weighted_params(dtypes[d], tiny, 5, aligned, padded);
                const struct list_params middle =
                    list_weighted_params(dtypes[d], mixed, 10, aligned, padded);
                const struct list_params large =
                    list_weighted_params(dtypes[d], big, 1, aligned, padded);
                shape_cases(arena, dtypes[d], 0, &small);
                shape_cases(arena, dtypes[d], 1, &small);
                shape_cases(arena, dtypes[d], quick ? 33 : 1000, &small);
                shape_cases(arena, dtypes[d], quick ? 9 : 161, &middle);
                shape_cases(arena, dtypes[d], 6, &large);
                for (int form = LIST_KEPT; form <= LIST_PASSED; form++) {
                    struct list_params edges =
                        list_weighted_params(dtypes[d], thousand, 1, aligned, padded);
                    edges.form = (enum list_form)form;
                    shape_cases(arena, dtypes[d], 20, &edges);
                    edges.counts = tiny + 1; /* 1 element: 128 slices, of three types, in a chunk */
                    shape_cases(arena, dtypes[d], 260, &edges);
                }
            }
}
