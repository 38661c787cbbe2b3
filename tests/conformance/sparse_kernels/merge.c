/* merge and merge_dense: at each index 0 + the values of the lists, in their order. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

struct merging {
    struct sparse_list lists[TRI_MAX_LISTS], out;
    int32_t n;
    size_t first, count;
    bool dense;
    size_t abort_flag; /* or SPARSE_NONE */
    bool claims;       /* lists say that they hold far more, so that the merge may take long */
    size_t result, overflow; /* of merge_dense */
    trib_dtype result_dtype, sum_dtype;
    double divisor;
};

static trib_status queue_merging(const struct sparse_target *target, const void *argument)
{
    const struct merging *m = argument;
    struct tri_entries lists[TRI_MAX_LISTS];
    trib_status status;
    const struct tri_merge merge = {.lists = lists,
                                    .n = m->n,
                                    .first = m->first,
                                    .count = m->count,
                                    .abort_flag = sparse_at(target->memory, m->abort_flag)};
    for (int32_t l = 0; l < m->n; l++) {
        lists[l] = sparse_entries(&m->lists[l], target->memory);
        if (m->claims && lists[l].count != NULL)
            lists[l].capacity = UINT32_MAX;
    }
    if (m->dense) {
        const struct tri_result out = {sparse_at(target->memory, m->result), m->result_dtype,
                                       m->divisor, sparse_at(target->memory, m->overflow)};
        status = target->kernels->merge_dense(&merge, &out, target->scratch, target->stream);
    } else {
        const struct tri_entries out = sparse_entries(&m->out, target->memory);
        status = target->kernels->merge(&merge, &out, target->scratch, target->stream);
    }
    memset(lists, 0x5a, sizeof lists); /* the caller's again */
    return status;
}

static void expect_merging(struct sparse_rig *rig, const void *argument)
{
    const struct merging *m = argument;
    double *sums = malloc((m->count + 1) * sizeof *sums);
    bool *present = malloc((m->count + 1) * sizeof *present);
    uint32_t n = 0;
    if (sums == NULL || present == NULL)
        abort();
    sparse_sums(rig, m->lists, m->n, m->first, m->count, sums, present);
    for (size_t i = 0; i < m->count; i++) {
        if (m->dense)
            kernels_put(rig->arena.image + m->result + i * trib_dtype_size(m->result_dtype),
                        m->result_dtype,
                        present[i] ? sparse_rounded(sums[i] / m->divisor, m->sum_dtype) : 0);
        else if (present[i])
            sparse_list_put(rig, &m->out, n++, (uint32_t)(m->first + i), sums[i]);
    }
    if (m->dense)
        sparse_expect_overflow(rig, m->overflow, m->result, m->result_dtype, m->count);
    else
        sparse_list_end(rig, &m->out, n);
    free(sums);
    free(present);
}

static void run_merging(struct sparse_rig *rig, const struct merging *m)
{
    size_t entries = 0;
    for (int32_t l = 0; l < m->n; l++)
        entries += m->lists[l].capacity;
    const struct sparse_call call = {m->dense ? "merge_dense" : "merge",
                                     queue_merging,
                                     expect_merging,
                                     NULL,
                                     m,
                                     m->first + m->count,
                                     entries,
                                     (uint32_t)entries,
                                     m->sum_dtype};
    sparse_run(rig, &call);
}

/* -------------------------------------------------------------------------------------- lists */

enum overlap { RANDOM_LISTS, DISJOINT, IDENTICAL, CANCELLING, MOSTLY_EMPTY, ONE_TILE, OVERLAPS };

static const char *const overlap_names[OVERLAPS] = {"random",     "disjoint",     "identical",
                                                    "cancelling", "mostly empty", "in one tile"};

static void fill_lists(struct sparse_rig *rig, const struct merging *m, enum overlap overlap,
                       uint32_t entries, int kind)
{
    for (int32_t l = 0; l < m->n; l++) {
        const struct sparse_list *list = &m->lists[l];
        size_t first = m->first, range = m->count;
        uint32_t n = entries;
        if (overlap == DISJOINT) {
            first += range * (size_t)l / (size_t)m->n;
            range = range / (size_t)m->n;
        } else if (overlap == MOSTLY_EMPTY) {
            n = l % 5 == 2 ? entries : 0;
        } else if (overlap == ONE_TILE && range > 2000) {
            first += range / 3;
            range = 1500;
        }
        if (list->count == SPARSE_NONE) { /* holds exactly so many */
            n = list->capacity;
            first = m->first;
            range = m->count;
        }
        sparse_list_fill(rig, list, first, range, n, kind);
        if (l > 0 && (overlap == IDENTICAL || overlap == CANCELLING) &&
            list->count != SPARSE_NONE) {
            const uint32_t same = sparse_list_count(rig, &m->lists[0]);
            for (uint32_t i = 0; i < same; i++) {
                const double there = sparse_list_value(rig, &m->lists[0], i);
                sparse_list_put(rig, list, i, sparse_list_index(rig, &m->lists[0], i),
                                overlap == CANCELLING ? (l % 2 ? -there : there)
                                                      : sparse_list_value(rig, list, i));
            }
            sparse_word_put(rig->arena.image, list->count, same);
        }
    }
}

