/* The model's memory, and its steps. */
#include "tests/pull/model_state.h"

#include <string.h>

enum { POISON = 0xa5 };

/* ------------------------------------------------------------------------------------ the places */

static size_t workers_of(const struct model_search *s, const struct model_state *state, int rank)
{
    return s->model->calls[state->call[rank]].workers;
}

/* In `control` of a rank; false if it is in data. */
static bool place_in_control(const struct model_search *s, const void *at,
                             struct model_place *place)
{
    for (int r = 0; r < s->model->ranks; r++) {
        const struct tri_pull_control *const control = &s->control[r];
        if ((const char *)at < (const char *)control ||
            (const char *)at >= (const char *)(control + 1))
            continue;
        const size_t offset = (size_t)((const char *)at - (const char *)control);
        size_t word = (offset - offsetof(struct tri_pull_control, turn)) / sizeof(uint64_t);
        if (offset >= offsetof(struct tri_pull_control, posts)) {
            const size_t inside = offset - offsetof(struct tri_pull_control, posts);
            const size_t post = inside / sizeof(struct tri_pull_post);
            const size_t block = post / TRI_PULL_RANKS, from = post % TRI_PULL_RANKS;
            word = MODEL_WORKERS + (block * MODEL_RANKS + from) * MODEL_POST +
                   inside % sizeof(struct tri_pull_post) / sizeof(uint64_t);
        }
        *place = (struct model_place){(uint8_t)r, false, (uint16_t)word};
        return true;
    }
    return false;
}

static struct model_place place_of(const struct model_search *s, const void *at, size_t half)
{
    struct model_place place;
    if (place_in_control(s, at, &place))
        return place;
    const size_t offset = (size_t)((const unsigned char *)at - &s->base[0][0]);
    size_t inside = offset % MODEL_DATA;
    if (s->model->bug == MODEL_ONE_HALF && inside >= 2 * MODEL_BUFFER && inside / half % 2 != 0)
        inside -= half;
    return (struct model_place){(uint8_t)(offset / MODEL_DATA), true, (uint16_t)inside};
}

static bool same_place(struct model_place a, struct model_place b)
{
    return a.owner == b.owner && a.is_data == b.is_data && a.at == b.at;
}

/* Only while its owner is in the call may a buffer be accessed. */
static void check_access(struct model_search *s, const struct model_state *state,
                         struct model_place place, int call)
{
    if (!place.is_data || place.at >= 2 * MODEL_BUFFER)
        return;
    if (state->call[place.owner] < call)
        s->report.wrong = "a buffer is accessed before its rank has begun the call";
    else if (state->call[place.owner] > call || state->finished[place.owner])
        s->report.wrong = "a buffer is accessed after its rank has ended the call";
}

/* -------------------------------------------------------------------------------------- on its way */

static void send_store(struct model_search *s, struct model_state *state, struct model_store store)
{
    size_t i = state->n_stores++;
    if (state->n_stores == MODEL_IN_FLIGHT) {
        s->report.wrong = "the model has too little room for stores on their way";
        state->n_stores--;
        return;
    }
    for (; i > 0 && state->stores[i - 1].from > store.from; i--)
        state->stores[i] = state->stores[i - 1];
    memset(&state->stores[i], 0, sizeof store);
    memcpy(&state->stores[i], &store, sizeof store);
}

bool model_may_arrive(const struct model_search *s, const struct model_state *state, size_t i)
{
    const struct model_store *const store = &state->stores[i];
    for (const struct model_store *before = state->stores; before < store; before++)
        if (before->from == store->from && (same_place(before->place, store->place) ||
                                            (store->releases && s->model->bug != MODEL_RELAXED)))
            return false;
    return true;
}

void model_arrive(struct model_search *s, struct model_state *state, size_t i)
{
    const struct model_store store = state->stores[i];
    check_access(s, state, store.place, store.call);
    if (store.place.is_data)
        memcpy(state->data[store.place.owner] + store.place.at, store.value, store.bytes);
    else if (store.adds)
        state->words[store.place.owner][store.place.at] += store.value[0];
    else
        state->words[store.place.owner][store.place.at] = store.value[0];
    state->n_stores--;
    memmove(&state->stores[i], &state->stores[i + 1],
            (state->n_stores - i) * sizeof state->stores[0]);
    memset(&state->stores[state->n_stores], 0, sizeof state->stores[0]);
}

