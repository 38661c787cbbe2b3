/* select, against a sort of everything by (key, lower index). */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/select.h"

static trib_status queue_select(const struct sparse_target *target, const void *argument)
{
    const struct selecting *s = argument;
    const struct tri_accumulator acc = sparse_accumulator(&s->state, target->memory);
    const struct tri_entries out = sparse_entries(&s->out, target->memory);
    const struct tri_selection selection = {
        .first = s->first,
        .count = s->count,
        .k = s->k,
        .threshold = sparse_at(target->memory, s->threshold),
        .accumulate = s->accumulate,
        .clear = s->clear,
        .signing = sparse_signing(s->header, target->memory),
        .kth = sparse_at(target->memory, s->kth),
        .fallbacks = sparse_at(target->memory, s->fallbacks),
        .guess = s->guess,
    };
    return target->kernels->select(&acc, &selection, &out, target->scratch, target->stream);
}

/* The entry of acc[first + position]; the smallest magnitude goes to kth. */
static void expect_entry(struct sparse_rig *rig, const struct selecting *s, uint32_t i,
                         uint32_t position)
{
    const size_t size = trib_dtype_size(s->state.dtype);
    unsigned char *image = rig->arena.image;
    unsigned char *element = image + sparse_acc_at(rig, &s->state) + (s->first + position) * size;
    const uint64_t key = sparse_key(element, s->state.dtype);
    if (s->kth != SPARSE_NONE && (i == 0 || key < sparse_key(image + s->kth, s->state.dtype)))
        memcpy(image + s->kth, &key, size);
    const double value = kernels_get(element, s->state.dtype);
    sparse_list_put(rig, &s->out, i, (uint32_t)(s->first + position),
                    sparse_entry(value, s->out.dtype));
    if (s->clear)
        kernels_put(element, s->state.dtype, value - sparse_list_value(rig, &s->out, i));
}

static void expect_select(struct sparse_rig *rig, const void *argument)
{
    const struct selecting *s = argument;
    const trib_dtype dtype = s->state.dtype;
    const size_t size = trib_dtype_size(dtype);
    unsigned char *image = rig->arena.image;
    if (s->accumulate)
        sparse_make_acc(rig, &s->state, s->first, s->count);
    const unsigned char *acc = image + sparse_acc_at(rig, &s->state) + s->first * size;
    uint64_t *keys = malloc((s->count + 1) * sizeof *keys);
    uint32_t *positions = malloc(((size_t)s->count + 1) * sizeof *positions);
    uint32_t nonfinite = 0;
    if (keys == NULL || positions == NULL)
        abort();
    for (size_t i = 0; i < s->count; i++) {
        keys[i] = sparse_key(acc + i * size, dtype);
        nonfinite += !sparse_is_finite(acc + i * size, dtype);
    }
    sparse_expect_signed(rig, s->header, nonfinite);
    if (s->kth != SPARSE_NONE)
        kernels_put(image + s->kth, dtype, 0);
    const uint64_t above =
        s->threshold != SPARSE_NONE ? sparse_key(image + s->threshold, dtype) : 0;
    const uint32_t n = sparse_largest(keys, s->count, above, s->k, positions);
    for (uint32_t i = 0; i < n; i++)
        expect_entry(rig, s, i, positions[i]);
    sparse_list_end(rig, &s->out, n);
    free(keys);
    free(positions);
}

/* Whether the guess missed is the table's business; that it counts at most once is not. */
static void adopt_fallbacks(struct sparse_rig *rig, const void *argument)
{
    const struct selecting *s = argument;
    if (s->fallbacks == SPARSE_NONE)
        return;
    const uint32_t before = sparse_word_get(rig->inputs, s->fallbacks);
    const uint32_t after = sparse_word_get(rig->arena.found, s->fallbacks);
    CHECK_MSG(after - before <= 1, "fallbacks went from %u to %u", before, after);
    rig->fallbacks += after - before;
    arena_forget(&rig->arena, s->fallbacks, sizeof before);
}

