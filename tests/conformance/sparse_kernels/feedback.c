/* accumulate, accumulate_clipped, index_select, decay, residual; and select in many calls: the residual loses nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

static const struct {
    trib_dtype dtype, gradient;
} types[] = {{TRIB_F32, TRIB_F32}, {TRIB_F32, TRIB_F16}, {TRIB_F32, TRIB_BF16},
             {TRIB_F64, TRIB_F64}, {TRIB_F32, 0},        {TRIB_F64, 0}};
enum { TYPES = sizeof types / sizeof types[0] };

static const size_t counts[] = {0, 1, 31, 33, 4097, 8192, 8193, 100003};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* --------------------------------------------------------------------------------- accumulate */

struct accumulating {
    struct sparse_state state;
    size_t header, rounded;
};

static trib_status queue_accumulate(const struct sparse_target *target, const void *argument)
{
    const struct accumulating *a = argument;
    struct tri_accumulator acc = sparse_accumulator(&a->state, target->memory);
    acc.rounded = sparse_at(target->memory, a->rounded);
    return target->kernels->accumulate(&acc, sparse_signing(a->header, target->memory),
                                       target->stream);
}

/* What bf16 holds of acc is taken out of it. */
static void expect_rounded(struct sparse_rig *rig, const struct accumulating *a)
{
    const trib_dtype dtype = a->state.dtype;
    const size_t size = trib_dtype_size(dtype), half = trib_dtype_size(TRIB_BF16);
    unsigned char *acc = rig->arena.image + sparse_acc_at(rig, &a->state);
    for (size_t i = 0; i < a->state.count; i++) {
        const double value = kernels_get(acc + i * size, dtype);
        unsigned char *rounded = rig->arena.image + a->rounded + i * half;
        kernels_put(rounded, TRIB_BF16, sparse_entry(value, TRIB_BF16));
        const double sent = kernels_get(rounded, TRIB_BF16);
        if (sent == 0)
            kernels_put(rounded, TRIB_BF16, 0);
        kernels_put(acc + i * size, dtype, value - sent);
    }
}

static void expect_accumulate(struct sparse_rig *rig, const void *argument)
{
    const struct accumulating *a = argument;
    const size_t size = trib_dtype_size(a->state.dtype);
    if (a->state.gradient != SPARSE_NONE)
        sparse_make_acc(rig, &a->state, 0, a->state.count);
    const unsigned char *acc = rig->arena.image + sparse_acc_at(rig, &a->state);
    uint32_t nonfinite = 0;
    for (size_t i = 0; i < a->state.count; i++)
        nonfinite += !sparse_is_finite(acc + i * size, a->state.dtype);
    sparse_expect_signed(rig, a->header, nonfinite);
    if (a->rounded != SPARSE_NONE)
        expect_rounded(rig, a);
}

/* Every other one of those that may is rounded. */
static size_t place_rounded(struct sparse_rig *rig, size_t type, size_t n)
{
    const size_t bytes = n * trib_dtype_size(TRIB_BF16);
    if (types[type].dtype != TRIB_F32 || types[type].gradient == 0 || rig->calls % 2 == 0)
        return SPARSE_NONE;
    const size_t at = arena_place(&rig->arena, bytes, rig->calls % 3 == 0 ? 2 : 0);
    arena_mark(&rig->arena, at, n, TRIB_BF16);
    return at;
}

