/* The model's memory, and its steps. */
#include "tests/push/model_state.h"

#include <string.h>

/* ---------------------------------------------------------------------------------- the memory */

static uint64_t read_granule(const struct model_search *s, const struct model_state *state,
                             int rank, size_t at)
{
    uint64_t value = 0;
    memcpy(&value, state->scratch[rank] + at, tri_push_granule_bytes(s->model->dtype));
    return value;
}

/* Where an access goes. */
static struct model_store place_of(const struct model_search *s,
                                   const struct tri_push_access *access)
{
    const size_t at = (size_t)((unsigned char *)access->at - &s->base[0][0]);
    const size_t buffer = ((size_t)s->model->ranks - 1) * MODEL_CHUNKS * TRI_PUSH_CHUNK;
    size_t inside = at % MODEL_SCRATCH;
    if (s->model->bug == MODEL_ONE_BUFFER)
        inside %= buffer;
    return (struct model_store){access->value, (uint16_t)inside, (uint8_t)(at / MODEL_SCRATCH),
                                access->act == TRI_PUSH_RESTORE};
}

/* Behind those for the same place, and for places before it. */
static void send_store(struct model_search *s, struct model_state *state, struct model_store store)
{
    size_t i = state->n_stores++;
    if (state->n_stores == MODEL_IN_FLIGHT) {
        s->report.wrong = "the model has too little room for stores on their way";
        state->n_stores--;
        return;
    }
    for (; i > 0; i--) {
        const struct model_store *before = &state->stores[i - 1];
        if (before->owner < store.owner || (before->owner == store.owner && before->at <= store.at))
            break;
        state->stores[i] = *before;
    }
    memset(&state->stores[i], 0, sizeof store);
    state->stores[i].value = store.value;
    state->stores[i].at = store.at;
    state->stores[i].owner = store.owner;
    state->stores[i].restores = store.restores;
}

bool model_same_place(const struct model_store *a, const struct model_store *b)
{
    return a->owner == b->owner && a->at == b->at;
}

void model_arrive(struct model_search *s, struct model_state *state, size_t i)
{
    const struct model_store store = state->stores[i];
    const size_t bytes = tri_push_granule_bytes(s->model->dtype);
    if (!store.restores &&
        read_granule(s, state, store.owner, store.at) != tri_push_empty(s->model->dtype))
        s->report.wrong = "a granule was pushed into one that had not been read";
    memcpy(state->scratch[store.owner] + store.at, &store.value, bytes);
    state->n_stores--;
    memmove(&state->stores[i], &state->stores[i + 1],
            (state->n_stores - i) * sizeof state->stores[0]);
    memset(&state->stores[state->n_stores], 0, sizeof state->stores[0]);
}

/* ----------------------------------------------------------------------------------- the steps */

void model_begin_call(struct model_search *s, struct model_state *state, int rank)
{
    const size_t call = state->call[rank];
    const size_t workers = s->model->calls[call].workers[rank];
    memset(state->workers[rank], 0, sizeof state->workers[rank]);
    for (size_t w = 0; w < MODEL_WORKERS; w++) {
        tri_push_begin(&state->workers[rank][w], &s->jobs[call], &s->here[call][rank], w, workers);
        if (w >= workers)
            state->workers[rank][w].act = TRI_PUSH_END;
    }
}

bool model_may_begin(const struct model_search *s, const struct model_state *state, int rank)
{
    if (state->call[rank] + 1u >= s->model->n)
        return false;
    for (int w = 0; w < MODEL_WORKERS; w++)
        if (state->workers[rank][w].act != TRI_PUSH_END)
            return false;
    for (size_t i = 0; i < state->n_stores; i++)
        if (state->stores[i].restores && state->stores[i].owner == rank &&
            s->model->bug != MODEL_LATE_RESTORE)
            return false;
    return true;
}

/* What the worker finds when it counts itself. */
static uint64_t count_worker(const struct model_search *s, struct model_state *state, int rank,
                             uint64_t add)
{
    const uint32_t found = state->turn[rank];
    state->turn[rank] += (uint32_t)add;
    if (s->model->bug == MODEL_EARLY_EPOCH && add != 1)
        state->turn[rank] -= TRI_PUSH_EPOCH;
    else if (s->model->bug == MODEL_EARLY_EPOCH && found % TRI_PUSH_EPOCH == 0)
        state->turn[rank] += TRI_PUSH_EPOCH;
    return found;
}

/* Has the chunk that this worker has just finished the results of its call, and nothing else changed? */
static bool right_result(const struct model_search *s, size_t call, int rank)
{
    for (size_t i = 0; i < MODEL_ELEMENTS; i++) {
        float value;
        memcpy(&value, &s->recv[rank][i], sizeof value);
        if (s->model->nans ? value == value : s->recv[rank][i] != s->expected[call][rank][i])
            return false;
    }
    return true;
}

/* The elements that the worker has not written yet are as they should be. */
static void perform(struct model_search *s, struct model_state *state, int rank, int index,
                    uint64_t found)
{
    struct tri_push_worker *worker = &state->workers[rank][index];
    const size_t call = state->call[rank];
    memcpy(s->recv[rank], s->expected[call][rank], sizeof s->recv[rank]);
    if (s->model->nans)
        memset(s->recv[rank], 0xff, sizeof s->recv[rank]);
    tri_push_performed(worker, found);
    if (!right_result(s, call, rank))
        s->report.wrong = "a result has data of another call";
}

/* Does this access have to do with a part that is nothing, and is then left out? */
static bool is_silent(const struct model_search *s, const struct model_state *state, int rank,
                      const struct tri_push_worker *worker)
{
    const int peer = (rank + worker->distance) % s->model->ranks;
    const int from = worker->act == TRI_PUSH_STORE ? rank : peer;
    return s->model->bug == MODEL_SILENT && tri_push_part(&s->jobs[state->call[rank]], from) == 0;
}

bool model_step(struct model_search *s, struct model_state *state, int rank, int index)
{
    const struct tri_push_worker *worker = &state->workers[rank][index];
    const struct tri_push_access access = tri_push_next(worker);
    const enum model_bug bug = s->model->bug;
    uint64_t found = 0;
    struct model_store store;
    switch (access.act) {
    case TRI_PUSH_END:
        return false;
    case TRI_PUSH_READ:
        found = state->turn[rank];
        break;
    case TRI_PUSH_ARRIVE:
        found = count_worker(s, state, rank, access.value);
        break;
    case TRI_PUSH_POLL:
        store = place_of(s, &access);
        found = read_granule(s, state, rank, store.at);
        if (found == access.value && !(bug == MODEL_HALF_A_CHUNK && worker->granule == 1) &&
            !is_silent(s, state, rank, worker))
            return false;
        break;
    case TRI_PUSH_STORE:
    case TRI_PUSH_RESTORE:
        store = place_of(s, &access);
        if (bug == MODEL_NOT_CANONICAL && s->model->nans && !store.restores)
            store.value = tri_push_empty(s->model->dtype);
        if ((bug != MODEL_NOT_RESTORED || !store.restores) && !is_silent(s, state, rank, worker))
            send_store(s, state, store);
        break;
    }
    perform(s, state, rank, index, found);
    return true;
}