/* What the worker has on its way into those bytes, the last of it last. */
static void add_own_stores(const struct model_state *state, int from, struct model_place place,
                           unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < state->n_stores; i++) {
        const struct model_store *const store = &state->stores[i];
        if (store->from != from || !store->place.is_data || store->place.owner != place.owner)
            continue;
        for (size_t k = 0; k < bytes; k++) {
            const size_t at = place.at + k;
            if (at >= store->place.at && at < store->place.at + (size_t)store->bytes)
                data[k] = ((const unsigned char *)store->value)[at - store->place.at];
        }
    }
}

static bool has_stores(const struct model_state *state, int first, int end)
{
    for (size_t i = 0; i < state->n_stores; i++)
        if (state->stores[i].from >= first && state->stores[i].from < end)
            return true;
    return false;
}

/* ------------------------------------------------------------------------------------------ calls */

size_t model_sent(const struct model *model, size_t call)
{
    const struct model_call *c = &model->calls[call];
    return tri_pull_scatters(c->kind) ? c->count * (size_t)model->ranks : c->count;
}

size_t model_received(const struct model *model, size_t call)
{
    const struct model_call *c = &model->calls[call];
    return tri_pull_gathers(c->kind) ? c->count * (size_t)model->ranks : c->count;
}

/* The rank's block of a buffer, if it is in place and the buffer is one of blocks. */
static size_t block_at(const struct model *model, size_t call, int rank, enum tri_pull_kind kind)
{
    const struct model_call *c = &model->calls[call];
    const bool has_blocks = (c->in_place >> rank & 1) != 0 && c->kind == kind;
    return has_blocks ? (size_t)rank * c->count * sizeof(uint32_t) : 0;
}

/* Send is in one of the two buffers, in turn, so that pointers are never those of the call before. */
size_t model_send_at(const struct model *model, size_t call, int rank)
{
    return call % 2 * MODEL_BUFFER + block_at(model, call, rank, TRI_PULL_ALLGATHER);
}

size_t model_recv_at(const struct model *model, size_t call, int rank)
{
    const bool in_place = (model->calls[call].in_place >> rank & 1) != 0;
    return (in_place ? call % 2 : 1 - call % 2) * MODEL_BUFFER +
           block_at(model, call, rank, TRI_PULL_REDUCE_SCATTER);
}

void model_begin_call(struct model_search *s, struct model_state *state, int rank)
{
    const size_t call = state->call[rank], workers = workers_of(s, state, rank);
    state->finished[rank] = false;
    memset(state->data[rank], POISON, 2 * (size_t)MODEL_BUFFER);
    memcpy(state->data[rank] + model_send_at(s->model, call, rank), s->sent[call][rank],
           model_sent(s->model, call) * sizeof(uint32_t));
    memset(state->workers[rank], 0, sizeof state->workers[rank]);
    for (size_t w = 0; w < MODEL_WORKERS; w++) {
        tri_pull_begin(&state->workers[rank][w], &s->jobs[call], &s->here[call][rank], w, workers);
        if (w >= workers)
            state->workers[rank][w].phase = TRI_PULL_AT_END;
    }
}

static bool has_ended(const struct model_state *state, int rank)
{
    for (int w = 0; w < MODEL_WORKERS; w++)
        if (state->workers[rank][w].phase != TRI_PULL_AT_END)
            return false;
    return !has_stores(state, rank * MODEL_WORKERS, (rank + 1) * MODEL_WORKERS);
}

bool model_may_begin(const struct model_search *s, const struct model_state *state, int rank)
{
    return state->finished[rank] && !state->gave_up[rank] && state->call[rank] + 1u < s->model->n;
}

static void finish(struct model_search *s, struct model_state *state, int rank)
{
    const size_t call = state->call[rank];
    const unsigned char *recv = state->data[rank] + model_recv_at(s->model, call, rank);
    if (!state->gave_up[rank] && memcmp(recv, s->expected[call][rank],
                                        model_received(s->model, call) * sizeof(uint32_t)) != 0)
        s->report.wrong = "a result is wrong";
    memset(state->data[rank], POISON, 2 * (size_t)MODEL_BUFFER);
    memset(state->workers[rank], 0, sizeof state->workers[rank]);
    for (int w = 0; w < MODEL_WORKERS; w++)
        state->workers[rank][w].phase = TRI_PULL_AT_END;
    state->finished[rank] = true;
}

void model_finish(struct model_search *s, struct model_state *state)
{
    for (int r = 0; r < s->model->ranks; r++)
        if (!state->finished[r] && has_ended(state, r))
            finish(s, state, r);
}

