/* decide, residual_update, record: the end of a call. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

/* --------------------------------------------------------------------------------------- decide */

struct deciding {
    size_t abort_flag, headers, stride, current, velocity, decision, outcome, overflow;
    size_t packets; /* headers, side by side; or SPARSE_NONE */
    int32_t n;
    uint32_t signature, capacity;
    bool revokes;
};

static trib_status queue_decide(const struct sparse_target *target, const void *argument)
{
    const struct deciding *c = argument;
    const struct tri_header *packets[TRI_MAX_LISTS];
    for (int32_t r = 0; r < c->n && c->packets != SPARSE_NONE; r++)
        packets[r] = sparse_at(target->memory, c->packets + (size_t)r * sizeof *packets[r]);
    struct tri_decide decide = {
        .abort_flag = sparse_at(target->memory, c->abort_flag),
        .headers = sparse_at(target->memory, c->headers),
        .stride = c->stride,
        .n = c->n,
        .signature = c->signature,
        .capacity = c->capacity,
        .packets = c->packets == SPARSE_NONE ? NULL : packets,
        .current = sparse_at(target->memory, c->current),
        .velocity = sparse_at(target->memory, c->velocity),
        .revokes = c->revokes,
        .decision = sparse_at(target->memory, c->decision),
        .outcome = sparse_at(target->memory, c->outcome),
        .overflow = sparse_at(target->memory, c->overflow),
    };
    const trib_status status = target->kernels->decide(&decide, target->stream);
    memset(&decide, 0x5a, sizeof decide); /* the caller's again */
    memset(packets, 0x5a, sizeof packets);
    return status;
}

static struct tri_header get_header(const struct sparse_rig *rig, const struct deciding *c,
                                    int32_t r)
{
    struct tri_header header;
    memcpy(&header, rig->arena.image + c->headers + (size_t)r * c->stride, sizeof header);
    return header;
}

/* In the packet of rank `r`. */
static size_t calls_at(const struct deciding *c, int32_t r)
{
    return c->packets + (size_t)r * sizeof(struct tri_header) + offsetof(struct tri_header, calls);
}

static void expect_decide(struct sparse_rig *rig, const void *argument)
{
    const struct deciding *c = argument;
    unsigned char *image = rig->arena.image;
    uint32_t outcome = c->overflow != SPARSE_NONE && sparse_word_get(image, c->overflow) != 0
                           ? TRI_OUTCOME_OVERFLOW
                           : TRI_OUTCOME_APPLIED;
    for (int32_t r = 0; r < c->n; r++)
        if (get_header(rig, c, r).nonfinite != 0)
            outcome = TRI_OUTCOME_NON_FINITE;
    for (int32_t r = 0; r < c->n && c->packets != SPARSE_NONE; r++)
        if (sparse_word_get(image, calls_at(c, r)) != get_header(rig, c, r).calls)
            outcome = TRI_OUTCOME_ABORTED;
    for (int32_t r = 0; r < c->n; r++)
        if (get_header(rig, c, r).signature != c->signature ||
            get_header(rig, c, r).count > c->capacity)
            outcome = TRI_OUTCOME_MISMATCH;
    if (sparse_word_get(image, c->abort_flag) != 0)
        outcome = TRI_OUTCOME_ABORTED;
    const bool flips =
        c->revokes ? sparse_word_get(image, c->decision) != 0 : outcome == TRI_OUTCOME_APPLIED;
    sparse_word_put(image, c->outcome, outcome);
    sparse_word_put(image, c->decision, outcome == TRI_OUTCOME_APPLIED);
    if (c->current != SPARSE_NONE && flips)
        sparse_word_put(image, c->current, sparse_word_get(image, c->current) ^ 1);
    if (c->velocity != SPARSE_NONE && flips)
        sparse_word_put(image, c->velocity, sparse_word_get(image, c->velocity) ^ 1);
    if (c->overflow != SPARSE_NONE)
        sparse_word_put(image, c->overflow, 0);
}

