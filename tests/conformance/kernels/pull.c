/* The conformance suite of kernel tables: pull, with all ranks of a communicator on one device. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/kernels/kernels.h"

enum {
    CONTROL = sizeof(struct tri_pull_control),
    STAGED = 2,
    WAYS = 3,
    NOBODY = -1,
    LONGEST = 60000,
    OPS = TRIB_AVG - TRIB_SUM + 1
};

/* A communicator: its scratch lies in the arena, its controls do not, for they outlast a call. */
struct world {
    struct arena *arena;
    uint32_t *abort_flag;
    int size;
    size_t scratch_bytes;
    size_t scratch[TRI_PULL_RANKS], send[TRI_PULL_RANKS], recv[TRI_PULL_RANKS];
    struct tri_pull_control *control[TRI_PULL_RANKS], *found;
};

/* One call of it. */
struct pull_case {
    trib_dtype dtype;
    trib_op op;
    size_t count;
    enum tri_pull_way way;
    int blocks, unmapped; /* a rank, or NOBODY */
    bool in_place;        /* every other rank */
    bool alike;           /* buffers of all ranks lie alike in 16 bytes */
    enum kernels_numbers numbers;
    enum tri_pull_kind kind;
    int root;
};

static const char *const kinds[] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                    "alltoall"};

/* Elements of `send`, and of `recv`. */
static size_t sent(const struct world *w, const struct pull_case *c)
{
    return tri_pull_scatters(c->kind) ? (size_t)w->size * c->count : c->count;
}

static size_t received(const struct world *w, const struct pull_case *c)
{
    return tri_pull_gathers(c->kind) ? (size_t)w->size * c->count : c->count;
}

/* Where the rank's own block begins in a buffer of so many elements, in bytes. */
static size_t block_of(const struct pull_case *c, size_t elements, int rank)
{
    return elements > c->count ? (size_t)rank * c->count * trib_dtype_size(c->dtype) : 0;
}

/* Controls as before the first call, and no abort. */
static void renew_world(struct world *w)
{
    const uint32_t none = 0;
    memset(w->found, 0, CONTROL);
    for (int r = 0; r < TRI_PULL_RANKS; r++)
        w->arena->place->upload(w->control[r], w->found, CONTROL);
    w->arena->place->upload(w->abort_flag, &none, sizeof none);
}

static void open_world(struct world *w, struct arena *arena)
{
    const struct kernels_place *place = arena->place;
    *w = (struct world){.arena = arena, .abort_flag = place->alloc_pinned(64)};
    w->found = malloc(CONTROL);
    for (int r = 0; r < TRI_PULL_RANKS; r++)
        w->control[r] = place->alloc(CONTROL);
    renew_world(w);
}

static void close_world(struct world *w)
{
    for (int r = 0; r < TRI_PULL_RANKS; r++)
        w->arena->place->free(w->control[r]);
    w->arena->place->free_pinned(w->abort_flag);
    free(w->found);
}

/* A rank's buffers. In place one is the other, or the rank's block of it. */
static void place_rank(struct world *w, const struct pull_case *c, int r, size_t shift)
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

/* Buffers and scratch for every rank. */
static void place_buffers(struct world *w, const struct pull_case *c)
{
    const size_t size = trib_dtype_size(c->dtype), shift = kernels_random() % 16 / size * size;
    arena_reset(w->arena);
    for (int r = 0; r < w->size; r++) {
        place_rank(w, c, r, shift);
        w->scratch[r] = arena_place(w->arena, w->scratch_bytes, 0);
        arena_name(w->arena, w->scratch[r], "scratch");
        arena_forget(w->arena, w->scratch[r], w->scratch_bytes);
    }
}

