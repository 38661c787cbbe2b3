/* Lists and chunks that no rank of this program makes: a count above the capacity, indices that are
 * too large, descend or repeat, values that are not numbers. An abort leaves such memory, and so
 * does a rank that differs. What a kernel makes of it is open (decide refuses the call), but it
 * ends, writes into its outputs alone, and says no more than their capacity holds.
 *
 * Built with the address sanitizer, the memory between the blocks of the arena cannot be read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

#ifdef __SANITIZE_ADDRESS__
#  include <sanitizer/asan_interface.h>
#  define FENCE(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#  define OPEN(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#  define FENCE(at, bytes) (void)(at)
#  define OPEN(at, bytes) (void)(at)
#endif

enum { LISTS = 3, COUNT = 5000, FIRST = 1000, RANGE = 3000, BINS = 10, CHUNK = 256, SLOTS = 16 };

enum damage {
    COUNT_BEYOND,
    COUNT_HUGE,
    INDEX_BEYOND, /* just beyond the tensor */
    INDEX_HUGE,   /* the last there is, in the middle of the list too */
    OTHER_REGION, /* within the tensor, but not within the range of this call */
    DESCENDING,
    DUPLICATES, /* each index in pairs */
    ONE_INDEX,  /* the same everywhere */
    NOT_NUMBERS,
    RANDOM_BITS,
    DAMAGES
};

static const char *const damage_names[DAMAGES] = {"a count beyond the capacity",
                                                  "the largest count",
                                                  "indices beyond the tensor",
                                                  "the largest indices",
                                                  "another region",
                                                  "descending indices",
                                                  "duplicate indices",
                                                  "one index",
                                                  "values that are not numbers",
                                                  "random bits"};

enum work {
    MERGE,
    MERGE_DENSE,
    MERGE_STARTED, /* dense, by starts that say anything */
    WRITE_ENTRIES,
    RADIX_HISTOGRAM,
    COUNT_TIES,
    SHARE_TIES,
    PARTITION,
    LOWER_BOUND,
    INDEX_HISTOGRAM,
    FIND_STARTS,
    INDEX_SELECT,
    UPDATE,
    UPDATE_AMONG,
    CHUNK_UNPACK,
    CHUNK_MERGE,
    WORKS
};

static const char *const work_names[WORKS] = {
    "merge",           "merge_dense",     "merge_dense by starts",
    "write_entries",   "radix_histogram", "count_ties",
    "share_ties",      "radix_partition", "lower_bound",
    "index_histogram", "find_starts",     "index_select",
    "update",          "update among",    "chunk_unpack",
    "chunk_merge"};

/* The arguments of any of them. */
struct corrupt {
    const struct sparse_rig *rig;
    enum work work;
    struct sparse_list lists[LISTS], out, dropped;
    struct sparse_state state;
    size_t slots[LISTS], values[LISTS]; /* chunks */
    size_t starts[LISTS];
    size_t cut, words, dense, overflow, decision;
    trib_dtype dtype, sums;
};

/* -------------------------------------------------------------------------------------- calls */

static trib_status merges(const struct corrupt *c, const struct sparse_target *t)
{
    const struct tri_entries out = sparse_entries(&c->out, t->memory);
    const struct tri_result dense = {sparse_at(t->memory, c->dense), c->sums, 3,
                                     sparse_at(t->memory, c->overflow)};
    struct tri_entries lists[LISTS];
    struct tri_merge merge = {.lists = lists, .n = LISTS, .first = FIRST, .count = RANGE};
    for (int l = 0; l < LISTS; l++)
        lists[l] = sparse_entries(&c->lists[l], t->memory);
    if (c->work == MERGE_STARTED) {
        merge.first = 0;
        merge.count = COUNT;
        for (int l = 0; l < LISTS; l++)
            lists[l].starts = sparse_at(t->memory, c->starts[l]);
    }
    if (c->work == MERGE)
        return t->kernels->merge(&merge, &out, t->scratch, t->stream);
    if (c->work != WRITE_ENTRIES)
        return t->kernels->merge_dense(&merge, &dense, t->scratch, t->stream);
    return t->kernels->write_entries(&lists[0], sparse_at(t->memory, c->out.index),
                                     sparse_at(t->memory, c->out.count), &dense, t->stream);
}

