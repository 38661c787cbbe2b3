/* The arithmetic of sparse kernels once more, naively, from the contracts in kernels/sparse.h; and
 * the things in arenas that it works on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

/* ------------------------------------------------------------------------------------- numbers */

double sparse_rounded(double x, trib_dtype dtype)
{
    return dtype == TRIB_F64 ? x : (double)(float)x;
}

double sparse_entry(double x, trib_dtype dtype)
{
    const double largest = ldexp(255, 120);
    return dtype == TRIB_BF16 && isfinite(x) && fabs(x) > largest ? copysign(largest, x) : x;
}

uint64_t sparse_key(const unsigned char *element, trib_dtype dtype)
{
    const size_t size = trib_dtype_size(dtype);
    uint64_t bits = 0;
    memcpy(&bits, element, size);
    return bits & (((uint64_t)1 << (8 * size - 1)) - 1);
}

bool sparse_is_finite(const unsigned char *element, trib_dtype dtype)
{
    return isfinite(kernels_get(element, dtype)) != 0;
}

uint32_t sparse_count_above(const unsigned char *data, size_t n, trib_dtype dtype, uint64_t above)
{
    const size_t size = trib_dtype_size(dtype);
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += sparse_key(data + i * size, dtype) > above;
    return count;
}

/* ------------------------------------------------------------------------------------- largest */

struct ranked {
    uint64_t key;
    uint32_t position;
};

/* One byte of the key, larger first, otherwise as it was. */
static void sort_by_byte(struct ranked *to, const struct ranked *from, size_t n, int shift)
{
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++)
        at[256 - (from[i].key >> shift & 255)]++;
    for (int d = 0; d < 256; d++)
        at[d + 1] += at[d];
    for (size_t i = 0; i < n; i++)
        to[at[255 - (from[i].key >> shift & 255)]++] = from[i];
}

static int by_position(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

uint32_t sparse_largest(const uint64_t *keys, size_t n, uint64_t above, uint32_t k,
                        uint32_t *positions)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        m += keys[i] > above;
    struct ranked *items = malloc((2 * m + 1) * sizeof *items);
    if (items == NULL)
        abort();
    m = 0;
    for (size_t i = 0; i < n; i++)
        if (keys[i] > above)
            items[m++] = (struct ranked){keys[i], (uint32_t)i};
    for (int shift = 0; shift < 64; shift += 16) {
        sort_by_byte(items + m, items, m, shift);
        sort_by_byte(items, items + m, m, shift + 8);
    }
    const uint32_t chosen = m < k ? (uint32_t)m : k;
    for (uint32_t i = 0; i < chosen; i++)
        positions[i] = items[i].position;
    qsort(positions, chosen, sizeof *positions, by_position);
    free(items);
    return chosen;
}

/* --------------------------------------------------------------------------------------- words */

size_t sparse_word(struct sparse_rig *rig, uint32_t value)
{
    const size_t at = arena_place(&rig->arena, sizeof value, 0);
    memcpy(rig->arena.image + at, &value, sizeof value);
    return at;
}

size_t sparse_header(struct sparse_rig *rig)
{
    const struct tri_header header = {
        .count = 5, .nonfinite = 77, .signature = 0x1234, .calls = UINT32_MAX};
    const size_t at = arena_place(&rig->arena, sizeof header, 0);
    memcpy(rig->arena.image + at, &header, sizeof header);
    return at;
}

enum { SIGNATURE = 0x7edcba98 };

struct tri_signing sparse_signing(size_t at, unsigned char *memory)
{
    return (struct tri_signing){.header = sparse_at(memory, at), .signature = SIGNATURE};
}

void sparse_expect_signed(struct sparse_rig *rig, size_t at, uint32_t nonfinite)
{
    struct tri_header header;
    if (at == SPARSE_NONE)
        return;
    memcpy(&header, rig->arena.image + at, sizeof header);
    header.signature = SIGNATURE;
    header.calls++;
    header.nonfinite = nonfinite;
    memcpy(rig->arena.image + at, &header, sizeof header);
}

uint32_t sparse_word_get(const unsigned char *bytes, size_t at)
{
    uint32_t value;
    memcpy(&value, bytes + at, sizeof value);
    return value;
}

void sparse_word_put(unsigned char *bytes, size_t at, uint32_t value)
{
    memcpy(bytes + at, &value, sizeof value);
}