static struct sparse_call call_of(const struct selecting *s)
{
    return (struct sparse_call){"select",       queue_select,    expect_select, adopt_fallbacks, s,
                                s->state.count, s->out.capacity, s->k,          s->state.dtype};
}

void sparse_select_run(struct sparse_rig *rig, const struct selecting *s)
{
    const struct sparse_call call = call_of(s);
    sparse_run(rig, &call);
}

/* -------------------------------------------------------------------------------------- modes */

/* The ways in which algorithms call it. */
static const struct mode modes[] = {
    {"in place", TRIB_F32, 0, TRIB_F32, false, false},
    {"clearing", TRIB_F32, TRIB_F32, TRIB_F32, true, true},
    {"clearing, bf16 wire", TRIB_F32, TRIB_F32, TRIB_BF16, true, true},
    {"f16 gradient", TRIB_F32, TRIB_F16, TRIB_F32, true, true},
    {"bf16 gradient and wire", TRIB_F32, TRIB_BF16, TRIB_BF16, true, true},
    {"f64 in place", TRIB_F64, 0, TRIB_F64, false, false},
    {"f64 clearing", TRIB_F64, TRIB_F64, TRIB_F64, true, true},
    {"accumulating", TRIB_F32, TRIB_F32, TRIB_F32, true, false},
    {"acc that is there", TRIB_F32, TRIB_F32, TRIB_BF16, false, false},
    {"bf16 gradient", TRIB_F32, TRIB_BF16, TRIB_F32, true, false},
    {"in place, bf16 wire", TRIB_F32, 0, TRIB_BF16, false, false},
};
enum { MODES = sizeof modes / sizeof modes[0] };

struct selecting sparse_select_place(struct sparse_rig *rig, const struct mode *mode, size_t n,
                                     uint32_t k, unsigned shift)
{
    struct selecting s = {.count = n,
                          .k = k,
                          .threshold = SPARSE_NONE,
                          .accumulate = mode->accumulate,
                          .clear = mode->clear};
    arena_reset(&rig->arena);
    s.state = sparse_state_place(rig, n, mode->dtype, mode->gradient, shift);
    if (mode->accumulate)
        sparse_state_make_velocity(rig, &s.state, shift);
    s.out = sparse_list_place(rig, k < n ? k : (uint32_t)n, mode->wire, true);
    s.header = sparse_header(rig);
    s.kth = sparse_number(rig, mode->dtype, 5);
    s.fallbacks = sparse_word(rig, 41);
    arena_name(&rig->arena, s.header, "header");
    arena_name(&rig->arena, s.kth, "kth");
    return s;
}

static void fill_select(struct sparse_rig *rig, const struct selecting *s, int kind, uint32_t k)
{
    sparse_state_fill(rig, &s->state, kind, k);
    if (!s->accumulate && s->state.gradient != SPARSE_NONE)
        sparse_fill(rig->arena.image + sparse_acc_at(rig, &s->state), s->state.dtype,
                    s->state.count, kind, k);
}

static void select_case(struct sparse_rig *rig, const struct mode *mode, int kind, size_t n,
                        uint32_t k, unsigned shift)
{
    if (sparse_leaves_out(rig, 3))
        return;
    check_begin("%s select %u of %zu, %s, %s, shift %u", rig->arena.place->kernels->name, k, n,
                sparse_kind_name(kind), mode->name, shift);
    struct selecting s = sparse_select_place(rig, mode, n, k, shift);
    fill_select(rig, &s, kind, k);
    sparse_select_run(rig, &s);
    check_end();
}

/* -------------------------------------------------------------------------------------- cases */