static void place_merging(struct sparse_rig *rig, struct merging *m, uint32_t entries,
                          trib_dtype dtype)
{
    arena_reset(&rig->arena);
    m->sum_dtype = dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32;
    m->claims = rig->calls % 2 == 0;
    m->abort_flag = rig->calls % 4 < 2 ? SPARSE_NONE : sparse_word(rig, 0);
    for (int32_t l = 0; l < m->n; l++) {
        const bool counted = l % 4 != 3;
        m->lists[l] = sparse_list_place(rig, entries + (counted ? 3 : 0), dtype, counted);
    }
}

/* A merge of `n` lists with up to `entries` indices in [first, first + count). */
struct merged {
    int32_t n;
    size_t first, count;
    uint32_t entries;
    trib_dtype dtype;
    enum overlap overlap;
};

static uint32_t entries_of(const struct merged *merged)
{
    return merged->entries < merged->count ? merged->entries : (uint32_t)merged->count;
}

static void merge_case(struct sparse_rig *rig, const struct merged *merged, int kind)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct merging m = {.n = merged->n, .first = merged->first, .count = merged->count};
    const uint32_t entries = entries_of(merged);
    check_begin("%s merge %d lists, %s, %u of %zu from %zu, %s, %s",
                rig->arena.place->kernels->name, m.n, overlap_names[merged->overlap], entries,
                m.count, m.first, trib_dtype_name(merged->dtype), sparse_kind_name(kind));
    place_merging(rig, &m, entries, merged->dtype);
    const size_t most = (size_t)m.n * entries;
    m.out = sparse_list_place(rig, (uint32_t)(most < m.count ? most : m.count), m.sum_dtype, true);
    fill_lists(rig, &m, merged->overlap, entries, kind);
    run_merging(rig, &m);
    check_end();
}

/* `overflow`: its word before the call; below 0: there is none. */
static void dense_case(struct sparse_rig *rig, const struct merged *merged, trib_dtype result,
                       double divisor, int overflow)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct merging m = {.n = merged->n,
                        .first = merged->first,
                        .count = merged->count,
                        .dense = true,
                        .result_dtype = result,
                        .divisor = divisor,
                        .overflow = SPARSE_NONE};
    const uint32_t entries = entries_of(merged);
    const bool starts = m.first == 0 && (entries + (uint32_t)m.n) % 3 != 0;
    check_begin("%s merge_dense %d lists%s, %s, %u of %zu from %zu, %s to %s / %g, overflow %d",
                rig->arena.place->kernels->name, m.n, starts ? " with starts" : "",
                overlap_names[merged->overlap], entries, m.count, m.first,
                trib_dtype_name(merged->dtype), trib_dtype_name(result), divisor, overflow);
    place_merging(rig, &m, entries, merged->dtype);
    const size_t size = trib_dtype_size(result);
    m.result = arena_place(&rig->arena, m.count * size, rig->calls % 4 * size);
    arena_mark(&rig->arena, m.result, m.count, result);
    if (overflow >= 0)
        m.overflow = sparse_word(rig, (uint32_t)overflow);
    fill_lists(rig, &m, merged->overlap, entries,
               rig->calls % 9 == 0 ? SPARSE_INFINITIES : SPARSE_GAUSS);
    for (int32_t l = 0; l < m.n && starts; l++)
        sparse_list_start(rig, &m.lists[l], m.count);
    run_merging(rig, &m);
    check_end();
}

/* -------------------------------------------------------------------------------------- cases */

