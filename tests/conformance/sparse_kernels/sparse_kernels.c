/* The conformance suite of sparse kernels: how a call is made and compared. */
#include "tests/conformance/sparse_kernels/sparse_kernels.h"

#include <stdlib.h>
#include <string.h>

enum { CANARIES = 256 };

/* What scratch memory is full of. */
enum pattern { RANDOM_BYTES, ZEROS, ONES };

/* ---------------------------------------------------------------------------------------- rig */

static unsigned char *host_alloc(size_t bytes)
{
    return aligned_alloc(256, (bytes + 255) / 256 * 256);
}

bool sparse_rig_open(struct sparse_rig *rig, const struct kernels_place *place, size_t capacity)
{
    memset(rig, 0, sizeof *rig);
    rig->quick = getenv("TRIB_TEST_QUICK") != NULL;
    rig->inputs = host_alloc(capacity);
    rig->mirror = place->twin != NULL ? host_alloc(capacity) : NULL;
    rig->second = place->other != NULL ? place->alloc(capacity) : NULL;
    const bool opened = arena_open(&rig->arena, place, capacity);
    return CHECK(opened && rig->inputs != NULL && (place->twin == NULL || rig->mirror != NULL) &&
                 (place->other == NULL || rig->second != NULL));
}

void sparse_rig_close(struct sparse_rig *rig)
{
    const struct kernels_place *place = rig->arena.place;
    for (int which = 0; which < 2; which++)
        if (rig->scratch[which] != NULL)
            place->free(rig->scratch[which]);
    if (rig->second != NULL)
        place->free(rig->second);
    free(rig->scratch[2]);
    free(rig->inputs);
    free(rig->mirror);
    for (int pattern = RANDOM_BYTES; pattern <= ONES; pattern++)
        free(rig->dirt[pattern]);
    arena_close(&rig->arena);
}

bool sparse_leaves_out(struct sparse_rig *rig, unsigned one_in)
{
    return rig->quick && rig->cases++ % one_in != 0;
}

void *sparse_at(unsigned char *memory, size_t offset)
{
    return offset == SPARSE_NONE ? NULL : memory + offset;
}

/* ------------------------------------------------------------------------------------ scratch */

/* So many bytes of each pattern. */
static void make_dirt(struct sparse_rig *rig, size_t bytes)
{
    if (rig->dirt_bytes >= bytes)
        return;
    rig->dirt_bytes = bytes * 2;
    for (int pattern = RANDOM_BYTES; pattern <= ONES; pattern++) {
        free(rig->dirt[pattern]);
        rig->dirt[pattern] = malloc(rig->dirt_bytes);
        if (rig->dirt[pattern] == NULL)
            abort();
        memset(rig->dirt[pattern], pattern == ZEROS ? 0 : 0xff, rig->dirt_bytes);
    }
    for (size_t i = 0; i + 8 <= rig->dirt_bytes; i += 8) {
        const uint64_t bits = kernels_random();
        memcpy(rig->dirt[RANDOM_BYTES] + i, &bits, 8);
    }
}

static size_t scratch_size(const struct sparse_call *call, const struct tri_sparse_kernels *kernels)
{
    return kernels->scratch_bytes(call->count, call->k, call->entries, call->dtype);
}

/* Scratch memory `which`, canaries behind it. */
static void *scratch_fill(struct sparse_rig *rig, size_t bytes, int which, enum pattern pattern)
{
    const struct kernels_place *place = rig->arena.place;
    make_dirt(rig, bytes + CANARIES);
    if (rig->scratch_bytes[which] < bytes + CANARIES) {
        if (which == 2)
            free(rig->scratch[which]);
        else
            place->free(rig->scratch[which]);
        rig->scratch_bytes[which] = bytes + CANARIES;
        rig->scratch[which] =
            which == 2 ? host_alloc(bytes + CANARIES) : place->alloc(bytes + CANARIES);
        if (!CHECK_MSG(rig->scratch[which] != NULL, "%zu bytes of scratch memory", bytes))
            abort();
    }
    unsigned char canaries[CANARIES];
    memset(canaries, 0xc7, CANARIES);
    if (which == 2) {
        memcpy(rig->scratch[which], rig->dirt[pattern], bytes);
        memcpy(rig->scratch[which] + bytes, canaries, CANARIES);
    } else {
        place->upload(rig->scratch[which], rig->dirt[pattern], bytes);
        place->upload(rig->scratch[which] + bytes, canaries, CANARIES);
    }
    return rig->scratch[which];
}

