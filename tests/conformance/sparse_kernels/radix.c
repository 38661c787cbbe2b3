/* radix_init, radix_histogram, radix_refine, count_ties, share_ties, radix_partition: each by its
 * contract, and together as ranks use them: the cut through several lists is that through one list
 * of them all. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

static uint64_t value_key(const struct sparse_rig *rig, const struct sparse_list *list, uint32_t i)
{
    const size_t size = trib_dtype_size(list->dtype);
    return sparse_key(rig->arena.image + list->value + i * size, list->dtype);
}

/* ----------------------------------------------------------------------------- member by member */

/* One call of any of them. */
struct cutting {
    enum { INIT, HISTOGRAM, REFINE, COUNT_TIES, SHARE_TIES, PARTITION } member;
    size_t cut, threshold, histogram, ties;
    uint32_t k;
    int32_t rank;
    int round;
    trib_dtype dtype;
    struct sparse_list list, kept, dropped;
    bool drops;
};

static trib_status queue_cutting(const struct sparse_target *target, const void *argument)
{
    const struct cutting *c = argument;
    const struct tri_sparse_kernels *kernels = target->kernels;
    unsigned char *memory = target->memory;
    struct tri_cut *cut = sparse_at(memory, c->cut);
    const struct tri_entries list = sparse_entries(&c->list, memory);
    const struct tri_entries kept = sparse_entries(&c->kept, memory);
    const struct tri_entries dropped = sparse_entries(&c->dropped, memory);
    switch (c->member) {
    case INIT:
        return kernels->radix_init(cut, c->k, sparse_at(memory, c->threshold), c->dtype,
                                   target->stream);
    case HISTOGRAM:
        return kernels->radix_histogram(&list, cut, c->round, sparse_at(memory, c->histogram),
                                        target->stream);
    case REFINE:
        return kernels->radix_refine(cut, c->round, sparse_at(memory, c->histogram), c->dtype,
                                     target->stream);
    case COUNT_TIES:
        return kernels->count_ties(&list, cut, sparse_at(memory, c->ties), target->scratch,
                                   target->stream);
    case SHARE_TIES:
        return kernels->share_ties(cut, sparse_at(memory, c->ties), c->rank, target->stream);
    default:
        return kernels->radix_partition(&list, cut, &kept, c->drops ? &dropped : NULL,
                                        target->scratch, target->stream);
    }
}

static struct tri_cut get_cut(const struct sparse_rig *rig, size_t at)
{
    struct tri_cut cut;
    memcpy(&cut, rig->arena.image + at, sizeof cut);
    return cut;
}

static size_t put_cut(struct sparse_rig *rig, uint64_t key, uint32_t ties, uint32_t done)
{
    const struct tri_cut cut = {key, ties, done};
    const size_t at = arena_place(&rig->arena, sizeof cut, 0);
    memcpy(rig->arena.image + at, &cut, sizeof cut);
    return at;
}

static void expect_digits(struct sparse_rig *rig, const struct cutting *c)
{
    const struct tri_cut cut = get_cut(rig, c->cut);
    const int shift = 11 * (tri_cut_rounds(c->dtype) - 1 - c->round);
    uint32_t histogram[TRI_CUT_DIGITS] = {0};
    for (uint32_t i = 0; i < sparse_list_count(rig, &c->list); i++) {
        const uint64_t key = value_key(rig, &c->list, i);
        const bool agrees = c->round == 0 || key >> (shift + 11) == cut.key >> (shift + 11);
        histogram[key >> shift & 2047] += key != 0 && agrees;
    }
    memcpy(rig->arena.image + c->histogram, histogram, sizeof histogram);
}

static void expect_partition(struct sparse_rig *rig, const struct cutting *c)
{
    struct tri_cut cut = get_cut(rig, c->cut);
    uint32_t n_kept = 0, n_dropped = 0;
    for (uint32_t i = 0; i < sparse_list_count(rig, &c->list); i++) {
        const uint64_t key = value_key(rig, &c->list, i);
        const bool tied = key == cut.key && key != 0 && cut.ties > 0;
        const bool in = key > cut.key || tied;
        cut.ties -= tied;
        if (in || c->drops)
            sparse_list_put(rig, in ? &c->kept : &c->dropped, in ? n_kept : n_dropped,
                            sparse_list_index(rig, &c->list, i),
                            sparse_list_value(rig, &c->list, i));
        n_kept += in;
        n_dropped += !in;
    }
    sparse_list_end(rig, &c->kept, n_kept);
    if (c->drops)
        sparse_list_end(rig, &c->dropped, n_dropped);
}

