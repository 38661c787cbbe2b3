/* The search through all orders of the model's steps. */
#include "tests/push/model.h"

#include <stdint.h>
#include <string.h>

#include "tests/push/model_state.h"

/* ---------------------------------------------------------------------------------- the search */

/* False if the state was known; it is now. */
static bool is_new(struct model_search *s, const struct model_state *state)
{
    const bool found = seen_new(&s->seen, state, sizeof *state);
    s->report.states += found;
    return found;
}

static void explore(struct model_search *s, const struct model_state *from, size_t depth);

static void follow(struct model_search *s, const struct model_state *state, size_t depth)
{
    if (s->report.wrong == NULL && is_new(s, state))
        explore(s, state, depth + 1);
}

/* A store sets off when its worker comes to it: nobody sees that before it arrives, so nothing is lost
 * by having it do so before anything else happens. */
static bool send_all(struct model_search *s, struct model_state *state)
{
    bool sent = false;
    for (int r = 0; r < s->model->ranks; r++)
        for (int w = 0; w < MODEL_WORKERS; w++)
            while (s->report.wrong == NULL && (state->workers[r][w].act == TRI_PUSH_STORE ||
                                               state->workers[r][w].act == TRI_PUSH_RESTORE))
                sent = model_step(s, state, r, w);
    return sent;
}

/* Every arrival, step and next call that is possible, each in a copy; how many there are. */
static size_t branch(struct model_search *s, const struct model_state *from, size_t depth)
{
    size_t ways = 0;
    struct model_state to;
    for (size_t i = 0; i < from->n_stores; i++) {
        if (i > 0 && model_same_place(&from->stores[i - 1], &from->stores[i]))
            continue;
        memcpy(&to, from, sizeof to);
        model_arrive(s, &to, i);
        follow(s, &to, depth);
        ways++;
    }
    for (int r = 0; r < s->model->ranks; r++) {
        for (int w = 0; w < MODEL_WORKERS; w++) {
            memcpy(&to, from, sizeof to);
            if (!model_step(s, &to, r, w))
                continue;
            (void)send_all(s, &to);
            follow(s, &to, depth);
            ways++;
        }
        if (!model_may_begin(s, from, r))
            continue;
        memcpy(&to, from, sizeof to);
        to.call[r]++;
        model_begin_call(s, &to, r);
        follow(s, &to, depth);
        ways++;
    }
    return ways;
}

static bool is_end(const struct model_search *s, const struct model_state *state)
{
    for (int r = 0; r < s->model->ranks; r++)
        for (int w = 0; w < MODEL_WORKERS; w++)
            if (state->call[r] + 1u != s->model->n || state->workers[r][w].act != TRI_PUSH_END)
                return false;
    return true;
}

static void check_end_state(struct model_search *s, const struct model_state *state)
{
    for (int r = 0; r < s->model->ranks; r++) {
        if (state->turn[r] != s->model->n * TRI_PUSH_EPOCH)
            s->report.wrong = "the epoch is not the number of calls";
        for (size_t i = 0; i < MODEL_SCRATCH; i++)
            if (state->scratch[r][i] != TRI_PUSH_EMPTY_BYTE)
                s->report.wrong = "a granule is not EMPTY after the last call";
    }
}

static void explore(struct model_search *s, const struct model_state *from, size_t depth)
{
    if (depth > s->report.deepest)
        s->report.deepest = depth;
    if (s->report.states >= s->model->most || (s->model->depth != 0 && depth >= s->model->depth)) {
        s->report.whole = false;
        return;
    }
    if (branch(s, from, depth) > 0 || s->report.wrong != NULL)
        return;
    if (is_end(s, from))
        check_end_state(s, from);
    else
        s->report.wrong = "all ranks wait, and nothing is on its way";
}

/* ------------------------------------------------------------------------------- the beginning */

/* A number for every call, rank and element, whose sums are exact in f32. */
static uint32_t number(size_t call, int rank, size_t i)
{
    return (uint32_t)(call * 10000 + i * 100 + 10 * (size_t)rank + 1);
}

static uint32_t element_of(const struct model *m, uint32_t integer)
{
    const float value = (float)integer;
    memcpy(&integer, m->dtype == TRIB_F32 ? (const void *)&value : &integer, sizeof integer);
    return integer;
}

/* Element i of what the call gives the rank. */
static uint32_t result_of(const struct model *m, size_t call, int rank, size_t i)
{
    const struct model_call *c = &m->calls[call];
    uint32_t sum = 0;
    if (c->kind == TRI_PUSH_BROADCAST)
        return number(call, c->root, i);
    const size_t own = tri_push_scatters(c->kind) ? (size_t)rank * c->count : 0;
    if (tri_push_gathers(c->kind))
        return number(call, (int)(i / c->count), own + i % c->count);
    for (int r = 0; r < m->ranks; r++)
        sum += number(call, r, own + i);
    return sum;
}

static void fill_call(struct model_search *s, size_t call)
{
    const struct model *m = s->model;
    const struct model_call *c = &m->calls[call];
    const size_t all = (size_t)m->ranks * c->count;
    for (int r = 0; r < m->ranks; r++) {
        for (size_t i = 0; i < MODEL_ELEMENTS; i++)
            s->sent[call][r][i] = m->nans ? UINT32_MAX : element_of(m, number(call, r, i));
        for (size_t i = 0; i < (tri_push_gathers(c->kind) ? all : c->count); i++)
            s->expected[call][r][i] = element_of(m, result_of(m, call, r, i));
    }
}

static void lay_out(struct model_search *s)
{
    const struct model *m = s->model;
    for (size_t call = 0; call < m->n; call++) {
        const struct model_call *c = &m->calls[call];
        s->jobs[call] = (struct tri_push){.here = s->here[call],
                                          .n = 1,
                                          .size = m->ranks,
                                          .capacity = MODEL_CHUNKS,
                                          .count = c->count,
                                          .dtype = m->dtype,
                                          .op = TRIB_SUM,
                                          .kind = c->kind,
                                          .root = c->root};
        if (tri_push_copies(c->kind)) {
            s->jobs[call].count *= 4;
            s->jobs[call].dtype = TRIB_U8;
        }
        for (int r = 0; r < m->ranks; r++) {
            s->jobs[call].scratch[r] = s->base[r];
            s->here[call][r] = (struct tri_push_rank){
                .send = s->sent[call][r], .recv = s->recv[r], .control = &s->control[r], .rank = r};
        }
        fill_call(s, call);
    }
}

struct model_report model_explore(const struct model *model)
{
    static struct model_search search;
    static struct model_state state;
    memset(&search, 0, sizeof search);
    memset(&state, 0, sizeof state);
    search.model = model;
    search.report.whole = true;
    if (!seen_open(&search.seen, model->most)) {
        search.report.wrong = "there is no memory for the model";
        return search.report;
    }
    lay_out(&search);
    memset(state.scratch, TRI_PUSH_EMPTY_BYTE, sizeof state.scratch);
    for (int r = 0; r < model->ranks; r++)
        model_begin_call(&search, &state, r);
    explore(&search, &state, 0);
    seen_close(&search.seen);
    return search.report;
}
