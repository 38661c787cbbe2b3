/* The conformance suite of kernel tables: pack and unpack as they move plain bytes. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/kernels/kernels.h"

void list_make(struct list *list, struct arena *arena, trib_dtype dtype, size_t n,
               const struct list_params *params)
{
    const size_t size = trib_dtype_size(dtype), per_unit = 16 / size;
    size_t end = 0;
    memset(list, 0, sizeof *list);
    list->n = n;
    list->slices = calloc(n + 1, sizeof *list->slices);
    list->at = calloc(n + 1, sizeof *list->at);
    if (list->slices == NULL || list->at == NULL)
        abort();
    for (size_t i = 0; i < n; i++) {
        struct tri_slice *slice = &list->slices[i];
        slice->dtype = params->dtypes != NULL ? params->dtypes[i % params->n_dtypes] : dtype;
        slice->count =
            params->counts[params->in_turn ? i % params->n_counts
                                           : (size_t)(kernels_random() % params->n_counts)];
        slice->offset = end;
        const size_t element = trib_dtype_size(slice->dtype);
        const size_t misalign = params->aligned ? 0 : kernels_random() % 16 / element * element;
        list->at[i] = arena_place(arena, slice->count * element, misalign);
        slice->data = slice->count != 0 ? arena->device + list->at[i] : NULL;
        list->end = end + slice->count;
        end = (list->end + per_unit - 1) / per_unit * per_unit;
    }
    list->bucket.dtype = dtype;
    list->bucket.count = (params->padded ? end : list->end) + params->extra;
    list->bucket_at = arena_place(arena, list->bucket.count * size, 0);
    list->bucket.data = arena->device + list->bucket_at;
    list->kept = arena->place->kernels->keep != NULL && list->end != 0 &&
                 (params->form == LIST_KEPT || (params->form == LIST_ANY && kernels_random() % 2));
    if (!list->kept)
        return;
    list->table_at = arena_place(arena, tri_table_bytes(n), 0);
    arena_forget(arena, list->table_at, tri_table_bytes(n));
}

void list_free(struct list *list)
{
    free(list->slices);
    free(list->at);
}

/* A caller's array is his again when the call returns: use a copy, and spoil it. */
static struct tri_slice *lend(const struct list *list)
{
    struct tri_slice *copy = calloc(list->n + 1, sizeof *copy);
    if (copy == NULL)
        abort();
    memcpy(copy, list->slices, list->n * sizeof *copy);
    return copy;
}

static void take_back(struct tri_slice *copy, size_t n)
{
    memset(copy, 0x5a, n * sizeof *copy);
    free(copy);
}

/* The slices that are not empty, in a table. */
static size_t keep(const struct arena *arena, const struct list *list, struct tri_slice *lent)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->slices[i].count != 0)
            lent[n++] = list->slices[i];
    CHECK_OK(arena->place->kernels->keep(arena->device + list->table_at, lent, n, &list->bucket,
                                         arena->place->stream));
    return n;
}

size_t list_keep(const struct arena *arena, const struct list *list)
{
    struct tri_slice *lent = lend(list);
    const size_t n = keep(arena, list, lent);
    take_back(lent, list->n);
    return n;
}

void list_pack_image(const struct arena *arena, const struct list *list)
{
    const size_t size = trib_dtype_size(list->bucket.dtype);
    unsigned char *bucket = arena->image + list->bucket_at;
    memset(bucket, 0, list->bucket.count * size);
    for (size_t i = 0; i < list->n; i++)
        memcpy(bucket + list->slices[i].offset * size, arena->image + list->at[i],
               list->slices[i].count * size);
}

void list_pack(struct arena *arena, const struct list *list, const struct tri_weight *weight)
{
    const struct tri_kernels *kernels = arena->place->kernels;
    trib_stream stream = arena->place->stream;
    struct tri_slice *lent = lend(list);
    const size_t n = list->kept ? keep(arena, list, lent) : list->n;
    if (list->kept)
        CHECK_OK(
            kernels->pack_kept(arena->device + list->table_at, n, &list->bucket, weight, stream));
    else
        CHECK_OK(kernels->pack(lent, n, &list->bucket, weight, stream));
    take_back(lent, list->n);
}

static void unpack(const struct arena *arena, const struct list *list,
                   const struct tri_slice *slices, size_t n, int weighted, size_t decision)
{
    const struct tri_kernels *kernels = arena->place->kernels;
    trib_stream stream = arena->place->stream;
    const uint32_t *word = (const uint32_t *)(void *)(arena->device + decision);
    if (list->kept)
        CHECK_OK(kernels->unpack_kept(arena->device + list->table_at, n, &list->bucket, weighted,
                                      word, stream));
    else
        CHECK_OK(kernels->unpack(slices, n, &list->bucket, weighted, word, stream));
}