static void expect_share(struct sparse_rig *rig, const struct cutting *c)
{
    struct tri_cut cut = get_cut(rig, c->cut);
    for (int32_t r = 0; r <= c->rank; r++) {
        const uint32_t has = sparse_word_get(rig->arena.image, c->ties + 4 * (size_t)r);
        const uint32_t gets = has < cut.ties ? has : cut.ties;
        cut.ties = r == c->rank ? gets : cut.ties - gets;
    }
    memcpy(rig->arena.image + c->cut, &cut, sizeof cut);
}

static void expect_cutting(struct sparse_rig *rig, const void *argument)
{
    const struct cutting *c = argument;
    const struct tri_cut cut = get_cut(rig, c->cut);
    uint32_t ties = 0;
    switch (c->member) {
    case HISTOGRAM:
        expect_digits(rig, c);
        break;
    case COUNT_TIES:
        for (uint32_t i = 0; i < sparse_list_count(rig, &c->list); i++)
            ties += cut.key != 0 && value_key(rig, &c->list, i) == cut.key;
        sparse_word_put(rig->arena.image, c->ties, ties);
        break;
    case SHARE_TIES:
        expect_share(rig, c);
        break;
    case PARTITION:
        expect_partition(rig, c);
        break;
    default: /* radix_init, radix_refine: the next kernels and the twin show what they leave */
        break;
    }
}

static void adopt_cut(struct sparse_rig *rig, const void *argument)
{
    const struct cutting *c = argument;
    if (c->member == INIT || c->member == REFINE)
        memcpy(rig->arena.image + c->cut, rig->arena.found + c->cut, sizeof(struct tri_cut));
}

static void run_cutting(struct sparse_rig *rig, const struct cutting *c)
{
    static const char *const names[] = {"radix_init", "radix_histogram", "radix_refine",
                                        "count_ties", "share_ties",      "radix_partition"};
    const struct sparse_call call = {
        names[c->member], queue_cutting,    expect_cutting,   adopt_cut, c,
        1u << 20,         c->list.capacity, c->list.capacity, c->dtype};
    sparse_run(rig, &call);
}

/* ---------------------------------------------------------------------------- lists as of ranks */

enum { RANKS = 5 };

struct ranks {
    int32_t n;
    struct sparse_list lists[RANKS];
    trib_dtype dtype;
    uint32_t total;
};

static void place_ranks(struct sparse_rig *rig, struct ranks *ranks, int32_t n, trib_dtype dtype,
                        uint32_t entries, int kind, uint32_t k)
{
    ranks->n = n;
    ranks->dtype = dtype;
    ranks->total = 0;
    for (int32_t r = 0; r < n; r++) {
        const uint32_t mine = r == 1 ? 0 : entries / (uint32_t)n + (uint32_t)r * 3;
        const bool counted = r % 2 == 0;
        ranks->lists[r] = sparse_list_place(rig, mine + (counted ? 5 : 0), dtype, counted);
        sparse_list_fill(rig, &ranks->lists[r], 0, 3 * (size_t)mine + 1, mine, SPARSE_ZERO);
        sparse_fill(rig->arena.image + ranks->lists[r].value, dtype, mine, kind, k / 3);
        ranks->total += mine;
    }
}

/* Which entries of all lists are the k largest (or above a threshold), the lower rank first. */
static void oracle_in(const struct sparse_rig *rig, const struct ranks *ranks, uint32_t k,
                      uint64_t above, bool *in)
{
    uint64_t *keys = malloc((ranks->total + 1) * sizeof *keys);
    uint32_t *positions = malloc((ranks->total + 1) * sizeof *positions), n = 0;
    if (keys == NULL || positions == NULL)
        abort();
    for (int32_t r = 0; r < ranks->n; r++)
        for (uint32_t i = 0; i < sparse_list_count(rig, &ranks->lists[r]); i++)
            keys[n++] = value_key(rig, &ranks->lists[r], i);
    const uint32_t chosen = sparse_largest(keys, n, above, k, positions);
    memset(in, 0, n * sizeof *in);
    for (uint32_t i = 0; i < chosen; i++)
        in[positions[i]] = true;
    free(keys);
    free(positions);
}

