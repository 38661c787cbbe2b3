#include "tests/conformance/kernels/pull_world.h"

#include <stdlib.h>
#include <string.h>

enum { CONTROL = sizeof(struct tri_pull_control) };

/* Elements of `send`, and of `recv`. */
static size_t sent(const struct pull_world *w, const struct pull_case *c)
{
    return tri_pull_scatters(c->kind) ? (size_t)w->size * c->count : c->count;
}

static size_t received(const struct pull_world *w, const struct pull_case *c)
{
    return tri_pull_gathers(c->kind) ? (size_t)w->size * c->count : c->count;
}

/* Where the rank's own block begins in a buffer of so many elements, in bytes. */
static size_t block_of(const struct pull_case *c, size_t elements, int rank)
{
    return elements > c->count ? (size_t)rank * c->count * trib_dtype_size(c->dtype) : 0;
}

void pull_renew(struct pull_world *w)
{
    const uint32_t none = 0;
    memset(w->found, 0, CONTROL);
    for (int r = 0; r < TRI_PULL_RANKS; r++)
        w->arena->place->upload(w->control[r], w->found, CONTROL);
    w->arena->place->upload(w->abort_flag, &none, sizeof none);
}

void pull_open(struct pull_world *w, struct arena *arena)
{
    const struct kernels_place *place = arena->place;
    *w = (struct pull_world){.arena = arena, .abort_flag = place->alloc_pinned(64)};
    w->found = malloc(CONTROL);
    for (int r = 0; r < TRI_PULL_RANKS; r++)
        w->control[r] = place->alloc(CONTROL);
    pull_renew(w);
}

void pull_close(struct pull_world *w)
{
    for (int r = 0; r < TRI_PULL_RANKS; r++)
        w->arena->place->free(w->control[r]);
    w->arena->place->free_pinned(w->abort_flag);
    free(w->found);
}

/* Tensors of ten sizes in turn. */
enum { LIST_COUNTS = 10 };
static const size_t list_counts[LIST_COUNTS] = {1, 0, 5, 64, 511, 1000, 3, 4099, 130, 17003};

static struct list_params params_of(const struct pull_case *c, int r)
{
    const bool aligned = (c->slices + (size_t)r) % 3 == 0;
    struct list_params params = {
        .counts = list_counts, .n_counts = LIST_COUNTS, .aligned = aligned, .padded = true};
    if (c->weighted)
        params = list_weighted_params(c->dtype, list_counts, LIST_COUNTS, aligned, true);
    params.in_turn = true;
    params.form = r % 4 == 2 ? LIST_PASSED : LIST_KEPT;
    return params;
}

/* What pack makes of the rank's list. */
static void pack_image(const struct pull_world *w, const struct pull_case *c, int r)
{
    if (c->weighted)
        list_weigh_image(w->arena, &w->lists[r], w->weights[r]);
    else
        list_pack_image(w->arena, &w->lists[r]);
}

/* One that is used, 0, or one that is none. */
static void place_weight(struct pull_world *w, const struct pull_case *c, int r)
{
    static const float weights[] = {1, 0.3F, 0, 2.5F, -1, 7, 1e30F};
    w->weights[r] = weights[(c->slices + (size_t)r) % 7];
    w->weights_at[r] = arena_place(w->arena, sizeof w->weights[r], 4);
    memcpy(w->arena->image + w->weights_at[r], &w->weights[r], sizeof w->weights[r]);
}

/* A list with its bucket; on some ranks it is packed already. */
static void place_list(struct pull_world *w, const struct pull_case *c, int r)
{
    struct list *list = &w->lists[r];
    const struct list_params params = params_of(c, r);
    list_make(list, w->arena, c->dtype, c->slices, &params);
    place_weight(w, c, r);
    w->send[r] = w->recv[r] = list->bucket_at;
    arena_name(w->arena, list->bucket_at, "bucket");
    for (size_t i = 0; i < list->n; i++)
        kernels_fill(w->arena->image + list->at[i], list->slices[i].dtype, list->slices[i].count,
                     c->numbers);
    if (!list->kept)
        pack_image(w, c, r);
}

