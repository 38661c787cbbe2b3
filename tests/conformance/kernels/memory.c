/* Memory of which every byte is accounted for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/kernels/kernels.h"

void kernels_upload(const struct kernels_place *place, void *dst, const void *src, size_t bytes)
{
    (place->upload_late != NULL ? place->upload_late : place->upload)(dst, src, bytes);
}

bool arena_open(struct arena *arena, const struct kernels_place *place, size_t capacity)
{
    memset(arena, 0, sizeof *arena);
    arena->place = place;
    arena->capacity = capacity;
    arena->device = place->alloc(capacity);
    arena->image = malloc(capacity);
    arena->found = malloc(capacity);
    arena_reset(arena);
    return CHECK(arena->device != NULL && arena->image != NULL && arena->found != NULL);
}

void arena_close(struct arena *arena)
{
    arena->place->free(arena->device);
    free(arena->image);
    free(arena->found);
}

void arena_reset(struct arena *arena)
{
    arena->used = 0;
    arena->n_marks = 0;
    arena->n_open = 0;
    arena->n_blocks = 0;
}

void arena_poison(struct arena *arena, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        const uint64_t bits = kernels_random();
        memcpy(arena->image + at + i, &bits, bytes - i < sizeof bits ? bytes - i : sizeof bits);
    }
}

size_t arena_place(struct arena *arena, size_t bytes, size_t misalign)
{
    const size_t at = (arena->used + 255) / 256 * 256 + misalign;
    const size_t end = at + bytes + 64;
    if (!CHECK_MSG(end <= arena->capacity, "the arena of %zu bytes is too small", arena->capacity))
        abort();
    arena_poison(arena, arena->used, end - arena->used);
    arena->used = end;
    if (arena->n_blocks < ARENA_MARKS) {
        arena->blocks[arena->n_blocks].at = at;
        arena->blocks[arena->n_blocks].bytes = bytes;
        arena->blocks[arena->n_blocks].name = "";
        arena->n_blocks++;
    }
    return at;
}

void arena_name(struct arena *arena, size_t at, const char *name)
{
    for (size_t b = arena->n_blocks; b-- > 0;)
        if (arena->blocks[b].at == at) {
            arena->blocks[b].name = name;
            return;
        }
}

void arena_mark(struct arena *arena, size_t at, size_t count, trib_dtype dtype)
{
    if (!CHECK(arena->n_marks < ARENA_MARKS))
        abort();
    arena->marks[arena->n_marks].at = at;
    arena->marks[arena->n_marks].count = count;
    arena->marks[arena->n_marks].dtype = dtype;
    arena->n_marks++;
}

void arena_forget(struct arena *arena, size_t at, size_t bytes)
{
    if (!CHECK(arena->n_open < ARENA_MARKS))
        abort();
    arena->open[arena->n_open].at = at;
    arena->open[arena->n_open].bytes = bytes;
    arena->n_open++;
}

void arena_upload(struct arena *arena)
{
    if (check_left_out())
        return;
    kernels_upload(arena->place, arena->device, arena->image, arena->used);
}

static void same_nans(const struct arena *arena, unsigned char *bytes)
{
    for (size_t m = 0; m < arena->n_marks; m++) {
        const trib_dtype dtype = arena->marks[m].dtype;
        unsigned char *element = bytes + arena->marks[m].at;
        for (size_t i = 0; i < arena->marks[m].count; i++, element += trib_dtype_size(dtype))
            if (isnan(kernels_get(element, dtype)))
                kernels_put(element, dtype, NAN);
    }
}

static void same_open(const struct arena *arena, unsigned char *bytes)
{
    for (size_t i = 0; i < arena->n_open; i++)
        memset(bytes + arena->open[i].at, 0, arena->open[i].bytes);
}

void arena_download(struct arena *arena)
{
    if (check_left_out()) { /* as if all had been done */
        memcpy(arena->found, arena->image, arena->used);
        return;
    }
    memset(arena->found, 0xa5, arena->used);
    arena->place->download(arena->found, arena->device, arena->used);
}

/* The first byte that differs, and in which block it lies or behind which. */
static bool print_difference(const struct arena *arena, const unsigned char *found,
                             const char *what)
{
    size_t i = 0, b = 0, differ = 0;
    while (found[i] == arena->image[i])
        i++;
    for (size_t j = i; j < arena->used; j++)
        differ += found[j] != arena->image[j];
    while (b + 1 < arena->n_blocks && arena->blocks[b + 1].at <= i)
        b++;
    return CHECK_MSG(false,
                     "%s: %zu bytes differ; the first is %td of the %zu of block %zu (%s): %02x, "
                     "expected %02x",
                     what, differ, (ptrdiff_t)i - (ptrdiff_t)arena->blocks[b].at,
                     arena->blocks[b].bytes, b, arena->blocks[b].name, found[i], arena->image[i]);
}

bool arena_compare(struct arena *arena, unsigned char *found, const char *what)
{
    same_open(arena, found);
    same_open(arena, arena->image);
    if (memcmp(found, arena->image, arena->used) == 0)
        return true;
    same_nans(arena, found);
    same_nans(arena, arena->image);
    if (memcmp(found, arena->image, arena->used) == 0)
        return true;
    return print_difference(arena, found, what);
}

bool arena_check(struct arena *arena, const char *what)
{
    arena_download(arena);
    return arena_compare(arena, arena->found, what);
}