/* `wrong` and `infinite`: ranks whose headers say so, -1 for none. Wrong is a signature, or a count
 * that the packet does not hold. */
static void decide_case(struct sparse_rig *rig, int32_t n, size_t stride, uint32_t abort_flag,
                        int32_t wrong, int32_t infinite, bool in_place)
{
    if (sparse_leaves_out(rig, 5))
        return;
    struct deciding c = {.n = n, .stride = stride, .signature = (uint32_t)kernels_random()};
    check_begin("%s decide, %d ranks, abort flag %u, mismatch at %d, not finite at %d%s",
                rig->arena.place->kernels->name, n, abort_flag, wrong, infinite,
                in_place ? ", in place" : "");
    arena_reset(&rig->arena);
    c.abort_flag = sparse_word(rig, abort_flag);
    c.headers = arena_place(&rig->arena, (size_t)n * stride, 0);
    const bool overfull = rig->calls % 2 == 0;
    c.capacity = rig->calls % 3 == 0 ? 0 : overfull ? 1000 : UINT32_MAX;
    for (int32_t r = 0; r < n; r++) { /* all else in the header and behind it is random */
        struct tri_header header = get_header(rig, &c, r);
        header.signature =
            c.signature ^ (r == wrong && !overfull ? 1u << kernels_random() % 32 : 0);
        if (c.capacity != UINT32_MAX) /* otherwise there is no count: any word */
            header.count = r == wrong && overfull ? c.capacity + 1 + kernels_random() % 9
                           : r % 2 == 0           ? c.capacity
                                                  : 0;
        header.nonfinite = r == infinite ? 1u << kernels_random() % 32 : 0;
        memcpy(rig->arena.image + c.headers + (size_t)r * stride, &header, sizeof header);
    }
    c.packets = rig->calls % 4 == 0 || n > TRI_MAX_LISTS
                    ? SPARSE_NONE
                    : arena_place(&rig->arena, (size_t)n * sizeof(struct tri_header), 0);
    const int32_t anew = rig->calls % 4 == 3 ? n - 1 : -1; /* its packet is of another call */
    for (int32_t r = 0; r < n && c.packets != SPARSE_NONE; r++)
        sparse_word_put(rig->arena.image, calls_at(&c, r),
                        get_header(rig, &c, r).calls + (r == anew));
    c.current = in_place ? SPARSE_NONE : sparse_word(rig, kernels_random() & 1);
    c.velocity = rig->calls % 5 < 2 ? SPARSE_NONE : sparse_word(rig, kernels_random() & 1);
    c.revokes = abort_flag != 0 && rig->calls % 2 == 0;
    c.decision = sparse_word(rig, c.revokes ? kernels_random() & 1 : 7);
    c.outcome = sparse_word(rig, 7);
    c.overflow = rig->calls % 3 == 0 ? SPARSE_NONE : sparse_word(rig, rig->calls % 3 == 1);
    const struct sparse_call call = {"decide", queue_decide, expect_decide, NULL, &c, 1, 0,
                                     0,        TRIB_F32};
    sparse_run(rig, &call);
    check_end();
}

static void decisions(struct sparse_rig *rig)
{
    static const int32_t sizes[] = {1, 2, 3, 31, 32, 33, 63, 64};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int wrong = 0; wrong < 4; wrong++)
            for (int infinite = 0; infinite < 4; infinite++) {
                const int32_t n = sizes[s], places[] = {-1, 0, n / 2, n - 1};
                const uint32_t abort_flag = (wrong + infinite) % 3 == 2 ? 0x80000000u : 0;
                const size_t stride = wrong % 2 ? 64 : 64 + 128 * (s + 1);
                decide_case(rig, n, stride, 0, places[wrong], places[infinite], s % 2 == 0);
                decide_case(rig, n, stride, abort_flag, places[wrong], places[infinite], false);
            }
    decide_case(rig, 300, 64, 0, -1, 299, false);
    decide_case(rig, 1025, 64, 0, 1024, 0, false);
    decide_case(rig, 1025, 64, 0, -1, -1, false);
}