static trib_status cuts(const struct corrupt *c, const struct sparse_target *t)
{
    const struct tri_entries list = sparse_entries(&c->lists[0], t->memory);
    const struct tri_entries out = sparse_entries(&c->out, t->memory);
    const struct tri_entries dropped = sparse_entries(&c->dropped, t->memory);
    struct tri_cut *cut = sparse_at(t->memory, c->cut);
    uint32_t *words = sparse_at(t->memory, c->words);
    switch (c->work) {
    case RADIX_HISTOGRAM:
        return t->kernels->radix_histogram(&list, cut, 1, words, t->stream);
    case COUNT_TIES:
        return t->kernels->count_ties(&list, cut, words, t->scratch, t->stream);
    case SHARE_TIES: /* the ties of the ranks are indices here: any words */
        return t->kernels->share_ties(cut, list.index, 63, t->stream);
    default:
        return t->kernels->radix_partition(&list, cut, &out, &dropped, t->scratch, t->stream);
    }
}

static trib_status places(const struct corrupt *c, const struct sparse_target *t)
{
    const uint64_t bounds[] = {0, FIRST, FIRST + RANGE, COUNT};
    const struct tri_entries list = sparse_entries(&c->lists[0], t->memory);
    const struct tri_accumulator acc = sparse_accumulator(&c->state, t->memory);
    uint32_t *words = sparse_at(t->memory, c->words);
    if (c->work == LOWER_BOUND)
        return t->kernels->lower_bound(&list, bounds, 3, words, t->stream);
    if (c->work == INDEX_HISTOGRAM)
        return t->kernels->index_histogram(&list, COUNT / BINS, words, BINS, t->stream);
    if (c->work == FIND_STARTS) {
        struct tri_entries started = list;
        started.starts = words;
        return t->kernels->find_starts(&started, COUNT, t->stream);
    }
    return t->kernels->index_select(&acc, &list, t->stream);
}

static trib_status updates(const struct corrupt *c, const struct sparse_target *t)
{
    const struct tri_entries list = sparse_entries(&c->lists[0], t->memory);
    const struct tri_entries among = sparse_entries(&c->lists[1], t->memory);
    const struct tri_accumulator acc = sparse_accumulator(&c->state, t->memory);
    const uint32_t *decision = sparse_at(t->memory, c->decision);
    uint32_t *matched = sparse_at(t->memory, c->words);
    for (int how = TRI_UPDATE_SUBTRACT; how <= TRI_UPDATE_CLEAR; how++) {
        const trib_status status = t->kernels->residual_update(&acc, &list, (enum tri_update)how,
                                                               c->work == UPDATE ? NULL : &among,
                                                               decision, matched, t->stream);
        if (status != TRIB_OK)
            return status;
    }
    return TRIB_OK;
}

static trib_status chunks(const struct corrupt *c, const struct sparse_target *t)
{
    const struct tri_entries out = sparse_entries(&c->out, t->memory);
    const struct tri_result dense = {sparse_at(t->memory, c->dense), c->sums, 3,
                                     sparse_at(t->memory, c->overflow)};
    struct tri_chunks ranks[LISTS];
    for (int l = 0; l < LISTS; l++)
        ranks[l] = (struct tri_chunks){sparse_at(t->memory, c->slots[l]),
                                       sparse_at(t->memory, c->values[l]), c->dtype, CHUNK, SLOTS};
    if (c->work == CHUNK_UNPACK)
        return t->kernels->chunk_unpack(&ranks[0], COUNT, &out, t->scratch, t->stream);
    return t->kernels->chunk_merge(ranks, LISTS, COUNT, &dense, t->stream);
}

static trib_status queue(const struct corrupt *c, const struct sparse_target *target)
{
    switch (c->work) {
    case MERGE:
    case MERGE_DENSE:
    case MERGE_STARTED:
    case WRITE_ENTRIES:
        return merges(c, target);
    case LOWER_BOUND:
    case INDEX_HISTOGRAM:
    case FIND_STARTS:
    case INDEX_SELECT:
        return places(c, target);
    case UPDATE:
    case UPDATE_AMONG:
        return updates(c, target);
    case CHUNK_UNPACK:
    case CHUNK_MERGE:
        return chunks(c, target);
    default:
        return cuts(c, target);
    }
}

