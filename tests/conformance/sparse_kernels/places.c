/* lower_bound, index_histogram and find_starts: where entries lie. */
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

struct placing {
    struct sparse_list list;
    size_t out;
    uint32_t width, nbins;              /* of index_histogram; width 0: lower_bound, or */
    size_t range;                       /* of find_starts, if it is not 0 */
    uint64_t bounds[TRI_MAX_LISTS + 1]; /* of lower_bound */
    int32_t n;
};

static trib_status queue_placing(const struct sparse_target *target, const void *argument)
{
    const struct placing *p = argument;
    const struct tri_entries list = sparse_entries(&p->list, target->memory);
    uint32_t *out = sparse_at(target->memory, p->out);
    if (p->range != 0)
        return target->kernels->find_starts(&list, p->range, target->stream);
    if (p->width != 0)
        return target->kernels->index_histogram(&list, p->width, out, p->nbins, target->stream);
    uint64_t bounds[TRI_MAX_LISTS + 1]; /* is the caller's again when the call returns */
    memcpy(bounds, p->bounds, sizeof bounds);
    const trib_status status =
        target->kernels->lower_bound(&list, bounds, p->n, out, target->stream);
    memset(bounds, 0x5a, sizeof bounds);
    return status;
}

static void expect_placing(struct sparse_rig *rig, const void *argument)
{
    const struct placing *p = argument;
    const uint32_t n = sparse_list_count(rig, &p->list);
    for (uint32_t b = 0; p->width != 0 && b < p->nbins; b++)
        sparse_word_put(rig->arena.image, p->out + 4 * (size_t)b, 0);
    for (uint32_t i = 0; p->width != 0 && i < n; i++) {
        const size_t bin = p->out + 4 * (size_t)(sparse_list_index(rig, &p->list, i) / p->width);
        sparse_word_put(rig->arena.image, bin, sparse_word_get(rig->arena.image, bin) + 1);
    }
    for (int32_t b = 0; p->width == 0 && p->range == 0 && b <= p->n; b++)
        sparse_word_put(rig->arena.image, p->out + 4 * (size_t)b,
                        sparse_list_below(rig, &p->list, p->bounds[b]));
    if (p->range != 0)
        sparse_starts_put(rig, &p->list, p->range);
}

static void run_placing(struct sparse_rig *rig, const struct placing *p, size_t count)
{
    const struct sparse_call call = {p->range != 0   ? "find_starts"
                                     : p->width != 0 ? "index_histogram"
                                                     : "lower_bound",
                                     queue_placing,
                                     expect_placing,
                                     NULL,
                                     p,
                                     count,
                                     p->list.capacity,
                                     p->list.capacity,
                                     TRIB_F32};
    sparse_run(rig, &call);
}

/* In `range` elements; `gap`: none of the first half has an entry. */
static void starts_case(struct sparse_rig *rig, uint32_t entries, size_t range, bool counted,
                        bool gap)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct placing p = {.range = range};
    const size_t first = gap ? range / 2 : 0;
    check_begin("%s find_starts of %u entries in [%zu, %zu)", rig->arena.place->kernels->name,
                entries, first, range);
    arena_reset(&rig->arena);
    p.list = sparse_list_place(rig, entries + (counted ? 9 : 0), TRIB_F32, counted);
    sparse_list_fill(rig, &p.list, first, range - first, entries, SPARSE_GAUSS);
    p.list.starts = arena_place(&rig->arena, tri_starts(range) * sizeof(uint32_t), 0);
    run_placing(rig, &p, range);
    check_end();
}

static int ascending(uint64_t a, uint64_t b)
{
    return a <= b;
}