/* ------------------------------------------------------------------------------ residual_update */

struct updating {
    struct sparse_state state;
    struct sparse_list list, among;
    bool has_among;
    enum tri_update how;
    size_t decision, matched;
};

static trib_status queue_update(const struct sparse_target *target, const void *argument)
{
    const struct updating *s = argument;
    const struct tri_accumulator acc = sparse_accumulator(&s->state, target->memory);
    const struct tri_entries list = sparse_entries(&s->list, target->memory);
    const struct tri_entries among = sparse_entries(&s->among, target->memory);
    return target->kernels->residual_update(&acc, &list, s->how, s->has_among ? &among : NULL,
                                            sparse_at(target->memory, s->decision),
                                            sparse_at(target->memory, s->matched), target->stream);
}

static bool has_index(const struct sparse_rig *rig, const struct sparse_list *list, uint32_t index,
                      uint32_t *from)
{
    const uint32_t n = sparse_list_count(rig, list);
    while (*from < n && sparse_list_index(rig, list, *from) < index)
        ++*from;
    return *from < n && sparse_list_index(rig, list, *from) == index;
}

static double updated(enum tri_update how, double residual, double value)
{
    return how == TRI_UPDATE_CLEAR ? 0
           : how == TRI_UPDATE_ADD ? residual + value
                                   : residual - value;
}

static void expect_update(struct sparse_rig *rig, const void *argument)
{
    const struct updating *s = argument;
    const trib_dtype dtype = s->state.dtype;
    const bool go = sparse_word_get(rig->arena.image, s->decision) != 0;
    const size_t residual = sparse_residual_at(rig, &s->state);
    uint32_t matched = 0, from = 0;
    for (uint32_t i = 0; go && i < sparse_list_count(rig, &s->list); i++) {
        const uint32_t index = sparse_list_index(rig, &s->list, i);
        unsigned char *element = rig->arena.image + residual + index * trib_dtype_size(dtype);
        if (s->has_among && !has_index(rig, &s->among, index, &from))
            continue;
        kernels_put(
            element, dtype,
            updated(s->how, kernels_get(element, dtype), sparse_list_value(rig, &s->list, i)));
        matched++;
    }
    if (s->matched != SPARSE_NONE)
        sparse_word_put(rig->arena.image, s->matched, matched);
}

enum among { NO_AMONG, SOME_AMONG, SAME_AMONG, EMPTY_AMONG, ALL_AMONG, AMONGS };

/* An update of `count` elements of `dtype` by a list of `entries` of `wire`. */
struct update {
    size_t count;
    uint32_t entries;
    trib_dtype dtype, wire;
    bool in_place;
    enum tri_update how;
    enum among among;
    uint32_t decision;
};

static void place_update(struct sparse_rig *rig, const struct update *u, struct updating *s)
{
    arena_reset(&rig->arena);
    s->state = sparse_state_place(rig, u->count, u->dtype, u->in_place ? 0 : u->dtype, rig->calls);
    sparse_fill(rig->arena.image + sparse_residual_at(rig, &s->state), u->dtype, u->count,
                rig->calls % 7 == 0 ? SPARSE_INFINITIES : SPARSE_GAUSS, 0);
    const bool counted = rig->calls % 3 != 0;
    s->list = sparse_list_place(rig, u->entries + (counted ? 6 : 0), u->wire, counted);
    sparse_list_fill(rig, &s->list, 0, u->count, u->entries, SPARSE_GAUSS);
    const uint32_t other = u->among == EMPTY_AMONG  ? 0
                           : u->among == ALL_AMONG  ? (uint32_t)u->count
                           : u->among == SAME_AMONG ? u->entries
                                                    : (uint32_t)u->count / 3;
    s->among = sparse_list_place(rig, other + (counted ? 0 : 2), u->dtype, !counted);
    sparse_list_fill(rig, &s->among, 0, u->count, other, SPARSE_GAUSS);
    if (u->among == SAME_AMONG)
        memcpy(rig->arena.image + s->among.index, rig->arena.image + s->list.index,
               u->entries * sizeof(uint32_t));
    s->decision = sparse_word(rig, u->decision);
    s->matched = rig->calls % 5 == 0 ? SPARSE_NONE : sparse_word(rig, 99);
}