static void accumulate_case(struct sparse_rig *rig, size_t type, size_t n, int kind, double decay)
{
    if (sparse_leaves_out(rig, 3))
        return;
    struct accumulating a;
    check_begin("%s accumulate %zu, %s of %s, %s, decay %g", rig->arena.place->kernels->name, n,
                trib_dtype_name(types[type].dtype),
                types[type].gradient != 0 ? trib_dtype_name(types[type].gradient) : "itself",
                sparse_kind_name(kind), decay);
    arena_reset(&rig->arena);
    a.state = sparse_state_place(rig, n, types[type].dtype, types[type].gradient, rig->calls * 3);
    a.state.decay = types[type].gradient != 0 ? decay : 1;
    sparse_state_make_velocity(rig, &a.state, rig->calls * 5);
    a.header = rig->calls % 5 == 0 ? SPARSE_NONE : sparse_header(rig);
    a.rounded = place_rounded(rig, type, n);
    sparse_state_fill(rig, &a.state, kind, 5);
    const struct sparse_call call = {
        "accumulate", queue_accumulate, expect_accumulate, NULL, &a, n, 0, 0, a.state.dtype};
    sparse_run(rig, &call);
    check_end();
}

static void accumulate(struct sparse_rig *rig)
{
    static const int kinds[] = {SPARSE_GAUSS,  SPARSE_INFINITIES,   SPARSE_DENORMAL,
                                SPARSE_LAYERS, SPARSE_SIGNED_ZEROS, SPARSE_ALL_NAN};
    static const double decays[] = {1, 0.9, 0.5};
    for (size_t type = 0; type < TYPES; type++)
        for (size_t c = 0; c < COUNTS; c++)
            for (size_t i = 0; i < 6; i += rig->quick ? 3 : 1)
                accumulate_case(rig, type, counts[c], kinds[i], decays[(i + c) % 3]);
}

/* --------------------------------------------------------------------------- accumulate_clipped */

struct clipping {
    struct sparse_state state;
    double limit;
};

static trib_status queue_clipped(const struct sparse_target *target, const void *argument)
{
    const struct clipping *c = argument;
    const struct tri_accumulator acc = sparse_accumulator(&c->state, target->memory);
    return target->kernels->accumulate_clipped(&acc, c->limit, target->scratch, target->stream);
}

static double gradient_at(const struct sparse_rig *rig, const struct sparse_state *state, size_t i)
{
    return kernels_get(rig->arena.image + state->gradient +
                           i * trib_dtype_size(state->gradient_dtype),
                       state->gradient_dtype);
}

/* The gradient's squares are multiples of 2^-12, and few: their sum is exact in any order. */
static double factor_of(const struct sparse_rig *rig, const struct clipping *c)
{
    double squares = 0;
    for (size_t i = 0; i < c->state.count; i++)
        squares += gradient_at(rig, &c->state, i) * gradient_at(rig, &c->state, i);
    const double norm = sqrt(squares);
    const double factor = !isfinite(norm) ? (double)NAN : norm <= c->limit ? 1 : c->limit / norm;
    return sparse_rounded(factor, c->state.dtype);
}

static void expect_clipped(struct sparse_rig *rig, const void *argument)
{
    const struct clipping *c = argument;
    const trib_dtype dtype = c->state.dtype;
    const size_t size = trib_dtype_size(dtype);
    const double factor = factor_of(rig, c), decay = sparse_rounded(c->state.decay, dtype);
    const unsigned char *residual = rig->arena.image + sparse_residual_at(rig, &c->state);
    unsigned char *acc = rig->arena.image + sparse_acc_at(rig, &c->state);
    for (size_t i = 0; i < c->state.count; i++) {
        const double kept = sparse_rounded(decay * kernels_get(residual + i * size, dtype), dtype);
        const double clipped = sparse_rounded(factor * gradient_at(rig, &c->state, i), dtype);
        kernels_put(acc + i * size, dtype, clipped + kept);
    }
}

