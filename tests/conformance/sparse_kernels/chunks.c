/* chunk_select, chunk_unpack, chunk_merge. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

/* tri_chunks by offsets. */
struct slots {
    size_t index, value;
    uint32_t chunk, k;
    trib_dtype dtype;
};

static size_t chunks_of(size_t count, uint32_t chunk)
{
    return (count + chunk - 1) / chunk;
}

static struct slots place_slots(struct sparse_rig *rig, size_t count, uint32_t chunk, uint32_t k,
                                trib_dtype dtype)
{
    struct slots slots = {0, 0, chunk, k, dtype};
    const size_t n = chunks_of(count, chunk) * k;
    slots.index = arena_place(&rig->arena, n * sizeof(uint16_t), 0);
    slots.value = arena_place(&rig->arena, n * trib_dtype_size(dtype), 0);
    arena_mark(&rig->arena, slots.value, n, dtype);
    return slots;
}

static struct tri_chunks tri_slots(const struct slots *slots, unsigned char *memory)
{
    return (struct tri_chunks){sparse_at(memory, slots->index), sparse_at(memory, slots->value),
                               slots->dtype, slots->chunk, slots->k};
}

static uint16_t slot_index(const struct sparse_rig *rig, const struct slots *slots, size_t i)
{
    uint16_t index;
    memcpy(&index, rig->arena.image + slots->index + i * sizeof index, sizeof index);
    return index;
}

static double slot_value(const struct sparse_rig *rig, const struct slots *slots, size_t i)
{
    return kernels_get(rig->arena.image + slots->value + i * trib_dtype_size(slots->dtype),
                       slots->dtype);
}

static void put_slot(struct sparse_rig *rig, const struct slots *slots, size_t i, uint32_t index,
                     double value)
{
    const uint16_t small = (uint16_t)index;
    memcpy(rig->arena.image + slots->index + i * sizeof small, &small, sizeof small);
    kernels_put(rig->arena.image + slots->value + i * trib_dtype_size(slots->dtype), slots->dtype,
                sparse_entry(value, slots->dtype));
}

/* --------------------------------------------------------------------------------------- select */

struct choosing {
    struct sparse_state state;
    struct slots out;
    bool accumulate, clear;
    size_t header;
};

static trib_status queue_choosing(const struct sparse_target *target, const void *argument)
{
    const struct choosing *c = argument;
    const struct tri_accumulator acc = sparse_accumulator(&c->state, target->memory);
    const struct tri_chunks out = tri_slots(&c->out, target->memory);
    return target->kernels->chunk_select(&acc, c->accumulate, c->clear, &out,
                                         sparse_signing(c->header, target->memory), target->scratch,
                                         target->stream);
}

static void expect_chunk(struct sparse_rig *rig, const struct choosing *c, size_t chunk)
{
    const trib_dtype dtype = c->state.dtype;
    const size_t size = trib_dtype_size(dtype), first = chunk * c->out.chunk;
    const size_t left = c->state.count - first, n = left < c->out.chunk ? left : c->out.chunk;
    unsigned char *acc = rig->arena.image + sparse_acc_at(rig, &c->state) + first * size;
    uint64_t *keys = malloc(n * sizeof *keys);
    uint32_t *positions = malloc((n + 1) * sizeof *positions);
    if (keys == NULL || positions == NULL)
        abort();
    for (size_t i = 0; i < n; i++)
        keys[i] = sparse_key(acc + i * size, dtype);
    const uint32_t chosen = sparse_largest(keys, n, 0, c->out.k, positions);
    for (uint32_t i = 0; i < c->out.k; i++) {
        const size_t slot = chunk * c->out.k + i;
        if (i >= chosen) {
            put_slot(rig, &c->out, slot, 0, 0);
            continue;
        }
        unsigned char *element = acc + positions[i] * size;
        const double value = kernels_get(element, dtype);
        put_slot(rig, &c->out, slot, positions[i], value);
        if (c->clear)
            kernels_put(element, dtype, value - slot_value(rig, &c->out, slot));
    }
    free(keys);
    free(positions);
}