void sparse_expect_overflow(struct sparse_rig *rig, size_t at, size_t values, trib_dtype dtype,
                            size_t n)
{
    for (size_t i = 0; i < n && at != SPARSE_NONE; i++)
        if (!isfinite(kernels_get(rig->arena.image + values + i * trib_dtype_size(dtype), dtype)))
            sparse_word_put(rig->arena.image, at, 1);
}

size_t sparse_number(struct sparse_rig *rig, trib_dtype dtype, double value)
{
    const size_t at = arena_place(&rig->arena, trib_dtype_size(dtype), 0);
    kernels_put(rig->arena.image + at, dtype, value);
    arena_mark(&rig->arena, at, 1, dtype);
    return at;
}

/* --------------------------------------------------------------------------------------- lists */

struct sparse_list sparse_list_place(struct sparse_rig *rig, uint32_t capacity, trib_dtype dtype,
                                     bool counted)
{
    struct sparse_list list = {
        .capacity = capacity, .dtype = dtype, .count = SPARSE_NONE, .starts = SPARSE_NONE};
    if (counted)
        list.count = sparse_word(rig, (uint32_t)kernels_random());
    list.index = arena_place(&rig->arena, capacity * sizeof(uint32_t), 0);
    list.value = arena_place(&rig->arena, capacity * trib_dtype_size(dtype), 0);
    arena_mark(&rig->arena, list.value, capacity, dtype);
    arena_name(&rig->arena, list.count, "count");
    arena_name(&rig->arena, list.index, "indices");
    arena_name(&rig->arena, list.value, "values");
    return list;
}

struct tri_entries sparse_entries(const struct sparse_list *list, unsigned char *memory)
{
    return (struct tri_entries){sparse_at(memory, list->count),
                                sparse_at(memory, list->index),
                                sparse_at(memory, list->value),
                                list->capacity,
                                list->dtype,
                                sparse_at(memory, list->starts)};
}

uint32_t sparse_list_count(const struct sparse_rig *rig, const struct sparse_list *list)
{
    return list->count == SPARSE_NONE ? list->capacity
                                      : sparse_word_get(rig->arena.image, list->count);
}

uint32_t sparse_list_below(const struct sparse_rig *rig, const struct sparse_list *list,
                           uint64_t bound)
{
    const uint32_t n = sparse_list_count(rig, list);
    uint32_t below = 0;
    for (uint32_t i = 0; i < n; i++)
        below += sparse_list_index(rig, list, i) < bound;
    return below;
}

void sparse_starts_put(struct sparse_rig *rig, const struct sparse_list *list, size_t range)
{
    for (size_t i = 0; i < tri_starts(range); i++)
        sparse_word_put(rig->arena.image, list->starts + 4 * i,
                        sparse_list_below(rig, list, TRI_STRETCH * (uint64_t)i));
}

void sparse_list_start(struct sparse_rig *rig, struct sparse_list *list, size_t range)
{
    list->starts = arena_place(&rig->arena, tri_starts(range) * sizeof(uint32_t), 0);
    arena_name(&rig->arena, list->starts, "starts");
    sparse_starts_put(rig, list, range);
}

uint32_t sparse_list_index(const struct sparse_rig *rig, const struct sparse_list *list, uint32_t i)
{
    return sparse_word_get(rig->arena.image, list->index + i * sizeof(uint32_t));
}

double sparse_list_value(const struct sparse_rig *rig, const struct sparse_list *list, uint32_t i)
{
    return kernels_get(rig->arena.image + list->value + i * trib_dtype_size(list->dtype),
                       list->dtype);
}

void sparse_list_put(struct sparse_rig *rig, const struct sparse_list *list, uint32_t i,
                     uint32_t index, double value)
{
    sparse_word_put(rig->arena.image, list->index + i * sizeof(uint32_t), index);
    kernels_put(rig->arena.image + list->value + i * trib_dtype_size(list->dtype), list->dtype,
                value);
}

void sparse_list_end(struct sparse_rig *rig, const struct sparse_list *list, uint32_t n)
{
    const size_t size = trib_dtype_size(list->dtype);
    if (list->count != SPARSE_NONE)
        sparse_word_put(rig->arena.image, list->count, n);
    if (!CHECK_MSG(n <= list->capacity, "%u entries, capacity %u", n, list->capacity))
        abort();
    arena_forget(&rig->arena, list->index + n * sizeof(uint32_t),
                 (list->capacity - n) * sizeof(uint32_t));
    arena_forget(&rig->arena, list->value + n * size, (list->capacity - n) * size);
}