/* `bad`, not 0: the last element. */
static void clipped_case(struct sparse_rig *rig, size_t type, size_t n, double limit, double bad)
{
    if (sparse_leaves_out(rig, 2))
        return;
    struct clipping c = {.limit = limit};
    check_begin("%s accumulate clipped to %g, %zu, %s of %s", rig->arena.place->kernels->name,
                limit, n, trib_dtype_name(types[type].dtype),
                trib_dtype_name(types[type].gradient));
    arena_reset(&rig->arena);
    c.state = sparse_state_place(rig, n, types[type].dtype, types[type].gradient, 3 * rig->calls);
    c.state.decay = 0.9;
    sparse_state_fill(rig, &c.state, SPARSE_GAUSS, 5);
    unsigned char *gradient = rig->arena.image + c.state.gradient;
    for (size_t i = 0; i < n; i++)
        kernels_put(gradient + i * trib_dtype_size(types[type].gradient), types[type].gradient,
                    i == n - 1 && bad != 0 ? bad : (double)(kernels_random() % 65) / 64 - 0.5);
    const struct sparse_call call = {
        "accumulate_clipped", queue_clipped, expect_clipped, NULL, &c, n, 0, 0, c.state.dtype};
    sparse_run(rig, &call);
    check_end();
}

static void clipped(struct sparse_rig *rig)
{
    for (size_t type = 0; type < TYPES; type++)
        for (size_t c = 0; c < COUNTS && types[type].gradient != 0; c++) {
            clipped_case(rig, type, counts[c], 0.3, 0);
            clipped_case(rig, type, counts[c], 1e9, 0);
            clipped_case(rig, type, counts[c], 1, c % 2 == 0 ? (double)INFINITY : (double)NAN);
        }
}

/* --------------------------------------------------------------------------------- index_select */

struct index_selection {
    struct sparse_state state;
    struct sparse_list list;
};

static trib_status queue_index_select(const struct sparse_target *target, const void *argument)
{
    const struct index_selection *g = argument;
    const struct tri_accumulator acc = sparse_accumulator(&g->state, target->memory);
    const struct tri_entries entries = sparse_entries(&g->list, target->memory);
    return target->kernels->index_select(&acc, &entries, target->stream);
}

static void expect_index_select(struct sparse_rig *rig, const void *argument)
{
    const struct index_selection *g = argument;
    const size_t acc = sparse_acc_at(rig, &g->state);
    const uint32_t n = sparse_list_count(rig, &g->list);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = sparse_list_index(rig, &g->list, i);
        const unsigned char *element =
            rig->arena.image + acc + index * trib_dtype_size(g->state.dtype);
        sparse_list_put(rig, &g->list, i, index,
                        sparse_entry(kernels_get(element, g->state.dtype), g->list.dtype));
    }
}

static void index_select_case(struct sparse_rig *rig, size_t type, size_t n, uint32_t entries,
                              int wire)
{
    if (sparse_leaves_out(rig, 3))
        return;
    const trib_dtype value = wire != 0 ? TRIB_BF16 : types[type].dtype;
    struct index_selection g;
    check_begin("%s index_select %u of %zu %s as %s", rig->arena.place->kernels->name, entries, n,
                trib_dtype_name(types[type].dtype), trib_dtype_name(value));
    arena_reset(&rig->arena);
    g.state = sparse_state_place(rig, n, types[type].dtype, types[type].gradient, rig->calls);
    const int kind = rig->calls % 3 == 0   ? SPARSE_NEXT_BITS
                     : rig->calls % 3 == 1 ? SPARSE_GAUSS
                                           : SPARSE_INFINITIES;
    sparse_fill(rig->arena.image + sparse_acc_at(rig, &g.state), g.state.dtype, n, kind, 0);
    const bool counted = rig->calls % 3 != 0;
    g.list = sparse_list_place(rig, entries + (counted ? 7 : 0), value, counted);
    sparse_list_fill(rig, &g.list, 0, n, entries, SPARSE_GAUSS);
    const struct sparse_call call = {
        "index_select", queue_index_select, expect_index_select, NULL, &g, n, g.list.capacity,
        entries,        g.state.dtype};
    sparse_run(rig, &call);
    check_end();
}

