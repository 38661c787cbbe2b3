/* The search through all orders of the model's steps, or some of them by chance. */
#include "tests/pull/model.h"

#include <stdint.h>
#include <string.h>

#include "tests/pull/model_state.h"

/* ---------------------------------------------------------------------------------------- the ways */

/* What a worker does that nobody sees before it arrives, it does before anything else happens; so do ranks
 * whose call has ended. Nothing is lost by that. */
static void settle(struct model_search *s, struct model_state *state)
{
    for (int r = 0; r < s->model->ranks; r++)
        for (int w = 0; w < MODEL_WORKERS; w++)
            while (s->report.wrong == NULL && model_is_quiet(state, r, w) &&
                   model_step(s, state, r, w))
                continue;
    model_finish(s, state);
}

/* Way number `way` of a worker: its step, or that it gives up. */
static bool go_on(struct model_search *s, struct model_state *to, int rank, int index, size_t way)
{
    if (way == 0)
        return model_step(s, to, rank, index);
    if (!s->model->aborts || !tri_pull_waits(&to->workers[rank][index]))
        return false;
    tri_pull_give_up(&to->workers[rank][index]);
    to->gave_up[rank] = true;
    return true;
}

/* What way number `way` of all makes of the state; false if there is nothing in it. */
static bool take_way(struct model_search *s, const struct model_state *from, size_t way,
                     struct model_state *to)
{
    if (way < MODEL_IN_FLIGHT) {
        if (way >= from->n_stores || !model_may_arrive(s, from, way))
            return false;
        memcpy(to, from, sizeof *to);
        model_arrive(s, to, way);
        settle(s, to);
        return true;
    }
    way -= MODEL_IN_FLIGHT;
    const int rank = (int)(way / (2 * MODEL_WORKERS + 1));
    const size_t which = way % (2 * MODEL_WORKERS + 1);
    if (rank >= s->model->ranks)
        return false;
    if (which < 2 * MODEL_WORKERS) {
        if (from->workers[rank][which / 2].phase == TRI_PULL_AT_END)
            return false;
        memcpy(to, from, sizeof *to);
        if (!go_on(s, to, rank, (int)which / 2, which % 2))
            return false;
    } else {
        if (!model_may_begin(s, from, rank))
            return false;
        memcpy(to, from, sizeof *to);
        to->call[rank]++;
        model_begin_call(s, to, rank);
    }
    settle(s, to);
    return true;
}

enum { WAYS = MODEL_IN_FLIGHT + MODEL_RANKS * (2 * MODEL_WORKERS + 1) };

/* No way leads on. */
static void check_end_state(struct model_search *s, const struct model_state *state)
{
    bool aborted = false;
    for (int r = 0; r < s->model->ranks; r++)
        aborted = aborted || state->gave_up[r];
    for (int r = 0; r < s->model->ranks; r++)
        if (!state->finished[r] || (!aborted && state->call[r] + 1u != s->model->n))
            s->report.wrong = "all ranks wait, and nothing is on its way";
    for (int r = 1; r < s->model->ranks && !aborted; r++)
        if (memcmp(state->words[0], state->words[r], MODEL_WORKERS * sizeof(uint64_t)) != 0)
            s->report.wrong = "twins have been at other numbers of barriers";
}

/* ---------------------------------------------------------------------------------------- all of them */

/* False if the state was known; it is now. */
static bool is_new(struct model_search *s, const struct model_state *state)
{
    const bool found = seen_new(&s->seen, state, sizeof *state);
    s->report.states += found;
    return found;
}

static void explore(struct model_search *s, const struct model_state *from, size_t depth)
{
    struct model_state to;
    bool ends = true;
    s->report.deepest = depth > s->report.deepest ? depth : s->report.deepest;
    if (s->report.states >= s->model->most) {
        s->report.whole = false;
        return;
    }
    for (size_t way = 0; way < WAYS && s->report.wrong == NULL; way++)
        if (take_way(s, from, way, &to)) {
            ends = false;
            if (s->report.wrong == NULL && is_new(s, &to))
                explore(s, &to, depth + 1);
        }
    if (ends && s->report.wrong == NULL)
        check_end_state(s, from);
}

/* -------------------------------------------------------------------------------------- some by chance */

static uint64_t draw(uint64_t *row)
{
    *row ^= *row << 13;
    *row ^= *row >> 7;
    *row ^= *row << 17;
    return *row >> 16;
}

/* Is it that a worker gives up? */
static bool gives_up(size_t way)
{
    const size_t which =
        way < MODEL_IN_FLIGHT ? 0 : (way - MODEL_IN_FLIGHT) % (2 * MODEL_WORKERS + 1);
    return which < 2 * MODEL_WORKERS && which % 2 != 0;
}