static void kinds(struct sparse_rig *rig)
{
    /* As cuda tells few from many, and a count of many spans. */
    static const struct {
        size_t count;
        uint32_t k;
    } sizes[] = {{4097, 42}, {65537, 16500}, {65537, 675}, {131101, 16384}};
    for (int kind = 0; kind < SPARSE_KINDS; kind++)
        for (size_t c = 0; c < (rig->quick ? 2 : 4); c++)
            for (size_t m = 0; m < (!rig->quick ? MODES : c == 0 ? 3 : 1); m++)
                select_case(rig, &modes[rig->quick ? (m * 5 + (size_t)kind) % MODES : m], kind,
                            sizes[c].count, sizes[c].k, rig->calls);
}

static void sizes(struct sparse_rig *rig)
{
    static const size_t counts[] = {0,    1,     2,     31,    32,     33,    1000,
                                    1023, 1025,  4095,  4096,  4097,   8191,  8192,
                                    8193, 16385, 65535, 65537, 131073, 262147};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0] - (rig->quick ? 2 : 0); c++) {
        const size_t n = counts[c];
        const uint32_t ks[] = {0,
                               1,
                               (uint32_t)(n / 100),
                               (uint32_t)(n / 3),
                               (uint32_t)n - (n > 0),
                               (uint32_t)n,
                               (uint32_t)n + 5};
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++)
            for (unsigned turn = 0; turn < (rig->quick || n > 20000 ? 1 : 4); turn++)
                select_case(rig, &modes[(i * 3 + c + turn * 2) % MODES],
                            turn % 2 == 0 ? SPARSE_LAYERS : SPARSE_TIES_AT, n, ks[i],
                            rig->calls * 5);
    }
}

/* Gradient and accumulator begin anywhere, independently. */
static void shifts(struct sparse_rig *rig)
{
    for (unsigned shift = 0; shift < 16; shift++)
        for (size_t m = 0; m < (rig->quick ? 2 : MODES); m++)
            select_case(rig, &modes[m], SPARSE_STUDENT, 9001 + shift, 300, shift);
}

static void million(struct sparse_rig *rig)
{
    static const int some[] = {
        SPARSE_GAUSS,    SPARSE_LAYERS,   SPARSE_EQUAL,     SPARSE_UP,         SPARSE_DOWN,
        SPARSE_HOT_TILE, SPARSE_SAW_WIDE, SPARSE_NEXT_BITS, SPARSE_TIES_BELOW, SPARSE_FEW};
    const size_t n = 1000003;
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        select_case(rig, &modes[i % 2], some[i], n, (uint32_t)(n / 100), (unsigned)i);
        select_case(rig, &modes[1 + i % 4], some[i], n, (uint32_t)(n / 1000), (unsigned)i);
        select_case(rig, &modes[i % 4], some[i], n, (uint32_t)(n / 50), (unsigned)i);
    }
    select_case(rig, &modes[1], SPARSE_LAPLACE, n, (uint32_t)(n / 20), 3);
    select_case(rig, &modes[0], SPARSE_LAPLACE, n, (uint32_t)n, 1);
    select_case(rig, &modes[6], SPARSE_LAPLACE, n, (uint32_t)(n / 100), 0);
}

/* Few on cuda: more candidates than a block loads at a time, or more of a span than it sets aside. */
static void few(struct sparse_rig *rig)
{
    static const int some[] = {SPARSE_GAUSS, SPARSE_UP, SPARSE_TIES_ABOVE};
    for (size_t i = 0; i < (rig->quick ? 1 : sizeof some / sizeof some[0]); i++) {
        select_case(rig, &modes[1 + i], some[i], 300007, 16001, (unsigned)i);
        select_case(rig, &modes[6 - i], some[i], 330011, 8503, (unsigned)i);
    }
    select_case(rig, &modes[1], SPARSE_UP, 131071, 3001, 0);
    select_case(rig, &modes[6], SPARSE_DOWN, 131071, 3001, 2);
}