/* Only the decision may come late, as a commit makes it; until then there is the opposite. */
static void decide_late(const struct arena *arena, size_t decision)
{
    uint32_t opposite;
    if (check_left_out())
        return;
    memcpy(&opposite, arena->image + decision, sizeof opposite);
    opposite = !opposite;
    arena->place->upload(arena->device + decision, &opposite, sizeof opposite);
    kernels_upload(arena->place, arena->device + decision, arena->image + decision,
                   sizeof opposite);
}

void list_unpack(struct arena *arena, const struct list *list, int weighted, size_t decision)
{
    struct tri_slice *lent = lend(list);
    const size_t n = list->kept ? keep(arena, list, lent) : list->n;
    decide_late(arena, decision);
    unpack(arena, list, lent, n, weighted, decision);
    take_back(lent, list->n);
}

size_t decision_place(struct arena *arena, uint32_t value)
{
    const size_t at = arena_place(arena, sizeof value, 0);
    memcpy(arena->image + at, &value, sizeof value);
    return at;
}

static void plain_pack(struct arena *arena, const struct list *list)
{
    arena_upload(arena);
    list_pack(arena, list, NULL);
    list_pack_image(arena, list);
    (void)arena_check(arena, "pack");
}

/* The bucket holds other bytes by now, in its padding too. */
static void plain_unpack(struct arena *arena, const struct list *list, uint32_t decision)
{
    const size_t size = trib_dtype_size(list->bucket.dtype);
    const size_t word = decision_place(arena, decision);
    arena_poison(arena, list->bucket_at, list->bucket.count * size);
    arena_upload(arena);
    list_unpack(arena, list, 0, word);
    for (size_t i = 0; decision != 0 && i < list->n; i++)
        memcpy(arena->image + list->at[i],
               arena->image + list->bucket_at + list->slices[i].offset * size,
               list->slices[i].count * size);
    (void)arena_check(arena, decision != 0 ? "unpack" : "unpack that is not to happen");
}

static void plain_case(struct arena *arena, trib_dtype dtype, size_t n,
                       const struct list_params *params)
{
    struct list list;
    check_begin("%s pack and unpack %s, %zu slices, %s%s%s, counts %zu to %zu",
                arena->place->kernels->name, trib_dtype_name(dtype), n,
                params->aligned ? "aligned" : "misaligned", params->padded ? ", padded" : "",
                params->form == LIST_KEPT ? ", kept" : "", params->counts[0],
                params->counts[params->n_counts - 1]);
    arena_reset(arena);
    list_make(&list, arena, dtype, n, params);
    plain_pack(arena, &list);
    plain_unpack(arena, &list, 0);
    plain_unpack(arena, &list, 1);
    list_free(&list);
    check_end();
}

void kernels_plain(struct arena *arena, bool quick)
{
    static const size_t tiny[] = {0, 1, 3, 64}, whole[] = {512, 1024, 4096};
    static const size_t mixed[] = {0, 1, 5, 64, 127, 511, 513, 1000, 4099, 20001};
    static const size_t big[] = {300007};
    /* Around the number of slices that one launch takes, for whom that means something. */
    static const size_t numbers[] = {0, 1, 311, 4000, 2, 161, 309, 310, 2000, 2516};
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (int aligned = 0; aligned < 2; aligned++)
            for (int padded = 0; padded < 2; padded++) {
                const struct list_params small = {
                    .counts = tiny, .n_counts = 4, .aligned = aligned, .padded = padded};
                const struct list_params full = {
                    .counts = whole, .n_counts = 3, .aligned = aligned, .padded = padded};
                const struct list_params middle = {
                    .counts = mixed, .n_counts = 10, .aligned = aligned, .padded = padded};
                const struct list_params large = {
                    .counts = big, .n_counts = 1, .aligned = aligned, .padded = padded};
                for (size_t i = 0; i < (quick ? 4 : 10); i++)
                    plain_case(arena, dtype, numbers[i], &small);
                plain_case(arena, dtype, quick ? 7 : 161, &middle);
                plain_case(arena, dtype, 9, &full);
                plain_case(arena, dtype, 3, &large);
            }
    /* Nothing but padding. */
    const struct list_params none = {
        .counts = tiny, .n_counts = 1, .aligned = true, .padded = false, .extra = 3};
    plain_case(arena, TRIB_F32, 0, &none);
    plain_case(arena, TRIB_F32, 2, &none);
}

/* -------------------------------------------------------------------------------------- decision */

/* Unpack, queued right behind the commit that makes its decision, goes by that and not by what was
 * there before: the opposite. */