/* Bounds as of equal regions, or anywhere (equal ones and both ends among them). */
static void make_bounds(struct placing *p, size_t range, bool equal)
{
    for (int32_t b = 0; b <= p->n; b++)
        p->bounds[b] = equal || b == 0 || b == p->n ? range * (uint64_t)b / (uint64_t)p->n
                                                    : kernels_random() % (range + 1);
    for (int32_t a = 0; a <= p->n; a++) /* sort them */
        for (int32_t b = 0; b < p->n; b++)
            if (!ascending(p->bounds[b], p->bounds[b + 1])) {
                const uint64_t swap = p->bounds[b];
                p->bounds[b] = p->bounds[b + 1];
                p->bounds[b + 1] = swap;
            }
}

static void placing_case(struct sparse_rig *rig, uint32_t entries, size_t range, bool counted,
                         int32_t n, uint32_t width)
{
    if (sparse_leaves_out(rig, 7))
        return;
    struct placing p = {.width = width, .n = n};
    check_begin("%s %s %u entries of %zu, %d parts, width %u", rig->arena.place->kernels->name,
                width != 0 ? "index_histogram" : "lower_bound", entries, range, n, width);
    arena_reset(&rig->arena);
    p.list = sparse_list_place(rig, entries + (counted ? 9 : 0), TRIB_F32, counted);
    sparse_list_fill(rig, &p.list, 0, range, entries, SPARSE_GAUSS);
    if (width != 0) {
        p.nbins = (uint32_t)(range / width + 1);
        p.out = arena_place(&rig->arena, p.nbins * sizeof(uint32_t), 0);
    } else {
        make_bounds(&p, range, rig->calls % 2 == 0);
        p.out = arena_place(&rig->arena, ((size_t)n + 1) * sizeof(uint32_t), 0);
    }
    run_placing(rig, &p, range);
    check_end();
}

/* Indices and bounds at the end of what 32 bits can say. */
static void at_the_end(struct sparse_rig *rig)
{
    const uint64_t end = 0xffffffffu;
    struct placing p = {.n = 3, .bounds = {0, end - 3, end - 1, end}};
    check_begin("%s lower_bound, index_histogram and find_starts of the highest indices",
                rig->arena.place->kernels->name);
    arena_reset(&rig->arena);
    p.list = sparse_list_place(rig, 5, TRIB_F32, false);
    const uint32_t indices[] = {0, 0x80000000u, 0xfffffffbu, 0xfffffffcu, 0xfffffffeu};
    for (uint32_t i = 0; i < 5; i++)
        sparse_list_put(rig, &p.list, i, indices[i], i + 1.0);
    p.out = arena_place(&rig->arena, 4096 * sizeof(uint32_t), 0);
    run_placing(rig, &p, end);
    p.width = 1u << 20;
    p.nbins = 4096;
    run_placing(rig, &p, end);
    p.range = end;
    p.list.starts = arena_place(&rig->arena, tri_starts(end) * sizeof(uint32_t), 0);
    run_placing(rig, &p, end);
    check_end();
}

void sparse_places_suite(struct sparse_rig *rig)
{
    static const uint32_t sizes[] = {0, 1, 31, 33, 1000, 4097, 70001};
    static const int32_t parts[] = {1, 2, 3, 7, 64};
    static const uint32_t widths[] = {1, 7, 64, 4096, 1u << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t p = 0; p < 5; p++)
            for (int dense = 0; dense < 2; dense++) {
                const size_t range = dense ? sizes[s] : 11 * (size_t)sizes[s] + 5;
                placing_case(rig, sizes[s], range, dense == 0, parts[p], 0);
                placing_case(rig, sizes[s], range, p % 2 == 0, 0, widths[p]);
            }
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int way = 0; way < 4; way++) {
            starts_case(rig, sizes[s], 11 * (size_t)sizes[s] + 5, way % 2 == 0, way / 2 != 0);
            starts_case(rig, sizes[s], 8 * TRI_STRETCH * (size_t)(sizes[s] / 1000 + 1),
                        way % 2 == 0, way / 2 != 0);
        }
    at_the_end(rig);
}