/* Elements outside of the range are not looked at, nor written. */
static void ranges(struct sparse_rig *rig)
{
    const size_t n = 30011;
    const struct {
        size_t first, count;
    } parts[] = {{0, n},     {0, 0},    {n, 0},       {17, 0},      {0, 1},      {n - 1, 1},
                 {1, n - 1}, {0, 8192}, {8191, 8194}, {4096, 4097}, {13, 20000}, {29000, 1011}};
    for (size_t m = 0; m < MODES; m += rig->quick ? 4 : 1)
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            const uint32_t k = (uint32_t)(p % 3 == 0 ? parts[p].count : parts[p].count / 50 + 1);
            check_begin("%s select of [%zu, + %zu), %s", rig->arena.place->kernels->name,
                        parts[p].first, parts[p].count, modes[m].name);
            struct selecting s = sparse_select_place(rig, &modes[m], n, k, (unsigned)p * 3);
            s.first = parts[p].first;
            s.count = parts[p].count;
            fill_select(rig, &s, p % 2 == 0 ? SPARSE_GAUSS : SPARSE_INFINITIES, k);
            sparse_select_run(rig, &s);
            check_end();
        }
}

/* What a threshold lies beside: `of` picks an element; its magnitude is not above it. */
static double some_threshold(const struct sparse_rig *rig, const struct selecting *s, int which)
{
    const size_t size = trib_dtype_size(s->state.dtype);
    const unsigned char *acc = rig->arena.image + sparse_acc_at(rig, &s->state);
    uint64_t key = sparse_key(acc + s->count / 2 * size, s->state.dtype);
    static const double fixed[] = {0, 1e-30, 1, 2.5, 1e30};
    if (which < 5)
        return fixed[which];
    key -= which == 6; /* just below: now it is above */
    double value = 0;
    memcpy(&value, &key, size);
    return kernels_get(&value, s->state.dtype);
}

static void thresholds(struct sparse_rig *rig)
{
    for (size_t m = 0; m < MODES; m += rig->quick ? 3 : 1)
        for (int which = 0; which < 7; which++)
            for (int limited = 0; limited < 3; limited++) {
                const size_t n = 20021;
                const uint32_t k = limited == 0 ? (uint32_t)n : limited == 1 ? 700 : 20;
                const int kind = which % 2 == 0 ? SPARSE_GAUSS : SPARSE_TWO_VALUES;
                check_begin("%s select above a threshold %d, k %u, %s",
                            rig->arena.place->kernels->name, which, k, modes[m].name);
                struct selecting s = sparse_select_place(rig, &modes[m], n, k, (unsigned)which);
                fill_select(rig, &s, limited == 1 ? SPARSE_LAYERS : kind, k);
                if (s.accumulate) /* to know what acc will be */
                    sparse_make_acc(rig, &s.state, 0, n);
                s.threshold = sparse_number(rig, modes[m].dtype, some_threshold(rig, &s, which));
                sparse_select_run(rig, &s);
                check_end();
            }
}

/* The guess is only about speed; and a wrong one has been made, unless a slice has too few of these cases. */
static void guesses(struct sparse_rig *rig, enum tri_guess guess)
{
    enum { ENOUGH = 8 };
    const unsigned before = rig->fallbacks;
    static const int some[] = {SPARSE_GAUSS,      SPARSE_EQUAL,    SPARSE_ZERO, SPARSE_TIES_ABOVE,
                               SPARSE_INFINITIES, SPARSE_HOT_TILE, SPARSE_FEW};
    static const size_t counts[] = {100, 70001, 600011};
    size_t made = 0;
    for (size_t c = 0; c < (rig->quick ? 2 : 3); c++)
        for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
            for (size_t m = 0; m < 7; m += c == 2 || rig->quick ? 3 : 1) {
                const size_t n = counts[c];
                const uint32_t k = (uint32_t)(i % 2 == 0 ? n / 100 : n / 3);
                check_begin("%s select %u of %zu, guess %s, %s, %s",
                            rig->arena.place->kernels->name, k, n,
                            guess == TRI_GUESS_LOW ? "low" : "high", sparse_kind_name(some[i]),
                            modes[m].name);
                struct selecting s = sparse_select_place(rig, &modes[m], n, k, (unsigned)i);
                s.guess = guess;
                fill_select(rig, &s, some[i], k);
                sparse_select_run(rig, &s);
                made += !check_left_out();
                check_end();
            }
    check_begin("%s select fell back", rig->arena.place->kernels->name);
    CHECK(rig->fallbacks > before || made < ENOUGH || (rig->quick && guess == TRI_GUESS_LOW));
    check_end();
}