static void index_select(struct sparse_rig *rig)
{
    for (size_t type = 0; type < TYPES; type++)
        for (size_t c = 0; c < COUNTS; c++)
            for (int wire = 0; wire < (types[type].dtype == TRIB_F32 ? 2 : 1); wire++) {
                index_select_case(rig, type, counts[c], (uint32_t)(counts[c] / 9), wire);
                index_select_case(rig, type, counts[c], (uint32_t)counts[c], wire);
            }
}

/* -------------------------------------------------------------------------------------- decay */

struct decaying {
    struct sparse_state state;
    size_t decision;
    double factor;
};

static trib_status queue_decay(const struct sparse_target *target, const void *argument)
{
    const struct decaying *d = argument;
    const struct tri_accumulator acc = sparse_accumulator(&d->state, target->memory);
    return target->kernels->decay(&acc, d->factor, sparse_at(target->memory, d->decision),
                                  target->stream);
}

static void expect_decay(struct sparse_rig *rig, const void *argument)
{
    const struct decaying *d = argument;
    const trib_dtype dtype = d->state.dtype;
    unsigned char *element = rig->arena.image + sparse_residual_at(rig, &d->state);
    if (sparse_word_get(rig->arena.image, d->decision) == 0)
        return;
    const double factor = sparse_rounded(d->factor, dtype);
    for (size_t i = 0; i < d->state.count; i++, element += trib_dtype_size(dtype))
        kernels_put(element, dtype, factor == 0 ? 0 : factor * kernels_get(element, dtype));
}

static void decay(struct sparse_rig *rig)
{
    static const double factors[] = {0.9, 0, 1, 0.999, 0.5};
    for (size_t type = 0; type < TYPES; type++)
        for (size_t c = 0; c < COUNTS; c++)
            for (uint32_t decision = 0; decision < 2; decision++) {
                struct decaying d = {.factor = factors[(c + type) % 5]};
                check_begin("%s decay %zu by %g, decision %u", rig->arena.place->kernels->name,
                            counts[c], d.factor, decision);
                arena_reset(&rig->arena);
                d.state = sparse_state_place(rig, counts[c], types[type].dtype,
                                             types[type].gradient, rig->calls);
                sparse_fill(rig->arena.image + sparse_residual_at(rig, &d.state), d.state.dtype,
                            counts[c], rig->calls % 3 == 0 ? SPARSE_INFINITIES : SPARSE_GAUSS, 0);
                d.decision = sparse_word(rig, decision);
                const struct sparse_call call = {
                    "decay", queue_decay, expect_decay, NULL, &d, counts[c], 0, 0, d.state.dtype};
                sparse_run(rig, &call);
                check_end();
            }
}

/* ----------------------------------------------------------------------------------- residual */

struct reading {
    struct sparse_state state;
    size_t out;
};

static trib_status queue_residual(const struct sparse_target *target, const void *argument)
{
    const struct reading *r = argument;
    const struct tri_accumulator acc = sparse_accumulator(&r->state, target->memory);
    return target->kernels->residual(&acc, sparse_at(target->memory, r->out), target->stream);
}

static void expect_residual(struct sparse_rig *rig, const void *argument)
{
    const struct reading *r = argument;
    memcpy(rig->arena.image + r->out, rig->arena.image + sparse_residual_at(rig, &r->state),
           r->state.count * trib_dtype_size(r->state.dtype));
}