/* One round on all lists: their histograms, added up, narrow the cut. */
static void one_round(struct sparse_rig *rig, const struct ranks *ranks, struct cutting *c)
{
    uint32_t sum[TRI_CUT_DIGITS] = {0};
    for (int32_t r = 0; r < ranks->n; r++) {
        c->member = HISTOGRAM;
        c->list = ranks->lists[r];
        if (get_cut(rig, c->cut).done == 0)
            run_cutting(rig, c);
        for (size_t d = 0; d < TRI_CUT_DIGITS; d++)
            sum[d] += sparse_word_get(rig->arena.image, c->histogram + 4 * d);
    }
    memcpy(rig->arena.image + c->histogram, sum, sizeof sum);
    const struct tri_cut before = get_cut(rig, c->cut);
    c->member = REFINE;
    run_cutting(rig, c);
    const struct tri_cut after = get_cut(rig, c->cut);
    CHECK_MSG(before.done == 0 || memcmp(&before, &after, sizeof before) == 0,
              "a cut that was done changed in round %d", c->round);
}

/* The kept and the dropped entries of rank r are what `in` says. */
static void check_taken(struct sparse_rig *rig, const struct cutting *c, const bool *in, int32_t r)
{
    const uint32_t n = sparse_list_count(rig, &c->list);
    uint32_t kept = 0, dropped = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct sparse_list *list = in[i] ? &c->kept : &c->dropped;
        const uint32_t at = in[i] ? kept++ : dropped++;
        if (!CHECK_MSG(at < sparse_list_count(rig, list) &&
                           sparse_list_index(rig, list, at) == sparse_list_index(rig, &c->list, i),
                       "rank %d, entry %u should be %s", r, i, in[i] ? "kept" : "dropped"))
            return;
    }
    CHECK_MSG(sparse_list_count(rig, &c->kept) == kept, "rank %d keeps %u, expected %u", r,
              sparse_list_count(rig, &c->kept), kept);
}

static void take_all(struct sparse_rig *rig, const struct ranks *ranks, struct cutting *c,
                     const bool *in)
{
    const struct tri_cut common = get_cut(rig, c->cut);
    for (int32_t r = 0; r < ranks->n; r++) {
        uint32_t ties;
        c->list = ranks->lists[r];
        c->member = COUNT_TIES;
        run_cutting(rig, c);
        ties = sparse_word_get(rig->arena.image, c->ties);
        sparse_word_put(rig->arena.image, c->ties + 4 * (size_t)(r + 1), ties);
    }
    c->ties += 4; /* [0] was for counting */
    for (int32_t r = 0; r < ranks->n; r++) {
        memcpy(rig->arena.image + c->cut, &common, sizeof common);
        c->list = ranks->lists[r];
        c->rank = r;
        c->drops = true;
        c->member = SHARE_TIES;
        run_cutting(rig, c);
        c->member = PARTITION;
        run_cutting(rig, c);
        check_taken(rig, c, in, r);
        in += sparse_list_count(rig, &c->list);
    }
}

static void together_case(struct sparse_rig *rig, trib_dtype dtype, int32_t n, uint32_t entries,
                          int kind, uint32_t k, double threshold)
{
    struct ranks ranks;
    struct cutting c = {.k = k, .dtype = dtype, .threshold = SPARSE_NONE};
    check_begin("%s cut %u of %u entries on %d ranks, %s, %s, threshold %g",
                rig->arena.place->kernels->name, k, entries, n, trib_dtype_name(dtype),
                sparse_kind_name(kind), threshold);
    arena_reset(&rig->arena);
    place_ranks(rig, &ranks, n, dtype, entries, kind, k);
    c.cut = put_cut(rig, kernels_random(), 3, 4);
    c.histogram = arena_place(&rig->arena, TRI_CUT_DIGITS * sizeof(uint32_t), 0);
    c.ties = arena_place(&rig->arena, (RANKS + 1) * sizeof(uint32_t), 0);
    c.kept = sparse_list_place(rig, ranks.total + 1, dtype, true);
    c.dropped = sparse_list_place(rig, ranks.total + 1, dtype, true);
    if (threshold >= 0)
        c.threshold = sparse_number(rig, dtype, threshold);
    bool *in = malloc((ranks.total + 1) * sizeof *in);
    if (in == NULL)
        abort();
    if (threshold >= 0)
        oracle_in(rig, &ranks, UINT32_MAX, sparse_key(rig->arena.image + c.threshold, dtype), in);
    else
        oracle_in(rig, &ranks, k, 0, in);
    c.member = INIT;
    run_cutting(rig, &c);
    for (c.round = 0; c.round < tri_cut_rounds(dtype); c.round++)
        one_round(rig, &ranks, &c);
    take_all(rig, &ranks, &c, in);
    free(in);
    check_end();
}

