/* write_entries, write_dense and clear_result: what the caller gets. */
#include <math.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

static const uint32_t sizes[] = {0, 1, 33, 1000, 8193, 70001};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const struct {
    trib_dtype dtype, out;
} types[] = {{TRIB_F32, TRIB_F32}, {TRIB_F32, TRIB_F16},  {TRIB_F32, TRIB_BF16},
             {TRIB_F64, TRIB_F64}, {TRIB_BF16, TRIB_F32}, {TRIB_BF16, TRIB_BF16}};
enum { TYPES = 6 };

static const double divisors[] = {1, 2, 3, 7, 64};

struct writing {
    struct sparse_list list, out;
    size_t sum, result, n; /* of write_dense */
    trib_dtype dtype, out_dtype;
    double divisor;
    size_t overflow;
    bool dense;
};

static trib_status queue_writing(const struct sparse_target *target, const void *argument)
{
    const struct writing *d = argument;
    unsigned char *memory = target->memory;
    const struct tri_entries list = sparse_entries(&d->list, memory);
    const struct tri_result out = {sparse_at(memory, d->dense ? d->result : d->out.value),
                                   d->out_dtype, d->divisor, sparse_at(memory, d->overflow)};
    if (d->dense)
        return target->kernels->write_dense(sparse_at(memory, d->sum), d->dtype, d->n, &out,
                                            target->stream);
    return target->kernels->write_entries(&list, sparse_at(memory, d->out.index),
                                          sparse_at(memory, d->out.count), &out, target->stream);
}

static void expect_writing(struct sparse_rig *rig, const void *argument)
{
    const struct writing *d = argument;
    unsigned char *image = rig->arena.image;
    if (d->dense) {
        for (size_t i = 0; i < d->n; i++) {
            const double sum =
                kernels_get(image + d->sum + i * trib_dtype_size(d->dtype), d->dtype);
            kernels_put(image + d->result + i * trib_dtype_size(d->out_dtype), d->out_dtype,
                        sparse_rounded(sum / d->divisor, d->dtype));
        }
        sparse_expect_overflow(rig, d->overflow, d->result, d->out_dtype, d->n);
        return;
    }
    const uint32_t n = sparse_list_count(rig, &d->list);
    for (uint32_t i = 0; i < n; i++)
        sparse_list_put(rig, &d->out, i, sparse_list_index(rig, &d->list, i),
                        sparse_rounded(sparse_list_value(rig, &d->list, i) / d->divisor, d->dtype));
    sparse_expect_overflow(rig, d->overflow, d->out.value, d->out_dtype, n);
    sparse_list_end(rig, &d->out, n);
}

static void entries_case(struct sparse_rig *rig, size_t type, uint32_t n, double divisor,
                         int overflow, int kind)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct writing d = {
        .dtype = types[type].dtype, .out_dtype = types[type].out, .divisor = divisor};
    const bool counted = rig->calls % 2 == 0;
    check_begin("%s write_entries %u %s as %s / %g, overflow %d, %s",
                rig->arena.place->kernels->name, n, trib_dtype_name(d.dtype),
                trib_dtype_name(d.out_dtype), divisor, overflow, sparse_kind_name(kind));
    arena_reset(&rig->arena);
    d.list = sparse_list_place(rig, n + (counted ? 4 : 0), d.dtype, counted);
    sparse_list_fill(rig, &d.list, 0, 5 * (size_t)n, n, kind);
    d.out = sparse_list_place(rig, n + 4, d.out_dtype, true);
    d.overflow = overflow < 0 ? SPARSE_NONE : sparse_word(rig, (uint32_t)overflow);
    const struct sparse_call call = {
        "write_entries", queue_writing, expect_writing, NULL, &d, 5 * (size_t)n, n, n, d.dtype};
    sparse_run(rig, &call);
    check_end();
}

static void dense_case(struct sparse_rig *rig, size_t type, size_t n, double divisor, int overflow,
                       int kind, bool in_place)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct writing d = {.dense = true,
                        .n = n,
                        .dtype = types[type].dtype,
                        .out_dtype = types[type].out,
                        .divisor = divisor};
    check_begin("%s write_dense %zu %s as %s / %g, overflow %d, %s, %s",
                rig->arena.place->kernels->name, n, trib_dtype_name(d.dtype),
                trib_dtype_name(d.out_dtype), divisor, overflow, sparse_kind_name(kind),
                in_place ? "in place" : "out of place");
    arena_reset(&rig->arena);
    const size_t size = trib_dtype_size(d.dtype), out_size = trib_dtype_size(d.out_dtype);
    d.sum = arena_place(&rig->arena, n * size, rig->calls % 4 * size);
    arena_mark(&rig->arena, d.sum, n, d.dtype);
    const size_t shift = rig->calls / 3 % 4 * out_size;
    d.result = in_place ? d.sum : arena_place(&rig->arena, n * out_size, shift);
    if (!in_place)
        arena_mark(&rig->arena, d.result, n, d.out_dtype);
    sparse_fill(rig->arena.image + d.sum, d.dtype, n, kind, 9);
    d.overflow = overflow < 0 ? SPARSE_NONE : sparse_word(rig, (uint32_t)overflow);
    const struct sparse_call call = {
        "write_dense", queue_writing, expect_writing, NULL, &d, n, 0, 0, d.dtype};
    sparse_run(rig, &call);
    check_end();
}

/* --------------------------------------------------------------------------------- clear_result */

struct tri_clearing sparse_clearing(const struct sparse_clearing *w, unsigned char *memory)
{
    return (struct tri_clearing){.dense = sparse_at(memory, w->dense),
                                 .bytes = w->bytes,
                                 .count = sparse_at(memory, w->count)};
}