void *sparse_scratch(struct sparse_rig *rig, size_t bytes)
{
    return scratch_fill(rig, bytes, 0, RANDOM_BYTES);
}

/* Exactly as much as the table asks for. */
static void *scratch_ready(struct sparse_rig *rig, const struct sparse_call *call, int which,
                           enum pattern pattern)
{
    const struct kernels_place *place = rig->arena.place;
    const size_t bytes = scratch_size(call, which == 2 ? place->twin : place->kernels->sparse);
    return scratch_fill(rig, bytes, which, pattern);
}

static void scratch_check(struct sparse_rig *rig, const struct sparse_call *call, int which)
{
    const struct kernels_place *place = rig->arena.place;
    const size_t bytes = scratch_size(call, which == 2 ? place->twin : place->kernels->sparse);
    unsigned char canaries[CANARIES];
    if (which == 2)
        memcpy(canaries, rig->scratch[2] + bytes, CANARIES);
    else
        place->download(canaries, rig->scratch[which] + bytes, CANARIES);
    for (size_t i = 0; i < CANARIES; i++)
        if (!CHECK_MSG(canaries[i] == 0xc7, "%s wrote %zu bytes beyond its scratch memory",
                       call->what, i))
            break;
}

/* --------------------------------------------------------------------------------------- runs */

static void first_run(struct sparse_rig *rig, const struct sparse_call *call)
{
    struct arena *arena = &rig->arena;
    const struct kernels_place *place = arena->place;
    const struct sparse_target target = {place->kernels->sparse, arena->device,
                                         scratch_ready(rig, call, 0, RANDOM_BYTES), place->stream};
    kernels_upload(place, arena->device, rig->inputs, arena->used);
    CHECK_OK(call->queue(&target, call->argument));
    arena_download(arena);
    if (call->adopt != NULL)
        call->adopt(rig, call->argument);
    (void)arena_compare(arena, arena->found, call->what);
    scratch_check(rig, call, 0);
}

struct captured {
    const struct sparse_call *call;
    const struct sparse_target *target;
};

static void queue_captured(void *argument)
{
    const struct captured *captured = argument;
    CHECK_OK(captured->call->queue(captured->target, captured->call->argument));
}

/* Out of a graph where there are graphs: captured while the memory holds other things. */
static void second_run(struct sparse_rig *rig, const struct sparse_call *call)
{
    struct arena *arena = &rig->arena;
    const struct kernels_place *place = arena->place;
    const enum pattern pattern = rig->calls % 2 == 0 ? ZEROS : ONES;
    const struct sparse_target target = {place->kernels->sparse, arena->device,
                                         scratch_ready(rig, call, 0, pattern), place->stream};
    struct captured captured = {call, &target};
    void *graph = place->capture != NULL ? place->capture(queue_captured, &captured) : NULL;
    for (int replay = 0; replay < (graph != NULL ? 2 : 1); replay++) {
        place->upload(arena->device, rig->inputs, arena->used);
        if (graph != NULL)
            place->replay(graph);
        else
            CHECK_OK(call->queue(&target, call->argument));
        arena_download(arena);
        (void)arena_compare(arena, arena->found, call->what);
    }
    if (graph != NULL)
        place->discard(graph);
    scratch_check(rig, call, 0);
}

/* On two streams at once, each with its own memory. */
static void run_beside(struct sparse_rig *rig, const struct sparse_call *call)
{
    struct arena *arena = &rig->arena;
    const struct kernels_place *place = arena->place;
    const struct sparse_target targets[2] = {
        {place->kernels->sparse, arena->device, scratch_ready(rig, call, 0, ONES), place->stream},
        {place->kernels->sparse, rig->second, scratch_ready(rig, call, 1, ZEROS), place->other}};
    place->upload(arena->device, rig->inputs, arena->used);
    place->upload(rig->second, rig->inputs, arena->used);
    CHECK_OK(call->queue(&targets[0], call->argument));
    CHECK_OK(call->queue(&targets[1], call->argument));
    arena_download(arena);
    (void)arena_compare(arena, arena->found, call->what);
    place->download(arena->found, rig->second, arena->used);
    (void)arena_compare(arena, arena->found, call->what);
    scratch_check(rig, call, 1);
}