static void expect_choosing(struct sparse_rig *rig, const void *argument)
{
    const struct choosing *c = argument;
    const size_t size = trib_dtype_size(c->state.dtype);
    uint32_t nonfinite = 0;
    if (c->accumulate)
        sparse_make_acc(rig, &c->state, 0, c->state.count);
    const unsigned char *acc = rig->arena.image + sparse_acc_at(rig, &c->state);
    for (size_t i = 0; i < c->state.count; i++)
        nonfinite += !sparse_is_finite(acc + i * size, c->state.dtype);
    sparse_expect_signed(rig, c->header, nonfinite);
    for (size_t chunk = 0; chunk < chunks_of(c->state.count, c->out.chunk); chunk++)
        expect_chunk(rig, c, chunk);
}

static const struct mode {
    const char *name;
    trib_dtype dtype, gradient, wire;
    bool accumulate, clear;
} modes[] = {
    {"in place", TRIB_F32, 0, TRIB_F32, false, false},
    {"clearing", TRIB_F32, TRIB_F32, TRIB_F32, true, true},
    {"bf16 gradient and wire", TRIB_F32, TRIB_BF16, TRIB_BF16, true, true},
    {"f64 clearing", TRIB_F64, TRIB_F64, TRIB_F64, true, true},
    {"f16 gradient", TRIB_F32, TRIB_F16, TRIB_F32, true, true},
    {"f64 in place", TRIB_F64, 0, TRIB_F64, false, false},
    {"accumulating", TRIB_F32, TRIB_F32, TRIB_BF16, true, false},
    {"in place, bf16 wire", TRIB_F32, 0, TRIB_BF16, false, false},
};
enum { MODES = sizeof modes / sizeof modes[0] };

static void choose_case(struct sparse_rig *rig, const struct mode *mode, size_t n, uint32_t chunk,
                        uint32_t k, int kind)
{
    if (sparse_leaves_out(rig, 3))
        return;
    struct choosing c = {.accumulate = mode->accumulate, .clear = mode->clear};
    check_begin("%s chunk_select %u of each %u of %zu, %s, %s", rig->arena.place->kernels->name, k,
                chunk, n, sparse_kind_name(kind), mode->name);
    arena_reset(&rig->arena);
    c.state = sparse_state_place(rig, n, mode->dtype, mode->gradient, rig->calls * 3);
    c.state.decay = rig->calls % 2 == 0 && mode->gradient != 0 ? 0.999 : 1;
    c.out = place_slots(rig, n, chunk, k, mode->wire);
    c.header = rig->calls % 4 == 0 ? SPARSE_NONE : sparse_header(rig);
    sparse_state_fill(rig, &c.state, kind, k);
    const size_t slots = chunks_of(n, chunk) * k;
    const struct sparse_call call = {"chunk_select", queue_choosing,  expect_choosing, NULL, &c, n,
                                     slots,          (uint32_t)slots, mode->dtype};
    sparse_run(rig, &call);
    check_end();
}

/* More chunks with a gradient than cuda gives a block each, of the sizes that its warps hold. */
static void many_chunks(struct sparse_rig *rig)
{
    enum { MANY = 600 };
    static const int kinds[] = {SPARSE_LAYERS, SPARSE_GAUSS, SPARSE_TIES_AT, SPARSE_INFINITIES};
    static const size_t with[] = {1, 2, 4, 6}; /* modes */
    for (size_t i = 0; i < (rig->quick ? 1 : 4); i++) {
        choose_case(rig, &modes[with[i]], MANY * 1024 + 77, 1024, 11, kinds[i]);
        if (!rig->quick)
            choose_case(rig, &modes[with[i]], MANY * 4096 + 77, 4096, 41, kinds[i]);
    }
}