/* On the host, which has no stream, only the blocks are open. */
static trib_status queue_fenced(const struct sparse_target *target, const void *argument)
{
    const struct corrupt *c = argument;
    const struct arena *arena = &c->rig->arena;
    if (target->stream != NULL)
        return queue(c, target);
    FENCE(target->memory, arena->used);
    for (size_t b = 0; b < arena->n_blocks; b++)
        OPEN(target->memory + arena->blocks[b].at, arena->blocks[b].bytes);
    const trib_status status = queue(c, target);
    OPEN(target->memory, arena->used);
    return status;
}

/* ------------------------------------------------------------------------------------ outcomes */

static void forget_list(struct sparse_rig *rig, const struct sparse_list *list)
{
    arena_forget(&rig->arena, list->count, sizeof(uint32_t));
    arena_forget(&rig->arena, list->index, list->capacity * sizeof(uint32_t));
    arena_forget(&rig->arena, list->value, list->capacity * trib_dtype_size(list->dtype));
}

/* Outputs may be anything. Every other byte is as it was. */
static void expect_anything(struct sparse_rig *rig, const void *argument)
{
    const struct corrupt *c = argument;
    struct arena *arena = &rig->arena;
    const size_t size = trib_dtype_size(c->sums);
    forget_list(rig, &c->out);
    forget_list(rig, &c->dropped);
    arena_forget(arena, c->dense, COUNT * size);
    arena_forget(arena, c->overflow, sizeof(uint32_t));
    arena_forget(arena, c->words, TRI_CUT_DIGITS * sizeof(uint32_t));
    if (c->work == SHARE_TIES)
        arena_forget(arena, c->cut, sizeof(struct tri_cut));
    if (c->work == INDEX_SELECT)
        arena_forget(arena, c->lists[0].value,
                     c->lists[0].capacity * trib_dtype_size(c->lists[0].dtype));
    if (c->work == UPDATE || c->work == UPDATE_AMONG)
        arena_forget(arena, sparse_residual_at(rig, &c->state), COUNT * size);
}

/* No count is beyond its list. */
static void check_counts(struct sparse_rig *rig, const void *argument)
{
    const struct corrupt *c = argument;
    const unsigned char *found = rig->arena.found;
    if (c->work == MERGE || c->work == WRITE_ENTRIES || c->work == PARTITION ||
        c->work == CHUNK_UNPACK)
        CHECK(sparse_word_get(found, c->out.count) <= c->out.capacity);
    if (c->work == PARTITION)
        CHECK(sparse_word_get(found, c->dropped.count) <= c->dropped.capacity);
    for (int b = 0; c->work == LOWER_BOUND && b <= 3; b++)
        CHECK(sparse_word_get(found, c->words + 4 * (size_t)b) <= c->lists[0].capacity);
    for (size_t s = 0; c->work == FIND_STARTS && s < tri_starts(COUNT); s++)
        CHECK(sparse_word_get(found, c->words + 4 * s) <= c->lists[0].capacity);
}

/* -------------------------------------------------------------------------------------- damage */

static uint32_t damaged_index(enum damage damage, uint32_t i, uint32_t n)
{
    switch (damage) {
    case INDEX_BEYOND:
        return i < n / 2 ? FIRST + i : COUNT + i;
    case INDEX_HUGE:
        return i % 5 == 3 ? UINT32_MAX - i % 2 : FIRST + i;
    case OTHER_REGION:
        return i % 2 == 0 ? i : COUNT - 1 - i;
    case DESCENDING:
        return FIRST + RANGE - 1 - i;
    case DUPLICATES:
        return FIRST + i / 2;
    case ONE_INDEX:
        return FIRST + 77;
    case RANDOM_BITS:
        return (uint32_t)kernels_random();
    default:
        return FIRST + 2 * i;
    }
}

static void damage_list(struct sparse_rig *rig, const struct sparse_list *list, enum damage damage)
{
    const uint32_t n = list->capacity;
    for (uint32_t i = 0; i < n; i++)
        sparse_list_put(rig, list, i, damaged_index(damage, i, n),
                        damage == NOT_NUMBERS && i % 3 == 0 ? (double)NAN : sparse_normal());
    sparse_word_put(rig->arena.image, list->count,
                    damage == COUNT_BEYOND  ? n + 1
                    : damage == COUNT_HUGE  ? UINT32_MAX
                    : damage == RANDOM_BITS ? (uint32_t)kernels_random()
                                            : n);
    if (damage == RANDOM_BITS)
        arena_poison(&rig->arena, list->value, n * trib_dtype_size(list->dtype));
}

