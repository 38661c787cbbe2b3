/* The conformance suite of kernel tables: reduce. */
#include <string.h>

#include "tests/conformance/kernels/kernels.h"

enum { MOST = 64 };

/* Where results go: beside the sources, onto all of them, or onto one only. */
enum where { BESIDE, IN_PLACE, ONTO_LAST };

struct reduction {
    trib_dtype dtype;
    trib_op op;
    size_t nsrc, ndst, count;
    enum where where;
    enum kernels_numbers numbers;
};

static void reduce_case(struct arena *arena, const struct reduction *r)
{
    const size_t size = trib_dtype_size(r->dtype), bytes = r->count * size;
    size_t src_at[MOST], dst_at[MOST];
    const void *src[MOST];
    void *dst[MOST];
    arena_reset(arena);
    for (size_t i = 0; i < r->nsrc; i++) {
        src_at[i] = arena_place(arena, bytes, kernels_random() % 16 / size * size);
        src[i] = arena->device + src_at[i];
        kernels_fill(arena->image + src_at[i], r->dtype, r->count, r->numbers);
    }
    for (size_t d = 0; d < r->ndst; d++) {
        if (r->where == IN_PLACE)
            dst_at[d] = src_at[d];
        else if (r->where == ONTO_LAST && d == 0)
            dst_at[d] = src_at[r->nsrc - 1];
        else
            dst_at[d] = arena_place(arena, bytes, kernels_random() % 16 / size * size);
        dst[d] = arena->device + dst_at[d];
    }
    arena_upload(arena);
    const struct tri_reduction reduction = {src, r->nsrc, r->dtype, r->op, NULL};
    CHECK_OK(
        arena->place->kernels->reduce(dst, r->ndst, &reduction, r->count, arena->place->stream));
    for (size_t j = 0; j < r->count; j++) {
        const void *elements[MOST];
        uint64_t result = 0;
        for (size_t i = 0; i < r->nsrc; i++)
            elements[i] = arena->image + src_at[i] + j * size;
        kernels_fold(&result, elements, r->nsrc, r->dtype, r->op);
        for (size_t d = 0; d < r->ndst; d++)
            memcpy(arena->image + dst_at[d] + j * size, &result, size);
    }
    for (size_t i = 0; r->dtype <= TRIB_F64 && i < r->nsrc; i++)
        arena_mark(arena, src_at[i], r->count, r->dtype);
    for (size_t d = 0; r->dtype <= TRIB_F64 && d < r->ndst; d++)
        arena_mark(arena, dst_at[d], r->count, r->dtype);
    (void)arena_check(arena, r->where == BESIDE ? "reduce" : "reduce in place");
}

/* All ways of one type, reduction and number of sources. */
static void reduce_cases(struct arena *arena, trib_dtype dtype, trib_op op, size_t nsrc,
                         const size_t *counts, size_t n_counts)
{
    const bool orders = op == TRIB_MIN || op == TRIB_MAX; /* with a NaN, anything goes */
    check_begin("%s reduce %s %s of %zu", arena->place->kernels->name, trib_dtype_name(dtype),
                trib_op_name(op), nsrc);
    for (size_t i = 0; i < n_counts; i++) {
        struct reduction r = {dtype, op, nsrc, 1, counts[i], BESIDE, KERNELS_TAME};
        reduce_case(arena, &r);
        r.ndst = 2;
        r.where = ONTO_LAST;
        r.numbers = orders ? KERNELS_WILD : KERNELS_WILD_NANS;
        reduce_case(arena, &r);
        r.ndst = nsrc;
        r.where = IN_PLACE;
        reduce_case(arena, &r);
        r.numbers = KERNELS_TAME;
        reduce_case(arena, &r);
    }
    check_end();
}

void kernels_reduce(struct arena *arena, bool quick)
{
    static const size_t few[] = {0, 1, 7, 2049, 1000, 8195, 50021};
    static const size_t many[] = {1, 2051};
    static const size_t sources[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, MOST};
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++)
            for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
                if (sources[s] <= 3)
                    reduce_cases(arena, dtype, op, sources[s], few, quick ? 4 : 7);
                else
                    reduce_cases(arena, dtype, op, sources[s], many, quick ? 1 : 2);
            }
}