static void decision_case(struct arena *arena, uint32_t *abort_flag, struct tri_list_counts *counts,
                          const struct list_params *params, bool commits)
{
    const struct kernels_place *place = arena->place;
    const uint32_t flag = !commits;
    struct list list;
    arena_reset(arena);
    list_make(&list, arena, TRIB_F32, 400, params);
    const size_t word = decision_place(arena, !commits);
    uint32_t *decision = (uint32_t *)(void *)(arena->device + word);
    const struct tri_commit job = {
        .abort_flag = abort_flag, .counts = counts, .total_dtype = TRIB_F32, .decision = decision};
    place->upload(abort_flag, &flag, sizeof flag);
    arena_upload(arena);
    struct tri_slice *lent = lend(&list);
    CHECK_OK(place->kernels->commit(&job, place->stream));
    unpack(arena, &list, lent, list.n, 0, word);
    take_back(lent, list.n);
    for (size_t i = 0; commits && i < list.n; i++)
        memcpy(arena->image + list.at[i], arena->image + list.bucket_at + list.slices[i].offset * 4,
               list.slices[i].count * 4);
    const uint32_t expected = commits;
    memcpy(arena->image + word, &expected, sizeof expected);
    (void)arena_check(arena, commits ? "unpack behind a commit" : "unpack behind an abort");
    list_free(&list);
}

void kernels_decision(struct arena *arena, bool quick)
{
    static const size_t counts[] = {0, 1, 64, 1000, 5000};
    const struct list_params passed = {
        .counts = counts, .n_counts = 5, .aligned = true, .form = LIST_PASSED};
    const struct kernels_place *place = arena->place;
    uint32_t *abort_flag = place->alloc_pinned(64);
    struct tri_list_counts *counted = place->alloc_pinned(64), none = {0};
    check_begin("%s unpack right behind commit", place->kernels->name);
    place->upload(counted, &none, sizeof none);
    for (int i = 0; i < (quick ? 10 : 50); i++)
        decision_case(arena, abort_flag, counted, &passed, i % 2 == 0);
    check_end();
    place->free_pinned(abort_flag);
    place->free_pinned(counted);
}

/* ---------------------------------------------------------------------------------------- edges */

/* Lists of which cuda's warps, that move 128 units of 16 bytes each, see every edge; `p`: elements
 * of a unit. Slices that end with a chunk, one element before or behind it, empty ones amid others,
 * a chunk of three slices, of a hundred, and one that such a chunk leaves behind. */
static void edge_lists(struct arena *arena, trib_dtype dtype, const struct list_params *base)
{
    const size_t p = 16 / trib_dtype_size(dtype), chunk = 128 * p;
    const size_t lists[][8] = {
        {chunk, chunk - 1, chunk + 1, 2 * chunk, 1, p, p + 1, chunk - p},
        {p, 0, 0, 3 * p + 1, 0, 250 * p, 0, 0},
        {1, 1, 1, 1, 1, 1, 1, 90 * p + 1},
        {1, 1, 1, 1, 1, 1, 1, 1},
        {40 * p, 41 * p, 43 * p - 1, p, 2 * p, 300 * p - 1, 31 * p, 1},
        {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000},
    };
    static const size_t numbers[] = {8, 33, 128, 400};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            struct list_params params = *base;
            params.counts = lists[l];
            params.n_counts = 8;
            params.in_turn = true;
            plain_case(arena, dtype, numbers[i], &params);
        }
}

/* Tables that are looked at in two steps, as those of more than 4,096 slices are, in which a slice is
 * long, or all of them are not. */
static void long_tables(struct arena *arena, trib_dtype dtype, const struct list_params *base)
{
    static const size_t counts[] = {1, 2, 3, 70, 17, 1, 1, 1, 500}, ones[] = {1};
    struct list_params params = *base;
    params.counts = counts;
    params.n_counts = sizeof counts / sizeof *counts;
    plain_case(arena, dtype, 4113, &params);
    plain_case(arena, dtype, 9001, &params);
    params.counts = ones;
    params.n_counts = 1;
    plain_case(arena, dtype, 4096, &params);
    plain_case(arena, dtype, 9001, &params);
}

void kernels_edges(struct arena *arena, bool quick)
{
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype += quick ? 2 : 1)
        for (int aligned = 0; aligned < 2; aligned++)
            for (int padded = 0; padded < 2; padded++)
                for (int form = LIST_KEPT; form <= LIST_PASSED; form++) {
                    const struct list_params base = {
                        .aligned = aligned, .padded = padded, .form = (enum list_form)form};
                    edge_lists(arena, dtype, &base);
                    if (form == LIST_KEPT && padded)
                        long_tables(arena, dtype, &base);
                }
}