static void damage_slots(struct sparse_rig *rig, const struct corrupt *c, int l, enum damage damage,
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t index = (uint16_t)damaged_index(damage, (uint32_t)i, (uint32_t)n);
        memcpy(rig->arena.image + c->slots[l] + i * sizeof index, &index, sizeof index);
        kernels_put(rig->arena.image + c->values[l] + i * trib_dtype_size(c->dtype), c->dtype,
                    damage == NOT_NUMBERS && i % 3 == 0 ? (double)NAN : 1 + sparse_normal());
    }
}

/* The outputs are shorter than what the lists could fill them with. */
static void place_all(struct sparse_rig *rig, struct corrupt *c, enum damage damage, uint32_t n)
{
    const size_t slots = (COUNT + CHUNK - 1) / CHUNK * (size_t)SLOTS;
    arena_reset(&rig->arena);
    for (int l = 0; l < LISTS; l++) {
        c->lists[l] = sparse_list_place(rig, n, c->dtype, true);
        damage_list(rig, &c->lists[l], l == 1 ? DAMAGES : damage);
        c->starts[l] = arena_place(&rig->arena, tri_starts(COUNT) * sizeof(uint32_t), 0);
        for (size_t s = 0; s < tri_starts(COUNT); s++)
            sparse_word_put(rig->arena.image, c->starts[l] + 4 * s,
                            s % 2 == 0 ? (uint32_t)kernels_random() : UINT32_MAX - (uint32_t)s);
        c->slots[l] = arena_place(&rig->arena, slots * sizeof(uint16_t), 0);
        c->values[l] = arena_place(&rig->arena, slots * trib_dtype_size(c->dtype), 0);
        damage_slots(rig, c, l, damage, slots);
    }
    c->out = sparse_list_place(rig, c->work == WRITE_ENTRIES ? n : n / 6, c->sums, true);
    c->dropped = sparse_list_place(rig, n / 3, c->sums, true);
    c->state = sparse_state_place(rig, COUNT, c->sums, c->sums, 0);
    c->cut = arena_place(&rig->arena, sizeof(struct tri_cut), 0);
    c->words = arena_place(&rig->arena, TRI_CUT_DIGITS * sizeof(uint32_t), 0);
    c->dense = arena_place(&rig->arena, COUNT * trib_dtype_size(c->sums), 0);
    c->overflow = sparse_word(rig, 0);
    c->decision = sparse_word(rig, 1);
}

static void corrupt_case(struct sparse_rig *rig, enum work work, enum damage damage,
                         trib_dtype dtype)
{
    /* The threads of a block add to one sum at once where an index occurs twice in a list, which
     * racecheck rightly reports. */
    const bool adds = work <= MERGE_STARTED || work == CHUNK_MERGE;
    if (adds && getenv("TRIB_TEST_RACECHECK") != NULL)
        return;
    const bool cut = work >= RADIX_HISTOGRAM && work <= PARTITION; /* of sums */
    struct corrupt c = {.rig = rig,
                        .work = work,
                        .sums = dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32,
                        .dtype = cut && dtype == TRIB_BF16 ? TRIB_F32 : dtype};
    check_begin("%s %s of %s, %s", rig->arena.place->kernels->name, work_names[work],
                damage_names[damage], trib_dtype_name(dtype));
    place_all(rig, &c, damage, 1200);
    const struct sparse_call call = {.what = work_names[work],
                                     .queue = queue_fenced,
                                     .expect = expect_anything,
                                     .adopt = check_counts,
                                     .argument = &c,
                                     .count = COUNT,
                                     .entries = LISTS * 1200,
                                     .k = 1200,
                                     .dtype = c.sums};
    sparse_run(rig, &call);
    check_end();
}

void sparse_corrupt_suite(struct sparse_rig *rig)
{
    static const trib_dtype dtypes[] = {TRIB_F32, TRIB_BF16, TRIB_F64};
    for (int work = 0; work < WORKS; work++)
        for (int damage = 0; damage < DAMAGES; damage++)
            for (int t = 0; t < (rig->quick ? 1 : 3); t++)
                corrupt_case(rig, (enum work)work, (enum damage)damage,
                             dtypes[(t + work + damage) % 3]);
}