static void update_case(struct sparse_rig *rig, const struct update *u)
{
    if (sparse_leaves_out(rig, 7))
        return;
    struct updating s = {.how = u->how, .has_among = u->among != NO_AMONG};
    check_begin("%s residual_update %u of %zu %s, %s, how %d, among %d, decision %u%s",
                rig->arena.place->kernels->name, u->entries, u->count, trib_dtype_name(u->dtype),
                trib_dtype_name(u->wire), (int)u->how, (int)u->among, u->decision,
                u->in_place ? ", in place" : "");
    place_update(rig, u, &s);
    const struct sparse_call call = {.what = "residual_update",
                                     .queue = queue_update,
                                     .expect = expect_update,
                                     .argument = &s,
                                     .count = u->count,
                                     .entries = s.list.capacity + s.among.capacity,
                                     .k = u->entries,
                                     .dtype = u->dtype};
    sparse_run(rig, &call);
    check_end();
}

static void updates(struct sparse_rig *rig)
{
    static const size_t counts[] = {0, 1, 33, 4097, 100003};
    for (size_t c = 0; c < (rig->quick ? 4 : 5); c++)
        for (int type = 0; type < 3; type++)
            for (int among = 0; among < AMONGS; among++)
                for (int turn = 0; turn < 6; turn++) {
                    const trib_dtype dtype = type == 2 ? TRIB_F64 : TRIB_F32;
                    const struct update update = {.count = counts[c],
                                                  .entries =
                                                      (uint32_t)(counts[c] / (turn < 2 ? 1 : 7)),
                                                  .dtype = dtype,
                                                  .wire = type == 1 ? TRIB_BF16 : dtype,
                                                  .in_place = (turn + type) % 2 == 0,
                                                  .how = (enum tri_update)(turn % 3),
                                                  .among = (enum among)among,
                                                  .decision = turn != 3};
                    update_case(rig, &update);
                }
}

/* --------------------------------------------------------------------------------------- record */

struct recording {
    struct sparse_clearing result;
    size_t counters, published, outcome, selected, applied, fallbacks, norm;
    uint64_t traffic[4];
    uint32_t exact_fallbacks;
};

static trib_status queue_record(const struct sparse_target *target, const void *argument)
{
    const struct recording *r = argument;
    unsigned char *memory = target->memory;
    struct tri_record record = {
        .counters = sparse_at(memory, r->counters),
        .published = sparse_at(memory, r->published),
        .result = sparse_clearing(&r->result, memory),
        .decision = sparse_at(memory, r->result.decision),
        .outcome = sparse_at(memory, r->outcome),
        .selected = sparse_at(memory, r->selected),
        .applied = sparse_at(memory, r->applied),
        .fallbacks = sparse_at(memory, r->fallbacks),
        .norm = sparse_at(memory, r->norm),
        .words_sent = r->traffic[0],
        .words_received = r->traffic[1],
        .bytes_sent = r->traffic[2],
        .bytes_received = r->traffic[3],
        .exact_fallbacks = r->exact_fallbacks,
    };
    const trib_status status = target->kernels->record(&record, target->stream);
    memset(&record, 0x5a, sizeof record); /* the caller's again */
    return status;
}

