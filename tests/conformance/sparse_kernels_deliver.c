/* deliver and deliver_dense: what the caller gets. */
#include <string.h>

#include "tests/conformance/sparse_kernels.h"

static const uint32_t sizes[] = {0, 1, 33, 1000, 8193, 70001};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const struct {
    trib_dtype dtype, out;
} types[] = {{TRIB_F32, TRIB_F32}, {TRIB_F32, TRIB_F16}, {TRIB_F32, TRIB_BF16},
             {TRIB_F64, TRIB_F64}, {TRIB_BF16, TRIB_F32}, {TRIB_BF16, TRIB_BF16}};
enum { SUM_TYPES = 4, TYPES = 6 }; /* the first ones are those of dense sums */

static const double divisors[] = {1, 2, 3, 7, 64};

struct delivering {
    struct sparse_list list, out;
    size_t sum, result, n; /* of deliver_dense */
    trib_dtype dtype, out_dtype;
    double divisor;
    size_t decision;
    bool dense;
};

static trib_status queue_deliver(const struct sparse_target *target, const void *argument)
{
    const struct delivering *d = argument;
    unsigned char *memory = target->memory;
    const uint32_t *decision = sparse_at(memory, d->decision);
    const struct tri_entries list = sparse_entries(&d->list, memory);
    if (d->dense)
        return target->kernels->deliver_dense(sparse_at(memory, d->sum), d->dtype, d->n,
                                              sparse_at(memory, d->result), d->out_dtype,
                                              d->divisor, decision, target->stream);
    return target->kernels->deliver(&list, sparse_at(memory, d->out.index),
                                    sparse_at(memory, d->out.value), d->out_dtype,
                                    sparse_at(memory, d->out.count), d->divisor, decision,
                                    target->stream);
}

static void expect_deliver(struct sparse_rig *rig, const void *argument)
{
    const struct delivering *d = argument;
    unsigned char *image = rig->arena.image;
    const bool go = sparse_word_get(image, d->decision) != 0;
    if (d->dense) {
        for (size_t i = 0; i < d->n; i++) {
            const double sum = kernels_get(image + d->sum + i * trib_dtype_size(d->dtype),
                                           d->dtype);
            kernels_put(image + d->result + i * trib_dtype_size(d->out_dtype), d->out_dtype,
                        go ? sparse_rounded(sum / d->divisor, d->dtype) : 0);
        }
        return;
    }
    const uint32_t n = go ? sparse_list_count(rig, &d->list) : 0;
    for (uint32_t i = 0; i < n; i++)
        sparse_list_put(rig, &d->out, i, sparse_list_index(rig, &d->list, i),
                        sparse_rounded(sparse_list_value(rig, &d->list, i) / d->divisor, d->dtype));
    sparse_list_end(rig, &d->out, n);
}

static void deliver_case(struct sparse_rig *rig, size_t type, uint32_t n, double divisor,
                         uint32_t decision, int kind)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct delivering d = {.dtype = types[type].dtype, .out_dtype = types[type].out,
                           .divisor = divisor};
    const bool counted = rig->calls % 2 == 0;
    check_begin("%s deliver %u %s as %s / %g, decision %u, %s", rig->arena.place->kernels->name, n,
                trib_dtype_name(d.dtype), trib_dtype_name(d.out_dtype), divisor, decision,
                sparse_kind_name(kind));
    arena_reset(&rig->arena);
    d.list = sparse_list_place(rig, n + (counted ? 4 : 0), d.dtype, counted);
    sparse_list_fill(rig, &d.list, 0, 5 * (size_t)n, n, kind);
    d.out = sparse_list_place(rig, n + 4, d.out_dtype, true);
    d.decision = sparse_word(rig, decision);
    const struct sparse_call call = {"deliver", queue_deliver, expect_deliver, NULL, &d,
                                     5 * (size_t)n, n, n, d.dtype};
    sparse_run(rig, &call);
    check_end();
}

static void dense_case(struct sparse_rig *rig, size_t type, size_t n, double divisor,
                       uint32_t decision, int kind, bool in_place)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct delivering d = {.dense = true, .n = n, .dtype = types[type].dtype,
                           .out_dtype = types[type].out, .divisor = divisor};
    check_begin("%s deliver_dense %zu %s as %s / %g, decision %u, %s, %s",
                rig->arena.place->kernels->name, n, trib_dtype_name(d.dtype),
                trib_dtype_name(d.out_dtype), divisor, decision, sparse_kind_name(kind),
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
    d.decision = sparse_word(rig, decision);
    const struct sparse_call call = {"deliver_dense", queue_deliver, expect_deliver, NULL, &d, n,
                                     0, 0, d.dtype};
    sparse_run(rig, &call);
    check_end();
}

void sparse_deliver_suite(struct sparse_rig *rig)
{
    static const int kinds[] = {SPARSE_GAUSS, SPARSE_DENORMAL, SPARSE_SIGNED_ZEROS, SPARSE_HUGE,
                                SPARSE_INFINITIES};
    for (size_t type = 0; type < TYPES; type++)
        for (size_t s = 0; s < SIZES; s++)
            for (uint32_t decision = 0; decision < 2; decision++)
                for (size_t i = 0; i < (rig->quick ? 2 : 5); i++) {
                    deliver_case(rig, type, sizes[s], divisors[(i + s) % 5], decision, kinds[i]);
                    if (type >= SUM_TYPES)
                        continue;
                    dense_case(rig, type, sizes[s], divisors[(i + s) % 5], decision, kinds[i],
                               false);
                    if (types[type].dtype == types[type].out)
                        dense_case(rig, type, sizes[s], divisors[i], decision, kinds[i], true);
                }
}