static void choose(struct sparse_rig *rig)
{
    static const uint32_t chunks[] = {4096, 64, 1024, 65536, 8192, 32768, 256, 16, 1};
    for (size_t i = 0; i < (rig->quick ? 4 : 9); i++) {
        const uint32_t chunk = chunks[i];
        const size_t counts[] = {
            3 * (size_t)chunk + chunk / 2 + 1,           chunk, chunk + 1, 1, 0,
            chunk < 2000 ? 20011 : 5 * (size_t)chunk - 1};
        const uint32_t ks[] = {chunk / 100 + 1, 1, chunk, chunk / 2 + (chunk == 1), 32};
        for (size_t c = 0; c < 6; c++)
            for (size_t j = 0; j < 5; j++)
                if (ks[j] <= chunk)
                    choose_case(rig, &modes[(i + c + j) % MODES], counts[c], chunk, ks[j],
                                (int)((c * 5 + j + i * 3) % SPARSE_KINDS));
    }
    for (int kind = 0; kind < SPARSE_KINDS; kind++)
        for (size_t m = 0; m < (rig->quick ? 2 : MODES); m++)
            choose_case(rig, &modes[m], 4096 * 4 + 77, 4096, 32, kind);
    if (!rig->quick)
        choose_case(rig, &modes[1], 1000003, 4096, 41, SPARSE_LAYERS);
    many_chunks(rig);
}

/* --------------------------------------------------------------------------- unpack and merge */

/* Chunks as chunk_select makes them: each has some entries, then empty slots. */
static void fill_slots(struct sparse_rig *rig, const struct slots *slots, size_t count, int kind)
{
    unsigned char values[8 * 64];
    for (size_t chunk = 0; chunk < chunks_of(count, slots->chunk); chunk++) {
        const size_t left = count - chunk * slots->chunk;
        const uint32_t n = left < slots->chunk ? (uint32_t)left : slots->chunk;
        const uint32_t most = n < slots->k ? n : slots->k;
        const uint32_t has =
            kernels_random() % 4 == 0 ? (uint32_t)(kernels_random() % (most + 1)) : most;
        uint32_t put = 0;
        for (uint32_t i = 0; i < n && put < has; i++) {
            if (kernels_random() % (n - i) >= has - put)
                continue;
            if (put % 64 == 0)
                sparse_fill(values, slots->dtype, 64, kind, 9);
            put_slot(rig, slots, chunk * slots->k + put, i,
                     kernels_get(values + put % 64 * trib_dtype_size(slots->dtype), slots->dtype));
            put++;
        }
        for (; put < slots->k; put++)
            put_slot(rig, slots, chunk * slots->k + put, 0, 0);
    }
}

struct joining {
    struct slots ranks[TRI_MAX_LISTS];
    struct sparse_list out; /* of unpack */
    int32_t n;
    size_t count, result, overflow; /* of merge */
    trib_dtype result_dtype;
    double divisor;
    bool unpack;
};

static trib_status queue_joining(const struct sparse_target *target, const void *argument)
{
    const struct joining *j = argument;
    struct tri_chunks ranks[TRI_MAX_LISTS];
    for (int32_t r = 0; r < j->n; r++)
        ranks[r] = tri_slots(&j->ranks[r], target->memory);
    if (j->unpack) {
        const struct tri_entries out = sparse_entries(&j->out, target->memory);
        return target->kernels->chunk_unpack(ranks, j->count, &out, target->scratch,
                                             target->stream);
    }
    const struct tri_result result = {sparse_at(target->memory, j->result), j->result_dtype,
                                      j->divisor, sparse_at(target->memory, j->overflow)};
    const trib_status status =
        target->kernels->chunk_merge(ranks, j->n, j->count, &result, target->stream);
    memset(ranks, 0x5a, sizeof ranks); /* the caller's again */
    return status;
}

