/* The conformance suite of kernel tables: push, with all ranks of a communicator on one device. */
#include <string.h>

#include "tests/conformance/kernels/kernels.h"

enum { CALLS = 3, CONTROL = sizeof(struct tri_push_control) };

/* A communicator in the arena, and room for buffers of its ranks. */
struct world {
    struct arena *arena;
    uint32_t *abort_flag;
    int size;
    size_t capacity;
    size_t scratch[TRI_PUSH_RANKS], control[TRI_PUSH_RANKS];
    size_t send[TRI_PUSH_RANKS], recv[TRI_PUSH_RANKS];
};

/* One call of it. */
struct push_case {
    trib_dtype dtype; /* of the elements, also of a copy */
    trib_op op;
    size_t count;
    bool in_place;
    enum kernels_numbers numbers;
    enum tri_push_kind kind;
    int root;
};

static const char *const kinds[] = {"allreduce", "reduce_scatter", "two shot",
                                    "allgather", "broadcast",      "alltoall"};

/* Elements of `send`, and of `recv`. */
static size_t sent(const struct world *w, const struct push_case *c)
{
    return tri_push_scatters(c->kind) ? (size_t)w->size * c->count : c->count;
}

static size_t received(const struct world *w, const struct push_case *c)
{
    return tri_push_gathers(c->kind) ? (size_t)w->size * c->count : c->count;
}

static struct tri_push_control *control_of(const struct world *w, unsigned char *base, int rank)
{
    return (struct tri_push_control *)(void *)(base + w->control[rank]);
}

/* Scratch and control as before the first call, and no abort. */
static void open_world(struct world *w, struct arena *arena, int size, size_t capacity)
{
    const size_t bytes = tri_push_scratch_bytes(size, capacity);
    const uint32_t none = 0;
    arena_reset(arena);
    w->arena = arena;
    w->size = size;
    w->capacity = capacity;
    for (int r = 0; r < size; r++) {
        w->scratch[r] = arena_place(arena, bytes, 0);
        arena_name(arena, w->scratch[r], "scratch");
        memset(arena->image + w->scratch[r], TRI_PUSH_EMPTY_BYTE, bytes);
        w->control[r] = arena_place(arena, CONTROL, 0);
        arena_name(arena, w->control[r], "control");
        memset(arena->image + w->control[r], 0, CONTROL);
        arena_forget(arena, w->control[r] + offsetof(struct tri_push_control, asked),
                     sizeof(uint64_t));
    }
    arena->place->upload(w->abort_flag, &none, sizeof none);
}

/* Buffers for every rank, aligned to the element at least: those of ranks 0 and 3 to 16 bytes. The larger
 * one has the other inside, if in place. */
static void place_buffers(struct world *w, const struct push_case *c)
{
    const size_t size = trib_dtype_size(c->dtype), block = c->count * size;
    const bool in_place = c->in_place && c->kind != TRI_PUSH_ALLTOALL;
    for (int r = 0; r < w->size; r++) {
        const size_t shift = r % 3 == 0 ? 0 : kernels_random() % 16 / size * size;
        const size_t inside = in_place && tri_push_copies(c->kind) ? received(w, c) : sent(w, c);
        const size_t first = arena_place(w->arena, inside * size, shift);
        arena_name(w->arena, first, "send");
        w->send[r] = w->recv[r] = first;
        if (!in_place)
            w->recv[r] = arena_place(w->arena, received(w, c) * size, r % 2 * size);
        else if (c->kind == TRI_PUSH_REDUCE_SCATTER)
            w->recv[r] += (size_t)r * block;
        else if (c->kind == TRI_PUSH_ALLGATHER)
            w->send[r] += (size_t)r * block;
        kernels_fill(w->arena->image + w->send[r], c->dtype, sent(w, c), c->numbers);
    }
}

/* What push must not change, or must: all ones in whole granules and in halves of them, both zeros,
 * infinities; by the bits of 16-bit pieces, so that every type gets some. */