/* ------------------------------------------------------------------------------------------ steps */

static void send_access(struct model_search *s, struct model_state *state,
                        const struct tri_pull_access *access, struct model_place place, int rank,
                        int index)
{
    struct model_store store = {.place = place,
                                .from = (uint8_t)(rank * MODEL_WORKERS + index),
                                .bytes = (uint8_t)access->bytes,
                                .call = state->call[rank],
                                .adds = access->act == TRI_PULL_ADD,
                                .releases =
                                    access->act == TRI_PULL_ADD || access->act == TRI_PULL_RELEASE};
    store.value[0] = access->value;
    if (place.is_data)
        memcpy(store.value, access->data, access->bytes);
    send_store(s, state, store);
}

static void load(struct model_search *s, const struct model_state *state,
                 const struct tri_pull_access *access, struct model_place place, int rank,
                 int index)
{
    check_access(s, state, place, state->call[rank]);
    memcpy(access->data, state->data[place.owner] + place.at, access->bytes);
    add_own_stores(state, rank * MODEL_WORKERS + index, place, access->data, access->bytes);
}

/* The word that an atomic or a read finds, and changes. */
static uint64_t find_word(struct model_state *state, const struct tri_pull_access *access,
                          struct model_place place)
{
    uint64_t *const word = &state->words[place.owner][place.at], found = *word;
    if (access->act == TRI_PULL_OR)
        *word |= access->value;
    if (access->act == TRI_PULL_SWAP && found == access->expected)
        *word = access->value;
    return found;
}

/* What a worker that does something wrong believes to have found. */
static uint64_t believed(const struct model_search *s, const struct tri_pull_worker *worker,
                         const struct tri_pull_access *access, uint64_t found)
{
    const uint64_t far = TRI_PULL_LEFT - TRI_PULL_TURN;
    const bool awaits = worker->phase == TRI_PULL_TO_AWAIT,
               takes = worker->phase == TRI_PULL_TO_TAKE;
    switch (s->model->bug) {
    case MODEL_NO_FIRST:
        return takes ? access->expected : found;
    case MODEL_NO_LAST:
        return awaits && worker->ended ? far : found;
    case MODEL_NO_PIECE:
        return awaits && !worker->ended ? far : found;
    case MODEL_ALONE:
        return worker->phase == TRI_PULL_TO_LEAVE ? 0 : found;
    case MODEL_DEAF:
        return takes && (found & TRI_PULL_LEFT) != 0 ? access->expected : found;
    default:
        return found;
    }
}

bool model_is_quiet(const struct model_state *state, int rank, int index)
{
    struct tri_pull_worker worker = state->workers[rank][index];
    if (worker.phase == TRI_PULL_AT_END)
        return false;
    switch (tri_pull_next(&worker).act) {
    case TRI_PULL_WRITE:
    case TRI_PULL_RELEASE:
    case TRI_PULL_ADD:
    case TRI_PULL_STORE:
        return true;
    default:
        return worker.phase == TRI_PULL_TO_BEGIN || worker.phase == TRI_PULL_TO_STAGE;
    }
}

bool model_step(struct model_search *s, struct model_state *state, int rank, int index)
{
    struct tri_pull_worker *worker = &state->workers[rank][index];
    const int from = rank * MODEL_WORKERS + index;
    uint64_t found = 0;
    if (worker->phase == TRI_PULL_AT_END)
        return false;
    const struct tri_pull_access access = tri_pull_next(worker);
    if (access.act == TRI_PULL_OR && has_stores(state, from, from + 1))
        return false;
    const size_t half = tri_pull_half(s->jobs[state->call[rank]].scratch_bytes,
                                      (uint32_t)workers_of(s, state, rank));
    const struct model_place place = place_of(s, access.at, half);
    switch (access.act) {
    case TRI_PULL_WRITE:
    case TRI_PULL_RELEASE:
    case TRI_PULL_ADD:
    case TRI_PULL_STORE:
        send_access(s, state, &access, place, rank, index);
        break;
    case TRI_PULL_LOAD:
        load(s, state, &access, place, rank, index);
        break;
    default:
        found = believed(s, worker, &access, find_word(state, &access, place));
        break;
    }
    if (worker->phase == TRI_PULL_TO_LEAVE || worker->phase == TRI_PULL_TO_PART)
        state->gave_up[rank] = true;
    return tri_pull_performed(worker, found);
}