/* What may be NULL; a product that is rounded before the sum. */
static void leave_out(struct sparse_rig *rig)
{
    static const double decays[] = {0.9, 0.5, 0.999, 1.0 / 3};
    for (size_t m = 0; m < MODES; m++)
        for (int without = 0; without < 8; without++) {
            check_begin("%s select, %s, without %d, decay", rig->arena.place->kernels->name,
                        modes[m].name, without);
            struct selecting s = sparse_select_place(rig, &modes[m], 12345, 500, (unsigned)m);
            s.state.decay = modes[m].gradient != 0 ? decays[without % 4] : 1;
            fill_select(rig, &s, SPARSE_GAUSS, 500);
            if (without & 1)
                s.header = SPARSE_NONE;
            if (without & 2)
                s.kth = SPARSE_NONE;
            if (without & 4)
                s.fallbacks = SPARSE_NONE;
            sparse_select_run(rig, &s);
            check_end();
        }
}

/* Data, threshold and the side of the accumulator change from launch to launch. */
static void refill_select(struct sparse_rig *rig, const void *argument, int i)
{
    static const int order[] = {SPARSE_GAUSS, SPARSE_ZERO,   SPARSE_INFINITIES, SPARSE_HOT_TILE,
                                SPARSE_EQUAL, SPARSE_LAYERS, SPARSE_TIES_AT,    SPARSE_GAUSS};
    const struct selecting *s = argument;
    if (s->state.current != SPARSE_NONE)
        sparse_word_put(rig->arena.image, s->state.current, (uint32_t)i / 2 % 2);
    if (s->state.makes_velocity)
        sparse_word_put(rig->arena.image, s->state.velocity_current, (uint32_t)i % 2);
    if (s->threshold != SPARSE_NONE)
        kernels_put(rig->arena.image + s->threshold, s->state.dtype, i % 3 * 0.5);
    fill_select(rig, s, order[i % 8], s->k);
}

static void series(struct sparse_rig *rig)
{
    static const size_t counts[] = {5000, 150001};
    for (size_t c = 0; c < 2; c++)
        for (size_t m = 0; m < (rig->quick ? 2 : 7); m++)
            for (int has_threshold = 0; has_threshold < 2; has_threshold++) {
                check_begin("%s select again and again of %zu, %s%s",
                            rig->arena.place->kernels->name, counts[c], modes[m].name,
                            has_threshold ? ", threshold" : "");
                struct selecting s = sparse_select_place(rig, &modes[m], counts[c],
                                                         (uint32_t)counts[c] / 60, (unsigned)m);
                if (has_threshold)
                    s.threshold = sparse_number(rig, modes[m].dtype, 0);
                const struct sparse_call call = call_of(&s);
                sparse_run_series(rig, &call, refill_select, rig->quick ? 4 : 16);
                check_end();
            }
}

void sparse_select_suite(struct sparse_rig *rig)
{
    series(rig);
    kinds(rig);
    sizes(rig);
    shifts(rig);
    ranges(rig);
    thresholds(rig);
    guesses(rig, TRI_GUESS_LOW);
    guesses(rig, TRI_GUESS_HIGH);
    leave_out(rig);
    few(rig);
    if (!rig->quick)
        million(rig);
}

void sparse_select_long(struct sparse_rig *rig, size_t n)
{
    select_case(rig, &modes[0], SPARSE_FEW, n, (uint32_t)(n / 20), 1);
    select_case(rig, &modes[2], SPARSE_FEW, n / 3, (uint32_t)(n / 100), 9);
    sparse_select_chunks(rig);
}