static void place_specials(const struct world *w, const struct push_case *c)
{
    static const uint16_t bits[] = {0xffff, 0xffff, 0, 0x8000, 0x7c00, 0x7f80, 0xffff, 0x7fff};
    const size_t bytes = sent(w, c) * trib_dtype_size(c->dtype);
    for (int r = 0; r < w->size && c->numbers == KERNELS_WILD_NANS; r++)
        for (size_t at = 0; at + 2 <= bytes && at < 512; at += 2) {
            const uint16_t *piece = &bits[(at / 4 * 3 + at / 2 % 2 + (size_t)r * (at / 64)) % 8];
            memcpy(w->arena->image + w->send[r] + at, piece, sizeof *piece);
        }
}

/* The others have no buffer to send. */
static bool sends(const struct push_case *c, int rank)
{
    return c->kind != TRI_PUSH_BROADCAST || rank == c->root;
}

static struct tri_push job_of(const struct world *w, const struct push_case *c,
                              struct tri_push_rank *here)
{
    const bool copies = tri_push_copies(c->kind);
    struct tri_push job = {.here = here,
                           .n = (size_t)w->size,
                           .size = w->size,
                           .capacity = w->capacity,
                           .count = c->count * (copies ? trib_dtype_size(c->dtype) : 1),
                           .dtype = copies ? TRIB_U8 : c->dtype,
                           .op = c->op,
                           .kind = c->kind,
                           .root = c->root,
                           .abort_flag = w->abort_flag};
    for (int r = 0; r < w->size; r++) {
        job.scratch[r] = w->arena->device + w->scratch[r];
        here[r] = (struct tri_push_rank){.send = sends(c, r) ? w->arena->device + w->send[r] : NULL,
                                         .recv = w->arena->device + w->recv[r],
                                         .control = control_of(w, w->arena->device, r),
                                         .rank = r};
    }
    return job;
}

/* In the image, element i of rank r's result is op over element `from` of all ranks. */
static void expect_reduced(const struct world *w, const struct push_case *c, int r, size_t i,
                           size_t from)
{
    const size_t size = trib_dtype_size(c->dtype);
    const void *elements[TRI_PUSH_RANKS];
    for (int p = 0; p < w->size; p++)
        elements[p] = w->arena->image + w->send[p] + from * size;
    kernels_fold(w->arena->image + w->recv[r] + i * size, elements, (size_t)w->size, c->dtype,
                 c->op);
}

static void expect_reductions(const struct world *w, const struct push_case *c)
{
    const bool scatters = c->kind == TRI_PUSH_REDUCE_SCATTER;
    const size_t size = trib_dtype_size(c->dtype);
    for (int r = 0; r < (scatters ? w->size : 1); r++)
        for (size_t i = 0; i < c->count; i++)
            expect_reduced(w, c, r, i, (scatters ? (size_t)r * c->count : 0) + i);
    for (int r = 0; r < w->size; r++) {
        if (!scatters && r > 0)
            memcpy(w->arena->image + w->recv[r], w->arena->image + w->recv[0], c->count * size);
        if (c->dtype <= TRIB_F64) {
            arena_mark(w->arena, w->send[r], sent(w, c), c->dtype);
            arena_mark(w->arena, w->recv[r], c->count, c->dtype);
        }
    }
}

static void expect_copies(const struct world *w, const struct push_case *c)
{
    const size_t bytes = c->count * trib_dtype_size(c->dtype);
    for (int r = 0; r < w->size; r++)
        for (int from = 0; from < w->size; from++) {
            const size_t at = tri_push_gathers(c->kind) ? (size_t)from * bytes : 0;
            const size_t of = tri_push_scatters(c->kind) ? (size_t)r * bytes : 0;
            if (sends(c, from))
                memmove(w->arena->image + w->recv[r] + at, w->arena->image + w->send[from] + of,
                        bytes);
        }
}

/* The image after the call. */
static void expect(const struct world *w, const struct push_case *c)
{
    if (tri_push_copies(c->kind))
        expect_copies(w, c);
    else
        expect_reductions(w, c);
    for (int r = 0; r < w->size; r++)
        control_of(w, w->arena->image, r)->turn += c->count != 0 ? TRI_PUSH_EPOCH : 0;
}