/* Every other rank's weight is on the device; the value beside it must not be looked at. */
static struct tri_packing packing_of(const struct pull_world *w, const struct pull_case *c, int r)
{
    const void *at = w->arena->device + w->weights_at[r];
    const struct tri_weight weight = {r % 2 == 0 ? at : NULL, r % 2 == 0 ? 77.0F : w->weights[r]};
    return (struct tri_packing){.table = w->arena->device + w->lists[r].table_at,
                                .slices = list_keep(w->arena, &w->lists[r]),
                                .weighted = c->weighted,
                                .weight = weight};
}

/* Once they are there: tables; and then send as if it had been packed. */
static void keep_lists(const struct pull_world *w, const struct pull_case *c,
                       struct tri_pull_rank *here)
{
    for (int r = 0; r < w->size && c->slices != 0; r++) {
        if (w->lists[r].kept)
            here[r].list = packing_of(w, c, r);
        pack_image(w, c, r);
    }
}

/* A rank's buffers. In place one is the other, or the rank's block of it. */
static void place_rank(struct pull_world *w, const struct pull_case *c, int r, size_t shift)
{
    const size_t size = trib_dtype_size(c->dtype);
    const size_t other = c->alike ? shift : kernels_random() % 16 / size * size;
    const size_t from = sent(w, c), to = received(w, c);
    const bool in_place = c->in_place && r % 2 == 0;
    if (in_place && to > from) {
        w->recv[r] = arena_place(w->arena, to * size, other);
        w->send[r] = w->recv[r] + block_of(c, to, r);
    } else {
        w->send[r] = arena_place(w->arena, from * size, c->alike ? shift : r % 2 * size % 16);
        w->recv[r] =
            in_place ? w->send[r] + block_of(c, from, r) : arena_place(w->arena, to * size, other);
    }
    arena_name(w->arena, w->send[r], "send");
    kernels_fill(w->arena->image + w->send[r], c->dtype, from, c->numbers);
}

void pull_place(struct pull_world *w, const struct pull_case *c)
{
    const size_t size = trib_dtype_size(c->dtype), shift = kernels_random() % 16 / size * size;
    arena_reset(w->arena);
    for (int r = 0; r < w->size; r++) {
        if (c->slices != 0)
            place_list(w, c, r);
        else
            place_rank(w, c, r, shift);
        w->scratch[r] = arena_place(w->arena, w->scratch_bytes, 0);
        arena_name(w->arena, w->scratch[r], "scratch");
        arena_forget(w->arena, w->scratch[r], w->scratch_bytes);
    }
}

struct tri_pull pull_job(const struct pull_world *w, const struct pull_case *c,
                         struct tri_pull_rank *here)
{
    const bool copies = tri_pull_copies(c->kind);
    struct tri_pull job = {.here = here,
                           .n = (size_t)w->size,
                           .scratch_bytes = w->scratch_bytes,
                           .size = w->size,
                           .blocks = c->blocks,
                           .kind = c->kind,
                           .root = c->root,
                           .count = c->count * (copies ? trib_dtype_size(c->dtype) : 1),
                           .dtype = copies ? TRIB_U8 : c->dtype,
                           .op = c->op,
                           .way = c->way,
                           .abort_flag = w->abort_flag,
                           .patience_ns = UINT64_C(20000000000)}; /* then `over` is not 0 */
    for (int r = 0; r < w->size; r++) {
        job.control[r] = w->control[r];
        job.scratch[r] = w->arena->device + w->scratch[r];
        here[r] = (struct tri_pull_rank){.send = w->arena->device + w->send[r],
                                         .recv = w->arena->device + w->recv[r],
                                         .mapped = r != c->unmapped,
                                         .rank = r};
    }
    return job;
}