static void residual(struct sparse_rig *rig)
{
    for (size_t type = 0; type < TYPES; type++)
        for (size_t c = 0; c < COUNTS; c++) {
            struct reading r = {.out = 0};
            check_begin("%s residual %zu", rig->arena.place->kernels->name, counts[c]);
            arena_reset(&rig->arena);
            r.state = sparse_state_place(rig, counts[c], types[type].dtype, types[type].gradient,
                                         rig->calls);
            const size_t element = trib_dtype_size(r.state.dtype);
            sparse_fill(rig->arena.image + sparse_residual_at(rig, &r.state), r.state.dtype,
                        counts[c], SPARSE_GAUSS, 0);
            r.out = arena_place(&rig->arena, counts[c] * element, rig->calls % 4 * element);
            if (types[type].gradient != 0 && rig->calls % 3 == 0) /* the residual itself, or acc */
                r.out = r.state.buffer[rig->calls / 3 % 2];
            const struct sparse_call call = {
                "residual", queue_residual, expect_residual, NULL, &r, counts[c], 0,
                0,          r.state.dtype};
            sparse_run(rig, &call);
            check_end();
        }
}

/* ----------------------------------------------------------------------------- many calls long */

/* Calls in a row on one state, as an algorithm on one rank would make them: here the check is not
 * the oracle's but the law. */
struct feedback {
    struct sparse_state state;
    struct sparse_list out;
    size_t header, decision;
    uint32_t k;
    enum tri_guess guess;
    unsigned char *acc, *sent;
};

static void feedback_call(struct sparse_rig *rig, const struct feedback *f)
{
    struct arena *arena = &rig->arena;
    const struct kernels_place *place = arena->place;
    const struct tri_accumulator acc = sparse_accumulator(&f->state, arena->device);
    const struct tri_entries out = sparse_entries(&f->out, arena->device);
    const bool in_place = f->state.gradient == SPARSE_NONE;
    const struct tri_selection selection = {
        .count = f->state.count,
        .k = f->k,
        .accumulate = !in_place,
        .clear = !in_place,
        .signing = sparse_signing(f->header, arena->device),
        .guess = f->guess,
    };
    CHECK_OK(
        place->kernels->sparse->select(&acc, &selection, &out, rig->scratch[0], place->stream));
    if (in_place)
        CHECK_OK(place->kernels->sparse->residual_update(&acc, &out, TRI_UPDATE_SUBTRACT, NULL,
                                                         sparse_at(arena->device, f->decision),
                                                         NULL, place->stream));
}

/* residual' + sent == acc, and where nothing was sent residual' is acc. */
static void feedback_law(struct sparse_rig *rig, struct feedback *f)
{
    const trib_dtype dtype = f->state.dtype;
    const size_t size = trib_dtype_size(dtype), n = f->state.count;
    unsigned char *image = rig->arena.image;
    const unsigned char *residual = image + sparse_acc_at(rig, &f->state);
    const uint32_t count = sparse_list_count(rig, &f->out);
    uint64_t smallest = ~(uint64_t)0;
    CHECK_MSG(count == f->k, "%u entries of %u", count, f->k);
    memset(f->sent, 0, n);
    for (uint32_t i = 0; i < count && i < f->k; i++) {
        const uint32_t index = sparse_list_index(rig, &f->out, i);
        if (!CHECK_MSG(index < n && (i == 0 || index > sparse_list_index(rig, &f->out, i - 1)),
                       "index %u at %u", index, i))
            return;
        const unsigned char *was = f->acc + index * size;
        const double value = sparse_list_value(rig, &f->out, i), whole = kernels_get(was, dtype);
        const double left = kernels_get(residual + index * size, dtype);
        f->sent[index] = 1;
        smallest = sparse_key(was, dtype) < smallest ? sparse_key(was, dtype) : smallest;
        CHECK_MSG(left + value == whole && left == whole - value,
                  "index %u: residual %g, sent %g, acc %g", index, left, value, whole);
        CHECK(f->out.dtype != dtype || left == 0);
    }
    for (size_t i = 0; i < n; i++)
        if (f->sent[i] == 0)
            CHECK_MSG(memcmp(residual + i * size, f->acc + i * size, size) == 0 &&
                          sparse_key(residual + i * size, dtype) <= smallest,
                      "element %zu was changed or passed over", i);
}