/* Whatever a NaN looks like, it looks so on all ranks. */
static void compare_ranks(const struct world *w, const struct push_case *c)
{
    const size_t bytes = received(w, c) * trib_dtype_size(c->dtype);
    if (tri_push_scatters(c->kind))
        return;
    for (int r = 1; r < w->size; r++)
        CHECK_MSG(memcmp(w->arena->found + w->recv[0], w->arena->found + w->recv[r], bytes) == 0,
                  "ranks 0 and %d of %d have other bits", r, w->size);
}

static void one_call(struct world *w, const struct push_case *c)
{
    struct tri_push_rank here[TRI_PUSH_RANKS];
    if (check_left_out())
        return;
    place_buffers(w, c);
    place_specials(w, c);
    arena_upload(w->arena);
    const struct tri_push job = job_of(w, c, here);
    CHECK_OK(w->arena->place->kernels->push(&job, w->arena->place->stream));
    expect(w, c);
    arena_download(w->arena);
    compare_ranks(w, c);
    (void)arena_compare(w->arena, w->arena->found, c->in_place ? "push in place" : "push");
}

/* Chunks of a slot that the call fills. */
static size_t chunks_of(const struct push_case *c, int size)
{
    const bool copies = tri_push_copies(c->kind);
    return tri_push_slot_chunks(
        &(struct tri_push){.size = size,
                           .count = c->count * (copies ? trib_dtype_size(c->dtype) : 1),
                           .dtype = copies ? TRIB_U8 : c->dtype,
                           .kind = c->kind});
}

/* Calls of changing size in a row, the first with as much as there is room for. */
static void series(struct world *w, struct arena *arena, int size, struct push_case c)
{
    const size_t counts[CALLS] = {c.count, c.count / 2, c.count - c.count / 3};
    open_world(w, arena, size, chunks_of(&c, size));
    for (int i = 0; i < CALLS; i++) {
        c.count = counts[i];
        one_call(w, &c);
        c.in_place = !c.in_place;
        c.root = (c.root + 1) % size;
    }
}

static void all_series(struct world *w, struct arena *arena, trib_dtype dtype, int size, bool quick)
{
    static const size_t counts[] = {1, 2, 7, 64, 1027, 40001};
    for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++)
        for (size_t i = 0; i < (op == TRIB_SUM && size <= 3 ? 6 : 5); i++) {
            const enum kernels_numbers numbers = (enum kernels_numbers)((i + (size_t)op) % 3);
            if (quick && (i + (size_t)op + (size_t)size) % 3 != 0)
                continue;
            series(w, arena, size,
                   (struct push_case){.dtype = dtype,
                                      .op = op,
                                      .count = counts[i],
                                      .in_place = i % 2 == 0,
                                      .numbers = numbers});
        }
}

/* Two shot takes enough chunks for all ranks, of many ranks fewer. */
static void reduction_series(struct world *w, struct arena *arena, enum tri_push_kind kind,
                             trib_dtype dtype, int size)
{
    static const size_t few[] = {1, 7, 64, 1027}, many[] = {1027, 2048, 40001};
    const bool shares = kind == TRI_PUSH_TWO_SHOT;
    for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++) {
        const size_t turn = (size_t)(op - TRIB_SUM);
        const size_t i = (turn + (size_t)dtype) % (!shares ? 4 : size <= 4 ? 3 : 2);
        series(w, arena, size,
               (struct push_case){.dtype = dtype,
                                  .op = op,
                                  .count = shares ? many[i] : few[i],
                                  .in_place = turn % 2 == 0,
                                  .numbers = (enum kernels_numbers)((turn + (size_t)size) % 3),
                                  .kind = kind});
    }
}

/* NaNs, too, are copied to the bit. */
static void copy_series(struct world *w, struct arena *arena, enum tri_push_kind kind, int size)
{
    static const size_t counts[] = {1, 2, 5, 64, 1027, 40001};
    static const trib_dtype dtypes[] = {TRIB_F32, TRIB_U8, TRIB_F16, TRIB_F64};
    for (size_t d = 0; d < 4; d++)
        for (size_t i = 0; i < (size <= 3 ? 6 : 5); i++)
            series(w, arena, size,
                   (struct push_case){dtypes[d], TRIB_SUM, counts[i], (d + i) % 2 == 0,
                                      KERNELS_WILD_NANS, kind, (int)i % size});
}