static void together(struct sparse_rig *rig)
{
    static const uint32_t sizes[] = {0, 1, 40, 1000, 20000};
    for (int f64 = 0; f64 < 2; f64++)
        for (int kind = 0; kind < SPARSE_KINDS; kind += rig->quick ? 5 : 1)
            for (size_t s = kind % 3 == 0 ? 0 : 3; s < (rig->quick ? 4 : 5); s++) {
                const uint32_t n = sizes[s];
                const uint32_t ks[] = {n / 4, 0, 1, n, n + 100, n / 50 + 2};
                const int32_t ranks = (int32_t)(kind + (int)s) % RANKS + 1;
                for (size_t i = 0; i < (n > 1000 || rig->quick ? 1 : 6); i++)
                    together_case(rig, f64 ? TRIB_F64 : TRIB_F32, ranks, n, kind, ks[i], -1);
                together_case(rig, f64 ? TRIB_F64 : TRIB_F32, ranks, n, kind, 5,
                              kind % 2 == 0 ? 0.75 : 0);
            }
}

/* --------------------------------------------------------------- cuts that were found elsewhere */

/* `key_of`: the entry whose key the cut has. */
static void apart_case(struct sparse_rig *rig, trib_dtype dtype, uint32_t n, int kind,
                       uint32_t key_of, uint32_t ties, bool counted)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct cutting c = {.dtype = dtype, .threshold = SPARSE_NONE};
    check_begin("%s radix_partition of %u, %s, %s, %u ties", rig->arena.place->kernels->name, n,
                trib_dtype_name(dtype), sparse_kind_name(kind), ties);
    arena_reset(&rig->arena);
    c.list = sparse_list_place(rig, n + (counted ? 3 : 0), dtype, counted);
    sparse_list_fill(rig, &c.list, 100, 4 * (size_t)n, n, kind);
    c.cut = put_cut(rig, n > 0 ? value_key(rig, &c.list, key_of % n) : 0, ties, 1);
    c.kept = sparse_list_place(rig, n, dtype, true);
    c.dropped = sparse_list_place(rig, n, dtype, true);
    c.ties = sparse_word(rig, 3);
    c.histogram = arena_place(&rig->arena, TRI_CUT_DIGITS * sizeof(uint32_t), 0);
    c.member = COUNT_TIES;
    run_cutting(rig, &c);
    for (int drops = 0; drops < 2; drops++) {
        c.member = PARTITION;
        c.drops = drops != 0;
        run_cutting(rig, &c);
    }
    sparse_word_put(rig->arena.image, c.cut + offsetof(struct tri_cut, done), 0);
    c.member = HISTOGRAM;
    for (c.round = 0; c.round < tri_cut_rounds(dtype); c.round++)
        run_cutting(rig, &c);
    check_end();
}

static void apart(struct sparse_rig *rig)
{
    static const uint32_t sizes[] = {0, 1, 31, 33, 255, 257, 4097, 16385, 131075};
    static const int kinds[] = {SPARSE_GAUSS,        SPARSE_EQUAL,   SPARSE_TWO_VALUES,
                                SPARSE_SIGNED_ZEROS, SPARSE_TIES_AT, SPARSE_INFINITIES,
                                SPARSE_DENORMAL};
    for (size_t s = 0; s < (rig->quick ? 7 : 9); s++)
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            for (int f64 = 0; f64 < (rig->quick ? 1 : 2); f64++)
                for (uint32_t ties = 0; ties < 3; ties++)
                    apart_case(rig, f64 ? TRIB_F64 : TRIB_F32, sizes[s], kinds[i],
                               (uint32_t)kernels_random(),
                               ties == 2 ? sizes[s] : ties * (sizes[s] / 3), (i + s) % 2 == 0);
}

void sparse_cut_suite(struct sparse_rig *rig)
{
    together(rig);
    apart(rig);
}