void sparse_expect_cleared(struct sparse_rig *rig, const struct sparse_clearing *w)
{
    unsigned char *image = rig->arena.image;
    if (sparse_word_get(image, w->decision) != 0)
        return;
    if (w->dense != SPARSE_NONE)
        memset(image + w->dense, 0, w->bytes);
    if (w->count != SPARSE_NONE)
        sparse_word_put(image, w->count, 0);
}

static trib_status queue_clearing(const struct sparse_target *target, const void *argument)
{
    const struct sparse_clearing *w = argument;
    struct tri_clearing result = sparse_clearing(w, target->memory);
    const trib_status status = target->kernels->clear_result(
        &result, sparse_at(target->memory, w->decision), target->stream);
    memset(&result, 0x5a, sizeof result); /* the caller's again */
    return status;
}

static void expect_clearing(struct sparse_rig *rig, const void *argument)
{
    sparse_expect_cleared(rig, argument);
}

struct sparse_clearing sparse_place_clearing(struct sparse_rig *rig, size_t bytes, size_t shift,
                                             uint32_t decision)
{
    const bool dense = shift != SPARSE_NONE;
    struct sparse_clearing w = {.bytes = bytes, .dense = SPARSE_NONE, .count = SPARSE_NONE};
    if (dense)
        w.dense = arena_place(&rig->arena, bytes, shift);
    if (!dense || shift % 4 == 0)
        w.count = sparse_word(rig, 77);
    w.decision = sparse_word(rig, decision);
    return w;
}

static void clear_case(struct sparse_rig *rig, size_t bytes, size_t shift, uint32_t decision)
{
    check_begin("%s clear_result %zu bytes, shift %zu, decision %u",
                rig->arena.place->kernels->name, bytes, shift == SPARSE_NONE ? 0 : shift, decision);
    arena_reset(&rig->arena);
    const struct sparse_clearing w = sparse_place_clearing(rig, bytes, shift, decision);
    const struct sparse_call call = {
        "clear_result", queue_clearing, expect_clearing, NULL, &w, bytes, 0, 0, TRIB_F32};
    sparse_run(rig, &call);
    check_end();
}

static void clear_result(struct sparse_rig *rig)
{
    for (uint32_t decision = 0; decision < 2; decision++)
        for (size_t s = 0; s < SIZES; s++)
            for (size_t shift = 0; shift < 16; shift += rig->quick ? 6 : 2)
                clear_case(rig, 2 * sizes[s], shift, decision);
    clear_case(rig, 0, SPARSE_NONE, 0);
    clear_case(rig, 0, SPARSE_NONE, 1);
    clear_case(rig, 20000000, 4, 0); /* more than one round of the grid */
}

/* Of sums that are just representable, or just not, in each type: one among others that are 0. */
static void limits(struct sparse_rig *rig)
{
    static const struct {
        trib_dtype out;
        double last, first; /* the largest sum that is finite, the smallest that is not */
    } at[] = {{TRIB_F16, 65519.99609375, 65520},
              {TRIB_BF16, 0x1.fefffep127, 0x1.ffp127},
              {TRIB_F32, 0x1.fffffep127, INFINITY},
              {TRIB_F64, 0x1.fffffffffffffp1023, INFINITY}};
    for (size_t t = 0; t < sizeof at / sizeof *at; t++)
        for (int i = 0; i < 4; i++) {
            const trib_dtype dtype = at[t].out == TRIB_F64 ? TRIB_F64 : TRIB_F32;
            const size_t n = 1000, size = trib_dtype_size(dtype);
            struct writing d = {
                .dense = true, .n = n, .dtype = dtype, .out_dtype = at[t].out, .divisor = 1};
            check_begin("%s write_dense at the limit of %s, %d", rig->arena.place->kernels->name,
                        trib_dtype_name(at[t].out), i);
            arena_reset(&rig->arena);
            d.sum = arena_place(&rig->arena, n * size, 0);
            d.result = arena_place(&rig->arena, n * trib_dtype_size(at[t].out), 0);
            memset(rig->arena.image + d.sum, 0, n * size);
            kernels_put(rig->arena.image + d.sum + 613 * size, dtype,
                        (i & 2 ? -1 : 1) * (i & 1 ? at[t].first : at[t].last));
            d.overflow = sparse_word(rig, 0);
            const struct sparse_call call = {
                "write_dense", queue_writing, expect_writing, NULL, &d, n, 0, 0, dtype};
            sparse_run(rig, &call);
            CHECK(sparse_word_get(rig->arena.image, d.overflow) == (uint32_t)(i & 1));
            check_end();
        }
}

void sparse_result_suite(struct sparse_rig *rig)
{
    static const int kinds[] = {SPARSE_GAUSS, SPARSE_DENORMAL, SPARSE_SIGNED_ZEROS, SPARSE_HUGE,
                                SPARSE_INFINITIES};
    for (size_t type = 0; type < TYPES; type++)
        for (size_t s = 0; s < SIZES; s++)
            for (int overflow = -1; overflow < 2; overflow++)
                for (size_t i = 0; i < (rig->quick ? 2 : 5); i++) {
                    entries_case(rig, type, sizes[s], divisors[(i + s) % 5], overflow, kinds[i]);
                    dense_case(rig, type, sizes[s], divisors[(i + s) % 5], overflow, kinds[i],
                               false);
                    if (types[type].dtype == types[type].out)
                        dense_case(rig, type, sizes[s], divisors[i], overflow, kinds[i], true);
                }
    limits(rig);
    clear_result(rig);
}