static const trib_dtype dtypes[] = {TRIB_F32, TRIB_BF16, TRIB_F64};
static const size_t counts[] = {0, 1, 31, 1000, 4096, 8191, 8193, 70001};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static void merge(struct sparse_rig *rig)
{
    static const int32_t numbers[] = {1, 2, 3, 4, 5, 8, 17, 64};
    static const int kinds[] = {SPARSE_GAUSS, SPARSE_SIGNED_ZEROS, SPARSE_INFINITIES,
                                SPARSE_HUGE,  SPARSE_DENORMAL,     SPARSE_LAYERS};
    for (size_t i = 0; i < 8; i++)
        for (size_t c = 0; c < COUNTS; c++)
            for (int overlap = 0; overlap < OVERLAPS; overlap += rig->quick ? 4 : 1)
                for (size_t t = 0; t < (rig->quick || numbers[i] > 8 ? 1 : 3); t++) {
                    const size_t turn = i + c + (size_t)overlap + t;
                    const struct merged merged = {
                        .n = numbers[i],
                        .first = turn % 3 == 0 ? 0 : 12345 * turn,
                        .count = counts[c],
                        .entries = (uint32_t)(counts[c] / (turn % 2 ? 20 : 3)) + 1,
                        .dtype = dtypes[turn % 3],
                        .overlap = (enum overlap)overlap};
                    merge_case(rig, &merged, kinds[turn % 6]);
                }
}

static void merge_dense(struct sparse_rig *rig)
{
    static const int32_t numbers[] = {1, 2, 3, 4, 7, 64};
    static const trib_dtype results[] = {TRIB_F32, TRIB_BF16, TRIB_F16};
    static const double divisors[] = {1, 3, 2, 7, 64};
    for (size_t i = 0; i < 6; i++)
        for (size_t c = 0; c < COUNTS; c++)
            for (int overlap = 0; overlap < OVERLAPS; overlap += rig->quick ? 4 : 1)
                for (size_t t = 0; t < (rig->quick || numbers[i] > 8 ? 1 : 3); t++) {
                    const size_t turn = i + c + (size_t)overlap + t;
                    const struct merged merged = {
                        .n = numbers[i],
                        .first = turn % 2 == 0 ? 0 : 777 * turn,
                        .count = counts[c],
                        .entries = (uint32_t)(counts[c] / (turn % 2 ? 100 : 9)) + 1,
                        .dtype = dtypes[turn % 3],
                        .overlap = (enum overlap)overlap};
                    dense_case(rig, &merged,
                               merged.dtype == TRIB_F64 ? TRIB_F64 : results[(c + t) % 3],
                               divisors[turn % 5], (int)(turn % 3) - 1);
                }
}

/* Lists of which some are f32 and some bf16; the highest indices that there are. */
static void at_the_end(struct sparse_rig *rig)
{
    struct merging m = {.n = 3,
                        .first = 0xffffe000u,
                        .count = 0x1fff,
                        .sum_dtype = TRIB_F32,
                        .abort_flag = SPARSE_NONE};
    check_begin("%s merge of the highest indices", rig->arena.place->kernels->name);
    arena_reset(&rig->arena);
    for (int32_t l = 0; l < 3; l++)
        m.lists[l] = sparse_list_place(rig, 0x1fff, l == 1 ? TRIB_BF16 : TRIB_F32, l != 0);
    m.out = sparse_list_place(rig, 0x1fff, TRIB_F32, true);
    fill_lists(rig, &m, RANDOM_LISTS, 3000, SPARSE_GAUSS);
    struct sparse_call call = {"merge",     queue_merging, expect_merging, NULL,    &m,
                               0xffffffffu, 3 * 0x1fff,    0x1fff,         TRIB_F32};
    sparse_run(rig, &call);
    m.dense = true;
    m.divisor = 3;
    m.overflow = SPARSE_NONE;
    m.result_dtype = TRIB_F32;
    m.result = arena_place(&rig->arena, 0x1fff * 4, 4);
    arena_mark(&rig->arena, m.result, 0x1fff, TRIB_F32);
    sparse_run(rig, &call);
    check_end();
}

/* A list of zeros of both signs: added to 0, they are all +0. */
static void of_zeros(struct sparse_rig *rig)
{
    struct merging m = {
        .n = 1, .count = 5000, .divisor = 1, .overflow = SPARSE_NONE, .result_dtype = TRIB_F32};
    check_begin("%s merges of zeros", rig->arena.place->kernels->name);
    place_merging(rig, &m, 900, TRIB_F32);
    m.out = sparse_list_place(rig, 900, TRIB_F32, true);
    m.result = arena_place(&rig->arena, m.count * 4, 0);
    arena_mark(&rig->arena, m.result, m.count, TRIB_F32);
    fill_lists(rig, &m, RANDOM_LISTS, 900, SPARSE_SIGNED_ZEROS);
    run_merging(rig, &m);
    m.dense = true;
    run_merging(rig, &m);
    check_end();
}