void sparse_list_fill(struct sparse_rig *rig, const struct sparse_list *list, size_t first,
                      size_t range, uint32_t n, int kind)
{
    unsigned char *values = rig->arena.image + list->value;
    uint32_t put = 0;
    for (size_t i = 0; i < range && put < n; i++) /* each with the chance that is still needed */
        if (kernels_random() % (range - i) < n - put)
            sparse_word_put(rig->arena.image, list->index + 4 * (size_t)put++,
                            (uint32_t)(first + i));
    sparse_fill(values, list->dtype, put, kind, put / 3);
    if (list->count != SPARSE_NONE)
        sparse_word_put(rig->arena.image, list->count, put);
}

void sparse_sums(const struct sparse_rig *rig, const struct sparse_list *lists, int32_t n,
                 size_t first, size_t count, double *sums, bool *present)
{
    for (size_t i = 0; i < count; i++)
        sums[i] = 0;
    if (present != NULL)
        memset(present, 0, count * sizeof *present);
    for (int32_t l = 0; l < n; l++) {
        const trib_dtype type = lists[l].dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32;
        const uint32_t entries = sparse_list_count(rig, &lists[l]);
        for (uint32_t e = 0; e < entries; e++) {
            const size_t at = sparse_list_index(rig, &lists[l], e) - first;
            sums[at] = sparse_rounded(sums[at] + sparse_list_value(rig, &lists[l], e), type);
            if (present != NULL)
                present[at] = true;
        }
    }
}

/* --------------------------------------------------------------------------------------- state */

/* The gradient becomes the new one of two velocities; the old one holds anything. */
static void place_velocity(struct sparse_rig *rig, struct sparse_state *state)
{
    const uint32_t current = kernels_random() & 1;
    state->velocity_current = sparse_word(rig, current);
    state->velocity[current ^ 1] = state->gradient;
    state->velocity[current] =
        arena_place(&rig->arena, state->count * trib_dtype_size(state->dtype), 0);
    arena_name(&rig->arena, state->velocity_current, "current velocity");
    arena_name(&rig->arena, state->velocity[current], "old velocity");
}

struct sparse_state sparse_state_place(struct sparse_rig *rig, size_t count, trib_dtype dtype,
                                       trib_dtype gradient_dtype, unsigned shift)
{
    const size_t size = trib_dtype_size(dtype);
    struct sparse_state state = {.buffer = {SPARSE_NONE, SPARSE_NONE},
                                 .current = SPARSE_NONE,
                                 .gradient = SPARSE_NONE,
                                 .velocity = {SPARSE_NONE, SPARSE_NONE},
                                 .velocity_current = SPARSE_NONE,
                                 .dtype = dtype,
                                 .gradient_dtype = gradient_dtype,
                                 .decay = 1,
                                 .count = count};
    const int buffers = gradient_dtype != 0 ? 2 : 1;
    for (int i = 0; i < buffers; i++) {
        state.buffer[i] = arena_place(&rig->arena, count * size, shift % 4 * size);
        arena_mark(&rig->arena, state.buffer[i], count, dtype);
        arena_name(&rig->arena, state.buffer[i], i == 0 ? "buffer 0" : "buffer 1");
    }
    if (gradient_dtype != 0) {
        const size_t element = trib_dtype_size(gradient_dtype);
        state.current = sparse_word(rig, kernels_random() & 1);
        state.gradient = arena_place(&rig->arena, count * element, shift / 4 % 4 * element);
        arena_name(&rig->arena, state.current, "current");
        arena_name(&rig->arena, state.gradient, "gradient");
        sparse_fill(rig->arena.image + state.buffer[0], dtype, count, SPARSE_ZERO, 0);
        sparse_fill(rig->arena.image + state.buffer[1], dtype, count, SPARSE_ZERO, 0);
    }
    if (gradient_dtype == dtype && rig->calls % 3 == 1)
        place_velocity(rig, &state);
    return state;
}

void sparse_state_make_velocity(struct sparse_rig *rig, struct sparse_state *state, unsigned shift)
{
    const size_t size = trib_dtype_size(state->dtype);
    if (state->gradient == SPARSE_NONE || state->velocity_current != SPARSE_NONE ||
        rig->calls % 2 != 0)
        return;
    state->makes_velocity = true;
    state->momentum = rig->calls % 4 == 0 ? 0.9 : 0.5;
    state->velocity_current = sparse_word(rig, kernels_random() & 1);
    arena_name(&rig->arena, state->velocity_current, "current velocity");
    for (int i = 0; i < 2; i++) {
        state->velocity[i] = arena_place(&rig->arena, state->count * size, (shift + 1) % 4 * size);
        arena_mark(&rig->arena, state->velocity[i], state->count, state->dtype);
        arena_name(&rig->arena, state->velocity[i], i == 0 ? "velocity 0" : "velocity 1");
    }
}