static void expect_unpack(struct sparse_rig *rig, const struct joining *j)
{
    const struct slots *slots = &j->ranks[0];
    uint32_t n = 0;
    for (size_t i = 0; i < chunks_of(j->count, slots->chunk) * slots->k; i++)
        if (slot_value(rig, slots, i) != 0)
            sparse_list_put(rig, &j->out, n++,
                            (uint32_t)(i / slots->k * slots->chunk + slot_index(rig, slots, i)),
                            slot_value(rig, slots, i));
    sparse_list_end(rig, &j->out, n);
}

static void expect_joining(struct sparse_rig *rig, const void *argument)
{
    const struct joining *j = argument;
    const trib_dtype type = j->ranks[0].dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32;
    if (j->unpack) {
        expect_unpack(rig, j);
        return;
    }
    double *sums = calloc(j->count + 1, sizeof *sums);
    if (sums == NULL)
        abort();
    for (int32_t r = 0; r < j->n; r++) {
        const struct slots *slots = &j->ranks[r];
        for (size_t i = 0; i < chunks_of(j->count, slots->chunk) * slots->k; i++) {
            const size_t at = i / slots->k * slots->chunk + slot_index(rig, slots, i);
            if (slot_value(rig, slots, i) != 0)
                sums[at] = sparse_rounded(sums[at] + slot_value(rig, slots, i), type);
        }
    }
    for (size_t i = 0; i < j->count; i++)
        kernels_put(rig->arena.image + j->result + i * trib_dtype_size(j->result_dtype),
                    j->result_dtype, sparse_rounded(sums[i] / j->divisor, type));
    sparse_expect_overflow(rig, j->overflow, j->result, j->result_dtype, j->count);
    free(sums);
}

static void unpack_case(struct sparse_rig *rig, size_t count, uint32_t chunk, uint32_t k,
                        trib_dtype dtype, int kind)
{
    if (sparse_leaves_out(rig, 3))
        return;
    struct joining j = {.n = 1, .count = count, .unpack = true};
    const size_t slots = chunks_of(count, chunk) * k;
    check_begin("%s chunk_unpack %u of each %u of %zu %s, %s", rig->arena.place->kernels->name, k,
                chunk, count, trib_dtype_name(dtype), sparse_kind_name(kind));
    arena_reset(&rig->arena);
    j.ranks[0] = place_slots(rig, count, chunk, k, dtype);
    fill_slots(rig, &j.ranks[0], count, kind);
    j.out = sparse_list_place(rig, (uint32_t)slots, dtype, true);
    const struct sparse_call call = {"chunk_unpack",
                                     queue_joining,
                                     expect_joining,
                                     NULL,
                                     &j,
                                     count,
                                     slots,
                                     (uint32_t)slots,
                                     dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32};
    sparse_run(rig, &call);
    check_end();
}

/* A merge of chunks: `n` ranks' chunks of `dtype` to `count` elements of `result`. */
struct joined {
    int32_t n;
    size_t count;
    uint32_t chunk, k;
    trib_dtype dtype, result;
    double divisor;
    int overflow; /* the word before the call; below 0: there is none */
    int kind;     /* of the values */
};

static void place_joined(struct sparse_rig *rig, const struct joined *joined, struct joining *j)
{
    arena_reset(&rig->arena);
    for (int32_t r = 0; r < joined->n; r++) {
        j->ranks[r] = place_slots(rig, joined->count, joined->chunk, joined->k, joined->dtype);
        fill_slots(rig, &j->ranks[r], joined->count, joined->kind);
    }
    const size_t size = trib_dtype_size(joined->result);
    j->result = arena_place(&rig->arena, joined->count * size, rig->calls % 4 * size);
    arena_mark(&rig->arena, j->result, joined->count, joined->result);
    if (joined->overflow >= 0)
        j->overflow = sparse_word(rig, (uint32_t)joined->overflow);
}