/* After an abort. A merge leaves before its first tile: of its output at most the count changes. */
static void expect_nothing(struct sparse_rig *rig, const void *argument)
{
    const struct merging *m = argument;
    if (!m->dense)
        arena_forget(&rig->arena, m->out.count, sizeof(uint32_t));
}

static void check_count(struct sparse_rig *rig, const void *argument)
{
    const struct merging *m = argument;
    if (!m->dense)
        CHECK(sparse_word_get(rig->arena.found, m->out.count) <= m->out.capacity);
}

static void aborted_case(struct sparse_rig *rig, int32_t n, size_t count, bool dense)
{
    struct merging m = {.n = n,
                        .first = 100,
                        .count = count,
                        .dense = dense,
                        .divisor = n,
                        .overflow = SPARSE_NONE,
                        .result_dtype = TRIB_F32};
    check_begin("%s %s of %d lists after an abort, %zu", rig->arena.place->kernels->name,
                dense ? "merge_dense" : "merge", n, count);
    place_merging(rig, &m, 900, TRIB_F32);
    m.claims = true;
    m.abort_flag = sparse_word(rig, 1);
    m.out = sparse_list_place(rig, 900, TRIB_F32, true);
    m.result = arena_place(&rig->arena, m.count * 4, 4);
    fill_lists(rig, &m, RANDOM_LISTS, 900, SPARSE_GAUSS);
    const struct sparse_call call = {.what = dense ? "merge_dense" : "merge",
                                     .queue = queue_merging,
                                     .expect = expect_nothing,
                                     .adopt = check_count,
                                     .argument = &m,
                                     .count = m.first + m.count,
                                     .entries = (size_t)n * 903,
                                     .k = 903,
                                     .dtype = TRIB_F32};
    sparse_run(rig, &call);
    check_end();
}

static void aborted(struct sparse_rig *rig)
{
    static const int32_t numbers[] = {1, 3, 8, 64};
    for (size_t i = 0; i < 4; i++)
        for (int dense = 0; dense < 2; dense++) {
            aborted_case(rig, numbers[i], 2500, dense);
            aborted_case(rig, numbers[i], 400001, dense);
        }
}

/* Lists that are full, that overlap, that are empty, in turn. */
static void refill_merging(struct sparse_rig *rig, const void *argument, int i)
{
    const struct merging *m = argument;
    const uint32_t entries[] = {900, 0, 37, 900, 1};
    fill_lists(rig, m, (enum overlap)(i % OVERLAPS), entries[i % 5], SPARSE_GAUSS);
}

static void series(struct sparse_rig *rig)
{
    struct merging m = {.n = 3,
                        .first = 500,
                        .count = 40000,
                        .divisor = 3,
                        .overflow = SPARSE_NONE,
                        .result_dtype = TRIB_F32};
    check_begin("%s merges again and again", rig->arena.place->kernels->name);
    place_merging(rig, &m, 900, TRIB_F32);
    m.out = sparse_list_place(rig, 3 * 900, TRIB_F32, true);
    m.result = arena_place(&rig->arena, m.count * 4, 0);
    struct sparse_call call = {"merge",           queue_merging, expect_merging, NULL,    &m,
                               m.first + m.count, 3 * 903,       3 * 903,        TRIB_F32};
    sparse_run_series(rig, &call, refill_merging, 12);
    m.dense = true;
    call.what = "merge_dense";
    sparse_run_series(rig, &call, refill_merging, 12);
    check_end();
}

void sparse_merge_suite(struct sparse_rig *rig)
{
    static const struct merged large[] = {{4, 0, 900001, 9000, TRIB_F32, RANDOM_LISTS},
                                          {8, 0, 300007, 100000, TRIB_F32, RANDOM_LISTS},
                                          {5, 100, 300007, 100000, TRIB_F32, RANDOM_LISTS}};
    series(rig);
    merge(rig);
    merge_dense(rig);
    if (!rig->quick) {
        merge_case(rig, &large[0], SPARSE_GAUSS);
        merge_case(rig, &large[1], SPARSE_GAUSS);
        dense_case(rig, &large[0], TRIB_F32, 4, 1);
        dense_case(rig, &large[2], TRIB_BF16, 5, 1);
    }
    at_the_end(rig);
    of_zeros(rig);
    aborted(rig);
}