/* Every element of the rank's result of a reduction. */
static void expect_reduced(const struct pull_world *w, const struct pull_case *c,
                           unsigned char *const *parts, int rank)
{
    const size_t size = trib_dtype_size(c->dtype);
    for (size_t i = 0; i < c->count; i++) {
        const void *elements[TRI_PULL_RANKS];
        for (int r = 0; r < w->size; r++)
            elements[r] = parts[r] + block_of(c, sent(w, c), rank) + i * size;
        kernels_fold(w->arena->image + w->recv[rank] + i * size, elements, (size_t)w->size,
                     c->dtype, c->op);
    }
    if (c->dtype <= TRIB_F64)
        arena_mark(w->arena, w->recv[rank], c->count, c->dtype);
}

/* The image after the call. Copies keep every bit. */
static void expect(const struct pull_world *w, const struct pull_case *c)
{
    const size_t bytes = sent(w, c) * trib_dtype_size(c->dtype);
    const size_t block = c->count * trib_dtype_size(c->dtype);
    unsigned char *parts[TRI_PULL_RANKS], *const image = w->arena->image;
    for (int r = 0; r < w->size; r++) {
        parts[r] = malloc(bytes);
        memcpy(parts[r], image + w->send[r], bytes);
    }
    for (int r = 0; r < w->size; r++) {
        if (!tri_pull_copies(c->kind))
            expect_reduced(w, c, parts, r);
        else if (c->kind == TRI_PULL_BROADCAST)
            memcpy(image + w->recv[r], parts[c->root], bytes);
        for (int p = 0; p < w->size && tri_pull_gathers(c->kind); p++)
            memcpy(image + w->recv[r] + (size_t)p * block,
                   parts[p] + (tri_pull_scatters(c->kind) ? (size_t)r * block : 0), block);
    }
    for (int r = 0; r < w->size; r++)
        free(parts[r]);
}

/* Whatever a NaN looks like, it looks so on all ranks. */
static void compare_ranks(const struct pull_world *w, const struct pull_case *c)
{
    const size_t bytes = c->count * trib_dtype_size(c->dtype);
    for (int r = 1; r < w->size && c->kind == TRI_PULL_ALLREDUCE; r++)
        CHECK_MSG(memcmp(w->arena->found + w->recv[0], w->arena->found + w->recv[r], bytes) == 0,
                  "ranks 0 and %d of %d have other bits", r, w->size);
}

/* Twins have been at as many barriers. */
static void compare_turns(const struct pull_world *w)
{
    uint32_t turn[TRI_PULL_BLOCKS];
    for (int r = 0; r < w->size; r++) {
        w->arena->place->download(w->found, w->control[r], CONTROL);
        CHECK_MSG(w->found->over == 0, "rank %d: over is %u", r, (unsigned)w->found->over);
        if (r == 0)
            memcpy(turn, w->found->turn, sizeof turn);
        CHECK_MSG(memcmp(turn, w->found->turn, sizeof turn) == 0, "turns of ranks 0 and %d", r);
    }
}

void pull_call(struct pull_world *w, const struct pull_case *of)
{
    struct tri_pull_rank here[TRI_PULL_RANKS];
    struct pull_case c = *of;
    if (check_left_out())
        return;
    pull_place(w, &c);
    if (c.slices != 0)
        c.count = w->lists[0].bucket.count;
    arena_upload(w->arena);
    const struct tri_pull job = pull_job(w, &c, here);
    keep_lists(w, &c, here);
    CHECK_OK(w->arena->place->kernels->pull(&job, w->arena->place->stream));
    expect(w, &c);
    arena_download(w->arena);
    compare_ranks(w, &c);
    compare_turns(w);
    (void)arena_compare(w->arena, w->arena->found, "pull");
    for (int r = 0; r < w->size && c.slices != 0; r++)
        list_free(&w->lists[r]);
}