static void expect_record(struct sparse_rig *rig, const void *argument)
{
    const struct recording *r = argument;
    const unsigned char *image = rig->arena.image;
    struct tri_counters counters;
    memcpy(&counters, image + r->counters, sizeof counters);
    counters.outcome = sparse_word_get(image, r->outcome);
    counters.ended++;
    counters.non_finite_calls +=
        counters.outcome == TRI_OUTCOME_NON_FINITE || counters.outcome == TRI_OUTCOME_OVERFLOW;
    sparse_expect_cleared(rig, &r->result);
    if (sparse_word_get(image, r->result.decision) != 0) {
        counters.applied_calls++;
        counters.selected = sparse_word_get(image, r->selected);
        counters.applied = sparse_word_get(image, r->applied);
        counters.total_selected += counters.selected;
        counters.total_applied += counters.applied;
        counters.words_sent += r->traffic[0];
        counters.words_received += r->traffic[1];
        counters.bytes_sent += r->traffic[2];
        counters.bytes_received += r->traffic[3];
        counters.fallbacks = sparse_word_get(image, r->fallbacks);
        counters.exact_fallbacks += r->exact_fallbacks;
        if (r->norm != SPARSE_NONE)
            memcpy(&counters.norm, image + r->norm, sizeof counters.norm);
    }
    counters.check = tri_counters_check(&counters);
    memcpy(rig->arena.image + r->counters, &counters, sizeof counters);
    memcpy(rig->arena.image + r->published, &counters, sizeof counters);
}

/* Several calls in a row on the same counters. */
static void record_case(struct sparse_rig *rig, bool has_norm, size_t bytes, size_t shift)
{
    struct recording r;
    check_begin("%s record%s, a result of %zu bytes, shift %zu", rig->arena.place->kernels->name,
                has_norm ? ", with a norm" : "", bytes, shift == SPARSE_NONE ? 0 : shift);
    arena_reset(&rig->arena);
    r.counters = arena_place(&rig->arena, sizeof(struct tri_counters), 0);
    r.published = arena_place(&rig->arena, sizeof(struct tri_counters), 0);
    memset(rig->arena.image + r.counters, 0, sizeof(struct tri_counters));
    kernels_put(rig->arena.image + r.counters + offsetof(struct tri_counters, norm), TRIB_F64, -1);
    r.result = sparse_place_clearing(rig, bytes, shift, 0);
    r.outcome = sparse_word(rig, 0);
    r.selected = sparse_word(rig, 0);
    r.applied = sparse_word(rig, 0);
    r.fallbacks = sparse_word(rig, 0);
    r.norm = has_norm ? sparse_number(rig, TRIB_F64, 0) : SPARSE_NONE;
    for (uint32_t i = 0; i < 12; i++) {
        const uint32_t outcome = 1 + i * 7 % 5;
        for (int t = 0; t < 4; t++)
            r.traffic[t] = kernels_random() >> 20;
        r.exact_fallbacks = i % 3;
        sparse_word_put(rig->arena.image, r.outcome, outcome);
        sparse_word_put(rig->arena.image, r.result.decision, outcome == TRI_OUTCOME_APPLIED);
        sparse_word_put(rig->arena.image, r.selected, (uint32_t)kernels_random());
        sparse_word_put(rig->arena.image, r.applied, (uint32_t)kernels_random());
        sparse_word_put(rig->arena.image, r.fallbacks, i / 2);
        if (has_norm)
            kernels_put(rig->arena.image + r.norm, TRIB_F64, i + 0.1);
        const struct sparse_call call = {"record", queue_record, expect_record, NULL, &r, 1, 0,
                                         0,        TRIB_F32};
        sparse_run(rig, &call);
    }
    check_end();
}

void sparse_end_suite(struct sparse_rig *rig)
{
    decisions(rig);
    updates(rig);
    record_case(rig, false, 0, SPARSE_NONE);
    record_case(rig, true, 100, 4);
    record_case(rig, false, 1234567, 6);
}

void sparse_pinned_suite(struct sparse_rig *rig)
{
    record_case(rig, true, 40, 8);
    for (uint32_t abort_flag = 0; abort_flag < 2; abort_flag++)
        decide_case(rig, 8, 64, abort_flag, -1, -1, false);
}

void sparse_end_long(struct sparse_rig *rig, size_t n)
{
    const struct update update = {.count = n,
                                  .entries = 50000,
                                  .dtype = TRIB_F32,
                                  .wire = TRIB_F32,
                                  .in_place = true,
                                  .how = TRI_UPDATE_SUBTRACT,
                                  .among = SAME_AMONG,
                                  .decision = 1};
    update_case(rig, &update);
}