static void feedback_step(struct sparse_rig *rig, struct feedback *f)
{
    struct arena *arena = &rig->arena;
    const size_t size = trib_dtype_size(f->state.dtype), n = f->state.count;
    if (f->state.gradient != SPARSE_NONE) {
        sparse_fill(arena->image + f->state.gradient, f->state.gradient_dtype, n, SPARSE_LAYERS, 0);
        sparse_make_acc(rig, &f->state, 0, n);
    } else { /* a gradient is added into the accumulator */
        for (size_t i = 0; i < n; i++) {
            unsigned char *element = arena->image + f->state.buffer[0] + i * size;
            kernels_put(element, f->state.dtype,
                        kernels_get(element, f->state.dtype) + sparse_normal());
        }
    }
    memcpy(f->acc, arena->image + sparse_acc_at(rig, &f->state), n * size);
    if (f->state.gradient != SPARSE_NONE)
        arena_poison(arena, sparse_acc_at(rig, &f->state), n * size);
    arena_upload(arena);
    feedback_call(rig, f);
    arena_download(arena);
    memcpy(arena->image, arena->found, arena->used);
    feedback_law(rig, f);
    if (f->state.current != SPARSE_NONE) /* the commit */
        sparse_word_put(arena->image, f->state.current,
                        sparse_word_get(arena->image, f->state.current) ^ 1);
}

static void feedback_case(struct sparse_rig *rig, trib_dtype dtype, trib_dtype gradient,
                          trib_dtype wire, enum tri_guess guess)
{
    const size_t n = 20011, size = trib_dtype_size(dtype);
    const struct kernels_place *place = rig->arena.place;
    struct feedback f = {.k = 200, .guess = guess, .acc = malloc(n * size), .sent = malloc(n)};
    if (f.acc == NULL || f.sent == NULL)
        abort();
    check_begin("%s error feedback, %s of %s by %s, guess %d", place->kernels->name,
                trib_dtype_name(dtype), gradient != 0 ? trib_dtype_name(gradient) : "itself",
                trib_dtype_name(wire), (int)guess);
    arena_reset(&rig->arena);
    f.state = sparse_state_place(rig, n, dtype, gradient, 0);
    f.state.decay = wire == TRIB_BF16 ? 1 : 0.99;
    f.out = sparse_list_place(rig, f.k, wire, true);
    f.header = sparse_header(rig);
    f.decision = sparse_word(rig, 1);
    sparse_fill(rig->arena.image + sparse_residual_at(rig, &f.state), dtype, n, SPARSE_ZERO, 0);
    sparse_scratch(rig, place->kernels->sparse->scratch_bytes(n, f.k, f.k, dtype));
    for (int step = 0; step < (rig->quick ? 5 : 100); step++)
        feedback_step(rig, &f);
    free(f.acc);
    free(f.sent);
    check_end();
}

void sparse_feedback_suite(struct sparse_rig *rig)
{
    accumulate(rig);
    clipped(rig);
    index_select(rig);
    decay(rig);
    residual(rig);
    for (int guess = TRI_GUESS_SAMPLE; guess <= TRI_GUESS_HIGH; guess++) {
        feedback_case(rig, TRIB_F32, TRIB_F32, TRIB_F32, (enum tri_guess)guess);
        feedback_case(rig, TRIB_F32, TRIB_BF16, TRIB_BF16, (enum tri_guess)guess);
        feedback_case(rig, TRIB_F32, TRIB_F16, TRIB_F32, (enum tri_guess)guess);
        feedback_case(rig, TRIB_F64, TRIB_F64, TRIB_F64, (enum tri_guess)guess);
        feedback_case(rig, TRIB_F32, 0, TRIB_F32, (enum tri_guess)guess);
        feedback_case(rig, TRIB_F32, 0, TRIB_BF16, (enum tri_guess)guess);
    }
}

void sparse_feedback_long(struct sparse_rig *rig, size_t n)
{
    index_select_case(rig, 4, n, 50000, 0);
}