static void merge_case(struct sparse_rig *rig, const struct joined *joined)
{
    if (sparse_leaves_out(rig, 3))
        return;
    const size_t count = joined->count;
    struct joining j = {.n = joined->n,
                        .count = count,
                        .divisor = joined->divisor,
                        .result_dtype = joined->result,
                        .overflow = SPARSE_NONE};
    check_begin("%s chunk_merge %d ranks, %u of each %u of %zu, %s to %s / %g, overflow %d, %s",
                rig->arena.place->kernels->name, joined->n, joined->k, joined->chunk, count,
                trib_dtype_name(joined->dtype), trib_dtype_name(joined->result), joined->divisor,
                joined->overflow, sparse_kind_name(joined->kind));
    place_joined(rig, joined, &j);
    const struct sparse_call call = {.what = "chunk_merge",
                                     .queue = queue_joining,
                                     .expect = expect_joining,
                                     .argument = &j,
                                     .count = count,
                                     .entries = chunks_of(count, joined->chunk) * joined->k *
                                                (size_t)joined->n,
                                     .dtype = joined->dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32};
    sparse_run(rig, &call);
    check_end();
}

static void join(struct sparse_rig *rig)
{
    static const uint32_t chunks[] = {4096, 64, 1024, 65536, 256, 16, 8192, 32768};
    static const trib_dtype dtypes[] = {TRIB_F32, TRIB_BF16, TRIB_F64};
    static const trib_dtype results[] = {TRIB_F32, TRIB_F16, TRIB_BF16};
    static const int kinds[] = {SPARSE_GAUSS, SPARSE_DENORMAL, SPARSE_SIGNED_ZEROS,
                                SPARSE_INFINITIES, SPARSE_LAYERS};
    static const int32_t ranks[] = {1, 2, 3, 4, 7, 64};
    for (size_t i = 0; i < (rig->quick ? 4 : 8); i++)
        for (int t = 0; t < 3; t++)
            for (int kind = 0; kind < 5; kind++) {
                const uint32_t chunk = chunks[i];
                const uint32_t ks[] = {chunk / 100 + 1, chunk, 1, chunk / 3 + 1};
                const uint32_t k = ks[(i + (size_t)kind) % 4];
                const size_t count = kind == 4 ? chunk : (size_t)(kind + 1) * chunk + chunk / 3;
                const size_t turn = i + (size_t)kind * 2 + (size_t)t;
                unpack_case(rig, count, chunk, k, dtypes[t], kinds[kind]);
                const struct joined joined = {.n = ranks[turn % (chunk > 9000 ? 5 : 6)],
                                              .count = count,
                                              .chunk = chunk,
                                              .k = k,
                                              .dtype = dtypes[t],
                                              .result = t == 2 ? TRIB_F64
                                                               : results[(i + (size_t)kind) % 3],
                                              .divisor = 1 + kind % 3,
                                              .overflow = (int)(i + (size_t)kind) % 3 - 1,
                                              .kind = kinds[kind]};
                merge_case(rig, &joined);
            }
    unpack_case(rig, 0, 64, 3, TRIB_F32, SPARSE_GAUSS);
    merge_case(rig, &(struct joined){2, 0, 64, 3, TRIB_F32, TRIB_F32, 1, -1, SPARSE_GAUSS});
    merge_case(rig, &(struct joined){2, 1, 64, 64, TRIB_F32, TRIB_F32, 1, -1, SPARSE_GAUSS});
    if (!rig->quick)
        merge_case(rig,
                   &(struct joined){4, 1000003, 4096, 41, TRIB_F32, TRIB_F32, 4, 1, SPARSE_GAUSS});
}

void sparse_chunks_suite(struct sparse_rig *rig)
{
    choose(rig);
    join(rig);
}

void sparse_chunks_long(struct sparse_rig *rig, size_t n)
{
    choose_case(rig, &modes[0], n, 65536, 5, SPARSE_FEW);
    unpack_case(rig, n, 4096, 3, TRIB_F32, SPARSE_GAUSS);
    merge_case(rig, &(struct joined){2, n, 4096, 3, TRIB_F32, TRIB_F32, 2, 1, SPARSE_GAUSS});
}