static struct tri_pull job_of(const struct world *w, const struct pull_case *c,
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
static void expect_reduced(const struct world *w, const struct pull_case *c,
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
static void expect(const struct world *w, const struct pull_case *c)
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
static void compare_ranks(const struct world *w, const struct pull_case *c)
{
    const size_t bytes = c->count * trib_dtype_size(c->dtype);
    for (int r = 1; r < w->size && c->kind == TRI_PULL_ALLREDUCE; r++)
        CHECK_MSG(memcmp(w->arena->found + w->recv[0], w->arena->found + w->recv[r], bytes) == 0,
                  "ranks 0 and %d of %d have other bits", r, w->size);
}

/* Twins have been at as many barriers. */
static void compare_turns(const struct world *w)
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

static void one_call(struct world *w, const struct pull_case *c)
{
    struct tri_pull_rank here[TRI_PULL_RANKS];
    if (check_left_out())
        return;
    place_buffers(w, c);
    arena_upload(w->arena);
    const struct tri_pull job = job_of(w, c, here);
    CHECK_OK(w->arena->place->kernels->pull(&job, w->arena->place->stream));
    expect(w, c);
    arena_download(w->arena);
    compare_ranks(w, c);
    compare_turns(w);
    (void)arena_compare(w->arena, w->arena->found, "pull");
}

/* Of so many calls one is made. Under racecheck, which looks at shared memory, of which no call has
 * more than another, they take seconds each. */
static size_t thinness(const struct world *w, bool quick)
{
    return getenv("TRIB_TEST_RACECHECK") != NULL ? 9 : quick || w->size > 4 ? 3 : 1;
}

/* Every way, in place and not, with any number of blocks. */
static void counts_and_ways(struct world *w, trib_dtype dtype, trib_op op, bool quick)
{
    static const size_t counts[] = {1, 2, 15, 16, 17, 63, 1027, 8191, 40001};
    static const int blocks[] = {1, 2, 7, 12};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int way = 0; way < WAYS; way++) {
            const size_t turn = i + (size_t)op + (size_t)way + (size_t)w->size;
            struct pull_case c = {
                .dtype = dtype,
                .op = op,
                .count = counts[i],
                .way = way == STAGED ? (enum tri_pull_way)(i % 2) : (enum tri_pull_way)way,
                .blocks = blocks[kernels_random() % 4],
                .unmapped = way == STAGED ? (int)(turn % (size_t)w->size) : NOBODY,
                .in_place = way != TRI_PULL_ONE_SHOT && turn / 2 % 2,
                .alike = turn % 3 != 0,
                .numbers = (enum kernels_numbers)(turn % 3)};
            const size_t thin = thinness(w, quick);
            if (turn % thin != (size_t)dtype % thin)
                continue;
            if (w->size <= 3 && i % 3 == 0)
                c.blocks = 0;
            if (way == STAGED && c.way == TRI_PULL_ONE_SHOT)
                c.in_place = false;
            w->scratch_bytes = tri_pull_scratch_least(c.kind, w->size) * (turn % 2 ? 1 : 12);
            one_call(w, &c);
        }
}

/* The other kinds in every way, in place and not. */
static void other_kinds(struct world *w, trib_dtype dtype, enum tri_pull_kind kind, bool quick)
{
    static const size_t counts[] = {1, 3, 16, 20, 67, 1027, 8192, 20003};
    static const int blocks[] = {0, 1, 2, 3, 7, 12};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int staged = 0; staged < 2; staged++) {
            const size_t turn = i + 3 * (size_t)staged + (size_t)w->size + dtype;
            const struct pull_case c = {
                .dtype = dtype,
                .op = (trib_op)(TRIB_SUM + (int)(turn % OPS)),
                .count = counts[i],
                .blocks = blocks[w->size > 3 ? 1 + turn / 3 % 5 : turn / 3 % 6],
                .unmapped = staged ? (int)(turn % (size_t)w->size) : NOBODY,
                .in_place = kind != TRI_PULL_ALLTOALL && kernels_random() % 2 != 0,
                .alike = turn / 3 % 3 != 0,
                .numbers = (enum kernels_numbers)(turn / 3 % 3),
                .kind = kind,
                .root = (int)(turn / 2 % (size_t)w->size)};
            if (turn % thinness(w, quick) != 0)
                continue;
            if (c.count * (size_t)w->size > LONGEST)
                continue;
            w->scratch_bytes = tri_pull_scratch_least(c.kind, w->size) * (turn % 2 ? 1 : 12);
            one_call(w, &c);
        }
}

/* One rank of two, whose peer never comes: ends by the flag or by its patience, and so does what is
 * behind it. */
static void no_peer(struct world *w, uint32_t flag)
{
    const struct kernels_place *place = w->arena->place;
    struct tri_pull_rank here[TRI_PULL_RANKS];
    const struct pull_case c = {.dtype = TRIB_F32, .count = 3000, .unmapped = NOBODY};
    uint32_t found = 0, over = 0;
    check_begin("%s pull without its peer, %s", place->kernels->name,
                flag != 0 ? "aborted" : "for 20 ms");
    renew_world(w);
    w->size = 2;
    w->scratch_bytes = tri_pull_scratch_least(c.kind, w->size);
    place_buffers(w, &c);
    arena_upload(w->arena);
    if (flag != 0)
        place->upload(w->abort_flag, &flag, sizeof flag);
    struct tri_pull job = job_of(w, &c, here);
    job.n = 1;
    job.patience_ns = flag != 0 ? 0 : 20000000;
    const double began = check_now_ms();
    for (int i = 0; i < 3; i++)
        CHECK_OK(place->kernels->pull(&job, place->stream));
    place->download(&found, w->abort_flag, sizeof found);
    place->download(&over, &w->control[0]->over, sizeof over);
    const double took = check_now_ms() - began;
    CHECK_MSG(check_left_out() || found == (flag != 0 ? flag : TRI_PUSH_LATE), "the flag is %u",
              (unsigned)found);
    CHECK_MSG(check_left_out() || over == found, "over is %u", (unsigned)over);
    CHECK_MSG(check_left_out() || flag != 0 || took >= 20, "it ended after %g ms", took);
    arena_download(w->arena);
    (void)arena_compare(w->arena, w->arena->found, "pull without its peer");
    check_end();
}

void kernels_pull(struct arena *arena, bool quick)
{
    struct world w;
    open_world(&w, arena);
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (w.size = 2; w.size <= TRI_PULL_RANKS; w.size++) {
            check_begin("%s pull %s, %d ranks", arena->place->kernels->name, trib_dtype_name(dtype),
                        w.size);
            renew_world(&w);
            for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++)
                counts_and_ways(&w, dtype, op, quick);
            check_end();
            for (enum tri_pull_kind kind = TRI_PULL_REDUCE_SCATTER; kind <= TRI_PULL_ALLTOALL;
                 kind++) {
                if (tri_pull_copies(kind) && dtype % 4 != 1)
                    continue; /* it is of bytes in any type */
                check_begin("%s pull %s, %s, %d ranks", arena->place->kernels->name, kinds[kind],
                            trib_dtype_name(dtype), w.size);
                renew_world(&w);
                other_kinds(&w, dtype, kind, quick);
                check_end();
            }
        }
    no_peer(&w, TRI_PUSH_ABORTED);
    no_peer(&w, 0);
    close_world(&w);
}