struct tri_accumulator sparse_accumulator(const struct sparse_state *state, unsigned char *memory)
{
    struct tri_accumulator acc = {
        .buffer = {sparse_at(memory, state->buffer[0]), sparse_at(memory, state->buffer[1])},
        .current = sparse_at(memory, state->current),
        .gradient = state->velocity_current == SPARSE_NONE || state->makes_velocity
                        ? sparse_at(memory, state->gradient)
                        : NULL,
        .velocity = {sparse_at(memory, state->velocity[0]), sparse_at(memory, state->velocity[1])},
        .velocity_current = sparse_at(memory, state->velocity_current),
        .gradient_dtype = state->gradient_dtype,
        .dtype = state->dtype,
        .makes_velocity = state->makes_velocity,
        .momentum = state->momentum,
        .decay = state->decay,
        .count = state->count,
    };
    return acc;
}

size_t sparse_acc_at(const struct sparse_rig *rig, const struct sparse_state *state)
{
    return state->current == SPARSE_NONE
               ? state->buffer[0]
               : state->buffer[sparse_word_get(rig->arena.image, state->current) ^ 1];
}

size_t sparse_residual_at(const struct sparse_rig *rig, const struct sparse_state *state)
{
    return state->current == SPARSE_NONE
               ? state->buffer[0]
               : state->buffer[sparse_word_get(rig->arena.image, state->current)];
}

void sparse_state_fill(struct sparse_rig *rig, const struct sparse_state *state, int kind,
                       uint32_t k)
{
    unsigned char *image = rig->arena.image, *residual = image + sparse_residual_at(rig, state);
    if (state->gradient == SPARSE_NONE) {
        sparse_fill(residual, state->dtype, state->count, kind, k);
        return;
    }
    arena_poison(&rig->arena, sparse_acc_at(rig, state),
                 state->count * trib_dtype_size(state->dtype));
    sparse_fill(image + state->gradient, state->gradient_dtype, state->count, kind, k);
    if (state->makes_velocity) {
        const uint32_t current = sparse_word_get(image, state->velocity_current);
        arena_poison(&rig->arena, state->velocity[current ^ 1],
                     state->count * trib_dtype_size(state->dtype));
        sparse_fill(image + state->velocity[current], state->dtype, state->count,
                    kind < SPARSE_TAME_KINDS ? SPARSE_LAPLACE : SPARSE_ZERO, k);
    }
    /* What is special stays special: only zeros, or a power of two of it, are added to it. */
    if (kind < SPARSE_TAME_KINDS)
        sparse_fill(residual, state->dtype, state->count, SPARSE_GAUSS, k);
    else
        sparse_fill(residual, state->dtype, state->count, SPARSE_ZERO, k);
}

/* Element i of the new velocity. */
static double make_velocity(struct sparse_rig *rig, const struct sparse_state *state, size_t i,
                            double gradient)
{
    const trib_dtype dtype = state->dtype;
    const size_t at = i * trib_dtype_size(dtype);
    unsigned char *image = rig->arena.image;
    const uint32_t current = sparse_word_get(image, state->velocity_current);
    const double momentum = sparse_rounded(state->momentum, dtype);
    const double old = kernels_get(image + state->velocity[current] + at, dtype);
    unsigned char *made = image + state->velocity[current ^ 1] + at;
    kernels_put(made, dtype, gradient + sparse_rounded(momentum * old, dtype));
    return kernels_get(made, dtype);
}

void sparse_make_acc(struct sparse_rig *rig, const struct sparse_state *state, size_t first,
                     size_t count)
{
    const size_t size = trib_dtype_size(state->dtype);
    const unsigned char *residual = rig->arena.image + sparse_residual_at(rig, state);
    unsigned char *acc = rig->arena.image + sparse_acc_at(rig, state);
    const double decay = sparse_rounded(state->decay, state->dtype);
    for (size_t i = first; i < first + count; i++) {
        const double kept =
            sparse_rounded(decay * kernels_get(residual + i * size, state->dtype), state->dtype);
        const double gradient = kernels_get(rig->arena.image + state->gradient +
                                                i * trib_dtype_size(state->gradient_dtype),
                                            state->gradient_dtype);
        const double added =
            state->makes_velocity ? make_velocity(rig, state, i, gradient) : gradient;
        kernels_put(acc + i * size, state->dtype, added + kept);
    }
}
