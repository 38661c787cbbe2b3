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
    trib_dtype dtype;
    trib_op op;
    size_t count;
    bool in_place;
    enum kernels_numbers numbers;
};

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

/* Buffers for every rank, aligned to the element at least: those of ranks 0 and 3 to 16 bytes. */
static void place_buffers(struct world *w, const struct push_case *c)
{
    const size_t size = trib_dtype_size(c->dtype), bytes = c->count * size;
    for (int r = 0; r < w->size; r++) {
        const size_t shift = r % 3 == 0 ? 0 : kernels_random() % 16 / size * size;
        w->send[r] = arena_place(w->arena, bytes, shift);
        arena_name(w->arena, w->send[r], "send");
        w->recv[r] = c->in_place ? w->send[r] : arena_place(w->arena, bytes, r % 2 * size);
        kernels_fill(w->arena->image + w->send[r], c->dtype, c->count, c->numbers);
    }
}

/* What push must not change, or must: all ones in whole granules and in halves of them, both zeros,
 * infinities; by the bits of 16-bit pieces, so that every type gets some. */
static void place_specials(const struct world *w, const struct push_case *c)
{
    static const uint16_t bits[] = {0xffff, 0xffff, 0, 0x8000, 0x7c00, 0x7f80, 0xffff, 0x7fff};
    const size_t bytes = c->count * trib_dtype_size(c->dtype);
    for (int r = 0; r < w->size && c->numbers == KERNELS_WILD_NANS; r++)
        for (size_t at = 0; at + 2 <= bytes && at < 512; at += 2) {
            const uint16_t *piece = &bits[(at / 4 * 3 + at / 2 % 2 + (size_t)r * (at / 64)) % 8];
            memcpy(w->arena->image + w->send[r] + at, piece, sizeof *piece);
        }
}

static struct tri_push job_of(const struct world *w, const struct push_case *c,
                              struct tri_push_rank *here)
{
    struct tri_push job = {.here = here,
                           .n = (size_t)w->size,
                           .size = w->size,
                           .capacity = w->capacity,
                           .count = c->count,
                           .dtype = c->dtype,
                           .op = c->op,
                           .abort_flag = w->abort_flag};
    for (int r = 0; r < w->size; r++) {
        job.scratch[r] = w->arena->device + w->scratch[r];
        here[r] = (struct tri_push_rank){.send = w->arena->device + w->send[r],
                                         .recv = w->arena->device + w->recv[r],
                                         .control = control_of(w, w->arena->device, r),
                                         .rank = r};
    }
    return job;
}

/* The image after the call. */
static void expect(const struct world *w, const struct push_case *c)
{
    const size_t size = trib_dtype_size(c->dtype);
    for (size_t i = 0; i < c->count; i++) {
        const void *elements[TRI_PUSH_RANKS];
        uint64_t result = 0;
        for (int r = 0; r < w->size; r++)
            elements[r] = w->arena->image + w->send[r] + i * size;
        kernels_fold(&result, elements, (size_t)w->size, c->dtype, c->op);
        for (int r = 0; r < w->size; r++)
            memcpy(w->arena->image + w->recv[r] + i * size, &result, size);
    }
    for (int r = 0; r < w->size; r++) {
        control_of(w, w->arena->image, r)->turn += c->count != 0 ? TRI_PUSH_EPOCH : 0;
        if (c->dtype <= TRIB_F64) {
            arena_mark(w->arena, w->send[r], c->count, c->dtype);
            arena_mark(w->arena, w->recv[r], c->count, c->dtype);
        }
    }
}

/* Whatever a NaN looks like, it looks so on all ranks. */
static void compare_ranks(const struct world *w, const struct push_case *c)
{
    const size_t bytes = c->count * trib_dtype_size(c->dtype);
    for (int r = 1; r < w->size && !check_left_out(); r++)
        CHECK_MSG(memcmp(w->arena->found + w->recv[0], w->arena->found + w->recv[r], bytes) == 0,
                  "ranks 0 and %d of %d have other bits", r, w->size);
}

static void one_call(struct world *w, const struct push_case *c)
{
    struct tri_push_rank here[TRI_PUSH_RANKS];
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

/* Calls of changing size in a row, the first with as much as there is room for. */
static void series(struct world *w, struct arena *arena, int size, struct push_case c)
{
    const size_t counts[CALLS] = {c.count, c.count / 2, c.count - c.count / 3};
    open_world(w, arena, size, tri_push_chunks(c.count, c.dtype));
    for (int i = 0; i < CALLS; i++) {
        c.count = counts[i];
        one_call(w, &c);
        c.in_place = !c.in_place;
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
            series(w, arena, size, (struct push_case){dtype, op, counts[i], i % 2 == 0, numbers});
        }
}

/* Calls of all types in one communicator: a granule is wide, then it is two of floats. */
static void mixed_types(struct world *w, struct arena *arena)
{
    check_begin("%s push of all types in turn", arena->place->kernels->name);
    open_world(w, arena, 3, 200);
    for (size_t i = 0; i < 40; i++) {
        const trib_dtype dtype = (trib_dtype)(TRIB_F16 + kernels_random() % 10);
        one_call(w, &(struct push_case){dtype, TRIB_SUM, kernels_random() % 200, i % 2,
                                        KERNELS_WILD_NANS});
    }
    check_end();
}

/* One rank of two, whose peer never comes: ends by the flag or by its patience, and so does what is
 * behind it. */
static void no_peer(struct world *w, struct arena *arena, uint32_t flag)
{
    const struct kernels_place *place = arena->place;
    struct tri_push_rank here[TRI_PUSH_RANKS];
    const struct push_case c = {TRIB_F32, TRIB_SUM, 3000, false, KERNELS_TAME};
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
    mixed_types(&w, arena);
    no_peer(&w, arena, TRI_PUSH_ABORTED);
    no_peer(&w, arena, 0);
    arena->place->free_pinned(w.abort_flag);
}