/* One way to the end. Some sources of steps are seldom drawn, so that they are late by a lot. */
static void walk(struct model_search *s, const struct model_state *from, uint64_t *row)
{
    static struct model_state now, to;
    const uint64_t seldom = draw(row);
    size_t tried = 0, depth = 0;
    memcpy(&now, from, sizeof now);
    while (s->report.wrong == NULL && tried < WAYS) {
        const size_t first = draw(row) % WAYS;
        for (tried = 0; tried < WAYS && s->report.wrong == NULL; tried++) {
            const size_t way = (first + tried) % WAYS;
            const bool late = (seldom >> way % 40 & 1) != 0 && tried < WAYS / 2;
            if ((late && draw(row) % 16 != 0) || (gives_up(way) && draw(row) % 64 != 0))
                continue;
            if (!take_way(s, &now, way, &to))
                continue;
            memcpy(&now, &to, sizeof now);
            s->report.states++;
            depth++;
            break;
        }
    }
    s->report.deepest = depth > s->report.deepest ? depth : s->report.deepest;
    for (size_t way = 0; way < WAYS && s->report.wrong == NULL; way++)
        if (take_way(s, &now, way, &to))
            return; /* what was left out is left */
    if (s->report.wrong == NULL)
        check_end_state(s, &now);
}

/* ------------------------------------------------------------------------------------- the beginning */

/* A number for every call, rank and element. */
static void fill_call(struct model_search *s, size_t call)
{
    for (int r = 0; r < s->model->ranks; r++)
        for (size_t i = 0; i < model_sent(s->model, call); i++)
            s->sent[call][r][i] = (uint32_t)(call * 1000 + i * 100 + 10 * (size_t)r + 1) * 0x10001;
}

/* Element `i` of what rank `r` gets. */
static uint32_t expected_of(const struct model_search *s, size_t call, int r, size_t i)
{
    const struct model_call *c = &s->model->calls[call];
    const size_t own = tri_pull_scatters(c->kind) ? (size_t)r * c->count : 0;
    uint32_t sum = 0;
    if (tri_pull_gathers(c->kind))
        return s->sent[call][i / c->count][own + i % c->count];
    if (c->kind == TRI_PULL_BROADCAST)
        return s->sent[call][s->model->ranks - 1][i];
    for (int p = 0; p < s->model->ranks; p++)
        sum += s->sent[call][p][own + i];
    return sum;
}

static struct tri_pull job_of(const struct model_search *s, size_t call)
{
    const struct model_call *c = &s->model->calls[call];
    const bool copies = tri_pull_copies(c->kind);
    struct tri_pull job = {.here = s->here[call],
                           .n = 1,
                           .size = s->model->ranks,
                           .kind = c->kind,
                           .root = s->model->ranks - 1,
                           .count = c->count * (copies ? sizeof(uint32_t) : 1),
                           .dtype = copies ? TRIB_U8 : TRIB_U32,
                           .op = TRIB_SUM,
                           .way = c->way};
    /* Who reads pointers that have not come takes the call for staged. */
    const bool staged = c->unmapped != 0 || s->model->bug == MODEL_NO_FIRST;
    job.scratch_bytes = MODEL_UNITS * c->workers * tri_pull_slots(&job, staged);
    return job;
}

static void lay_out(struct model_search *s)
{
    for (size_t call = 0; call < s->model->n; call++) {
        const struct model_call *c = &s->model->calls[call];
        s->jobs[call] = job_of(s, call);
        fill_call(s, call);
        for (int r = 0; r < s->model->ranks; r++) {
            unsigned char *const data = s->base[r];
            s->jobs[call].control[r] = &s->control[r];
            s->jobs[call].scratch[r] = data + 2 * MODEL_BUFFER;
            s->here[call][r] =
                (struct tri_pull_rank){.send = data + model_send_at(s->model, call, r),
                                       .recv = data + model_recv_at(s->model, call, r),
                                       .mapped = (c->unmapped >> r & 1) == 0,
                                       .rank = r};
            for (size_t i = 0; i < model_received(s->model, call); i++)
                s->expected[call][r][i] = expected_of(s, call, r, i);
        }
    }
}

struct model_report model_explore(const struct model *model)
{
    static struct model_search search;
    static struct model_state state;
    uint64_t row = 88172645463325252u;
    memset(&search, 0, sizeof search);
    memset(&state, 0, sizeof state);
    search.model = model;
    search.report.whole = true;
    if (!seen_open(&search.seen, model->most)) {
        search.report.wrong = "there is no memory for the model";
        return search.report;
    }
    lay_out(&search);
    for (int r = 0; r < model->ranks; r++)
        model_begin_call(&search, &state, r);
    settle(&search, &state);
    if (model->walks == 0)
        explore(&search, &state, 0);
    for (size_t i = 0; i < model->walks && search.report.wrong == NULL; i++)
        walk(&search, &state, &row);
    seen_close(&search.seen);
    return search.report;
}