static void run_twin(struct sparse_rig *rig, const struct sparse_call *call)
{
    const struct sparse_target target = {rig->arena.place->twin, rig->mirror,
                                         scratch_ready(rig, call, 2, RANDOM_BYTES), NULL};
    memcpy(rig->mirror, rig->inputs, rig->arena.used);
    CHECK_OK(call->queue(&target, call->argument));
    (void)arena_compare(&rig->arena, rig->mirror, call->what);
    scratch_check(rig, call, 2);
}

void sparse_run(struct sparse_rig *rig, const struct sparse_call *call)
{
    rig->arena.n_open = 0; /* what a call before left open counts now */
    memcpy(rig->inputs, rig->arena.image, rig->arena.used);
    call->expect(rig, call->argument);
    rig->calls++;
    if (check_left_out())
        return;
    first_run(rig, call);
    if (!rig->quick || rig->calls % 3 == 0)
        second_run(rig, call);
    if (rig->second != NULL && (!rig->quick || rig->calls % 8 == 0))
        run_beside(rig, call);
    if (rig->mirror != NULL)
        run_twin(rig, call);
}

static void run_series(struct sparse_rig *rig, const struct sparse_call *call,
                       struct captured *captured, void *graph)
{
    struct arena *arena = &rig->arena;
    arena->n_open = 0;
    memcpy(rig->inputs, arena->image, arena->used);
    call->expect(rig, call->argument);
    if (check_left_out())
        return;
    arena->place->upload(arena->device, rig->inputs, arena->used);
    if (graph != NULL)
        arena->place->replay(graph);
    else
        queue_captured(captured);
    arena_download(arena);
    if (call->adopt != NULL)
        call->adopt(rig, call->argument);
    (void)arena_compare(arena, arena->found, call->what);
}

void sparse_run_series(struct sparse_rig *rig, const struct sparse_call *call,
                       void (*refill)(struct sparse_rig *rig, const void *argument, int i), int n)
{
    const struct kernels_place *place = rig->arena.place;
    const struct sparse_target target = {place->kernels->sparse, rig->arena.device,
                                         scratch_ready(rig, call, 0, RANDOM_BYTES), place->stream};
    struct captured captured = {call, &target};
    const bool captures = place->capture != NULL && !check_left_out();
    void *graph = captures ? place->capture(queue_captured, &captured) : NULL;
    for (int i = 0; i < n; i++) {
        refill(rig, call->argument, i);
        run_series(rig, call, &captured, graph);
    }
    if (graph != NULL)
        place->discard(graph);
    scratch_check(rig, call, 0);
}

/* -------------------------------------------------------------------------------------- suite */

enum { RIG_BYTES = 64 << 20, PINNED_BYTES = 1 << 20 };

/* A place with pinned memory only. */
static struct kernels_place pinned_place(const struct kernels_place *place)
{
    struct kernels_place pinned = *place;
    pinned.alloc = place->alloc_pinned;
    pinned.free = place->free_pinned;
    return pinned;
}

void sparse_kernels_suite(const struct kernels_place *place)
{
    const struct kernels_place pinned = pinned_place(place);
    struct sparse_rig rig;
    if (check_part("sparse") == CHECK_PART_LEFT_OUT)
        return;
    if (place->kernels->sparse == NULL) {
        check_skip("the %s table has no sparse kernels", place->kernels->name);
        return;
    }
    if (sparse_rig_open(&rig, place, RIG_BYTES)) {
        sparse_select_suite(&rig);
        sparse_feedback_suite(&rig);
        sparse_threshold_suite(&rig);
        sparse_cut_suite(&rig);
        sparse_places_suite(&rig);
        sparse_merge_suite(&rig);
        sparse_result_suite(&rig);
        sparse_end_suite(&rig);
        sparse_chunks_suite(&rig);
        sparse_corrupt_suite(&rig);
    }
    sparse_rig_close(&rig);
    if (sparse_rig_open(&rig, &pinned, PINNED_BYTES))
        sparse_pinned_suite(&rig);
    sparse_rig_close(&rig);
    if (getenv("TRIB_TEST_QUICK") == NULL)
        sparse_long_suite(place);
}