static void other_kinds(struct world *w, struct arena *arena, int size)
{
    const char *name = arena->place->kernels->name;
    for (enum tri_push_kind kind = TRI_PUSH_REDUCE_SCATTER; kind <= TRI_PUSH_ALLTOALL; kind++) {
        check_begin("%s push, %s of %d ranks", name, kinds[kind], size);
        if (tri_push_copies(kind))
            copy_series(w, arena, kind, size);
        for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64 && !tri_push_copies(kind); dtype++)
            reduction_series(w, arena, kind, dtype, size);
        check_end();
    }
}

/* Calls of all types and kinds in one communicator: a granule is wide, then it is two of floats. */
static void mixed_calls(struct world *w, struct arena *arena)
{
    check_begin("%s push of all types and kinds in turn", arena->place->kernels->name);
    open_world(w, arena, 3, 200);
    for (size_t i = 0; i < 120; i++) {
        const trib_dtype dtype = (trib_dtype)(TRIB_F16 + kernels_random() % 10);
        const enum tri_push_kind kind = (enum tri_push_kind)(kernels_random() % 6);
        const size_t least = kind == TRI_PUSH_TWO_SHOT ? 20 : 0; /* of any type two chunks */
        one_call(w, &(struct push_case){dtype, TRIB_SUM, least + kernels_random() % 180, i % 2,
                                        KERNELS_WILD_NANS, kind, (int)(kernels_random() % 3)});
    }
    check_end();
}

/* One rank of two, whose peer never comes: ends by the flag or by its patience, and so does what is
 * behind it. */
static void no_peer(struct world *w, struct arena *arena, uint32_t flag)
{
    const struct kernels_place *place = arena->place;
    struct tri_push_rank here[TRI_PUSH_RANKS];
    const struct push_case c = {
        .dtype = TRIB_F32, .op = TRIB_SUM, .count = 3000, .numbers = KERNELS_TAME};
    uint32_t found = 0, over = 0;
    check_begin("%s push without its peer, %s", place->kernels->name,
                flag != 0 ? "aborted" : "for 20 ms");
    open_world(w, arena, 2, 1000);
    place_buffers(w, &c);
    arena_upload(arena);
    if (flag != 0)
        place->upload(w->abort_flag, &flag, sizeof flag);
    struct tri_push job = job_of(w, &c, here);
    job.n = 1;
    job.patience_ns = flag != 0 ? 0 : 20000000;
    const double began = check_now_ms();
    for (int i = 0; i < 3; i++)
        CHECK_OK(place->kernels->push(&job, place->stream));
    place->download(&found, w->abort_flag, sizeof found);
    place->download(&over, &here[0].control->over, sizeof over);
    const double took = check_now_ms() - began;
    CHECK_MSG(check_left_out() || found == (flag != 0 ? flag : TRI_PUSH_LATE), "the flag is %u",
              (unsigned)found);
    CHECK_MSG(check_left_out() || over == found, "over is %u", (unsigned)over);
    CHECK_MSG(check_left_out() || flag != 0 || took >= 20, "it ended after %g ms", took);
    check_end();
}

void kernels_push(struct arena *arena, bool quick)
{
    struct world w = {.abort_flag = arena->place->alloc_pinned(64)};
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (int size = 2; size <= TRI_PUSH_RANKS; size++) {
            check_begin("%s push %s, %d ranks", arena->place->kernels->name, trib_dtype_name(dtype),
                        size);
            all_series(&w, arena, dtype, size, quick);
            check_end();
        }
    for (int size = 2; size <= TRI_PUSH_RANKS; size++)
        if (!quick || size % 3 == 2)
            other_kinds(&w, arena, size);
    mixed_calls(&w, arena);
    no_peer(&w, arena, TRI_PUSH_ABORTED);
    no_peer(&w, arena, 0);
    arena->place->free_pinned(w.abort_flag);
}
