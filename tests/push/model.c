/* The model's memory, its steps, and the search through all of their orders. */
#include "tests/push/model.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/push_steps.h"

enum {
    SCRATCH = 2 * MODEL_RANKS * MODEL_CHUNKS * TRI_PUSH_CHUNK,
    ELEMENTS = MODEL_CHUNKS * TRI_PUSH_CHUNK / 4,
    IN_FLIGHT = 64
};

/* A store that has not arrived: `value` for byte `at` of `owner`'s scratch. */
struct store {
    uint64_t value;
    uint16_t at;
    uint8_t owner;
    bool restores;
};

struct state {
    struct tri_push_worker workers[MODEL_RANKS][MODEL_WORKERS];
    struct store stores[IN_FLIGHT]; /* in the order of their places */
    uint32_t n_stores;
    uint32_t turn[MODEL_RANKS];
    uint8_t call[MODEL_RANKS];
    unsigned char scratch[MODEL_RANKS][SCRATCH];
};

/* What does not change. Addresses in `base` stand for those of a state's scratch. */
struct search {
    const struct model *model;
    struct tri_push jobs[MODEL_CALLS];
    struct tri_push_rank here[MODEL_CALLS][MODEL_RANKS];
    struct tri_push_control control[MODEL_RANKS];
    uint32_t sent[MODEL_CALLS][MODEL_RANKS][ELEMENTS];
    uint32_t recv[MODEL_RANKS][ELEMENTS];
    uint32_t expected[MODEL_CALLS][ELEMENTS];
    _Alignas(16) unsigned char base[MODEL_RANKS][SCRATCH];
    uint64_t *seen; /* hashes; 0: free */
    size_t room;
    struct model_report report;
};

/* ---------------------------------------------------------------------------------- the memory */

static uint64_t read_granule(const struct search *s, const struct state *state, int rank, size_t at)
{
    uint64_t value = 0;
    memcpy(&value, state->scratch[rank] + at, tri_push_granule_bytes(s->model->dtype));
    return value;
}

/* Where an access goes. */
static struct store place_of(const struct search *s, const struct tri_push_access *access)
{
    const size_t at = (size_t)((unsigned char *)access->at - &s->base[0][0]);
    const size_t buffer = (size_t)s->model->ranks * MODEL_CHUNKS * TRI_PUSH_CHUNK;
    size_t inside = at % SCRATCH;
    if (s->model->bug == MODEL_ONE_BUFFER)
        inside %= buffer;
    return (struct store){access->value, (uint16_t)inside, (uint8_t)(at / SCRATCH),
                          access->act == TRI_PUSH_RESTORE};
}

/* Behind those for the same place, and for places before it. */
static void send_store(struct search *s, struct state *state, struct store store)
{
    size_t i = state->n_stores++;
    if (state->n_stores == IN_FLIGHT) {
        s->report.wrong = "the model has too little room for stores on their way";
        state->n_stores--;
        return;
    }
    for (; i > 0; i--) {
        const struct store *before = &state->stores[i - 1];
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

static bool same_place(const struct store *a, const struct store *b)
{
    return a->owner == b->owner && a->at == b->at;
}

/* Store `i` arrives. */
static void arrive(struct search *s, struct state *state, size_t i)
{
    const struct store store = state->stores[i];
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

static void begin_call(struct search *s, struct state *state, int rank)
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

/* The rank's call has ended: may its next one begin? */
static bool may_begin(const struct search *s, const struct state *state, int rank)
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
static uint64_t count_worker(const struct search *s, struct state *state, int rank, uint64_t add)
{
    const uint32_t found = state->turn[rank];
    state->turn[rank] += (uint32_t)add;
    if (s->model->bug == MODEL_EARLY_EPOCH && add != 1)
        state->turn[rank] -= TRI_PUSH_EPOCH;
    else if (s->model->bug == MODEL_EARLY_EPOCH && found % TRI_PUSH_EPOCH == 0)
        state->turn[rank] += TRI_PUSH_EPOCH;
    return found;
}

/* Has the chunk that this worker has just reduced the sums of its call? */
static bool right_result(const struct search *s, size_t call, int rank)
{
    for (size_t i = 0; i < s->model->calls[call].count; i++) {
        float value;
        memcpy(&value, &s->recv[rank][i], sizeof value);
        if (s->model->nans ? value == value : s->recv[rank][i] != s->expected[call][i])
            return false;
    }
    return true;
}

/* The elements that the worker has not written yet are as they should be. */
static void perform(struct search *s, struct state *state, int rank, int index, uint64_t found)
{
    struct tri_push_worker *worker = &state->workers[rank][index];
    const size_t call = state->call[rank];
    memcpy(s->recv[rank], s->expected[call], sizeof s->recv[rank]);
    if (s->model->nans)
        memset(s->recv[rank], 0xff, sizeof s->recv[rank]);
    tri_push_performed(worker, found);
    if (!right_result(s, call, rank))
        s->report.wrong = "a result has data of another call";
}

/* The worker's next step, if it can be made; false if it waits or has ended. */
static bool step(struct search *s, struct state *state, int rank, int index)
{
    const struct tri_push_worker *worker = &state->workers[rank][index];
    const struct tri_push_access access = tri_push_next(worker);
    const enum model_bug bug = s->model->bug;
    uint64_t found = 0;
    struct store store;
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
        if (found == access.value && !(bug == MODEL_HALF_A_CHUNK && worker->granule == 1))
            return false;
        break;
    case TRI_PUSH_STORE:
    case TRI_PUSH_RESTORE:
        store = place_of(s, &access);
        if (bug == MODEL_NOT_CANONICAL && s->model->nans && !store.restores)
            store.value = tri_push_empty(s->model->dtype);
        if (bug != MODEL_NOT_RESTORED || !store.restores)
            send_store(s, state, store);
        break;
    }
    perform(s, state, rank, index, found);
    return true;
}

/* ---------------------------------------------------------------------------------- the search */

static uint64_t hash_of(const struct state *state)
{
    const unsigned char *bytes = (const unsigned char *)state;
    uint64_t hash = 0x9e3779b97f4a7c15u, word;
    for (size_t i = 0; i + sizeof word <= sizeof *state; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * 0xd6e8feb86659fd93u;
        hash ^= hash >> 32;
    }
    return hash == 0 ? 1 : hash;
}

/* False if the state was known; it is now. */
static bool is_new(struct search *s, uint64_t hash)
{
    size_t i = hash & (s->room - 1);
    for (; s->seen[i] != 0; i = (i + 1) & (s->room - 1))
        if (s->seen[i] == hash)
            return false;
    s->seen[i] = hash;
    s->report.states++;
    return true;
}

static void explore(struct search *s, const struct state *from, size_t depth);

static void follow(struct search *s, const struct state *state, size_t depth)
{
    if (s->report.wrong == NULL && is_new(s, hash_of(state)))
        explore(s, state, depth + 1);
}

/* A store sets off when its worker comes to it: nobody sees that before it arrives, so nothing is lost
 * by having it do so before anything else happens. */
static bool send_all(struct search *s, struct state *state)
{
    bool sent = false;
    for (int r = 0; r < s->model->ranks; r++)
        for (int w = 0; w < MODEL_WORKERS; w++)
            while (s->report.wrong == NULL && (state->workers[r][w].act == TRI_PUSH_STORE ||
                                               state->workers[r][w].act == TRI_PUSH_RESTORE))
                sent = step(s, state, r, w);
    return sent;
}

/* Every arrival, step and next call that is possible, each in a copy; how many there are. */
static size_t branch(struct search *s, const struct state *from, size_t depth)
{
    size_t ways = 0;
    struct state to;
    for (size_t i = 0; i < from->n_stores; i++) {
        if (i > 0 && same_place(&from->stores[i - 1], &from->stores[i]))
            continue;
        memcpy(&to, from, sizeof to);
        arrive(s, &to, i);
        follow(s, &to, depth);
        ways++;
    }
    for (int r = 0; r < s->model->ranks; r++) {
        for (int w = 0; w < MODEL_WORKERS; w++) {
            memcpy(&to, from, sizeof to);
            if (!step(s, &to, r, w))
                continue;
            (void)send_all(s, &to);
            follow(s, &to, depth);
            ways++;
        }
        if (!may_begin(s, from, r))
            continue;
        memcpy(&to, from, sizeof to);
        to.call[r]++;
        begin_call(s, &to, r);
        follow(s, &to, depth);
        ways++;
    }
    return ways;
}

static bool is_end(const struct search *s, const struct state *state)
{
    for (int r = 0; r < s->model->ranks; r++)
        for (int w = 0; w < MODEL_WORKERS; w++)
            if (state->call[r] + 1u != s->model->n || state->workers[r][w].act != TRI_PUSH_END)
                return false;
    return true;
}

static void check_end_state(struct search *s, const struct state *state)
{
    for (int r = 0; r < s->model->ranks; r++) {
        if (state->turn[r] != s->model->n * TRI_PUSH_EPOCH)
            s->report.wrong = "the epoch is not the number of calls";
        for (size_t i = 0; i < SCRATCH; i++)
            if (state->scratch[r][i] != TRI_PUSH_EMPTY_BYTE)
                s->report.wrong = "a granule is not EMPTY after the last call";
    }
}

static void explore(struct search *s, const struct state *from, size_t depth)
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
static void fill_call(struct search *s, size_t call)
{
    const struct model *m = s->model;
    for (size_t i = 0; i < m->calls[call].count; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < m->ranks; r++) {
            const uint32_t integer = (uint32_t)(call * 1000 + i * 100 + 10 * (size_t)r + 1);
            const float value = (float)integer;
            sum += integer;
            memcpy(&s->sent[call][r][i], m->dtype == TRIB_F32 ? (const void *)&value : &integer, 4);
            if (m->nans)
                s->sent[call][r][i] = UINT32_MAX;
        }
        const float value = (float)sum;
        memcpy(&s->expected[call][i], m->dtype == TRIB_F32 ? (const void *)&value : &sum, 4);
    }
}

static void lay_out(struct search *s)
{
    const struct model *m = s->model;
    for (size_t call = 0; call < m->n; call++) {
        s->jobs[call] = (struct tri_push){.here = s->here[call],
                                          .n = 1,
                                          .size = m->ranks,
                                          .capacity = MODEL_CHUNKS,
                                          .count = m->calls[call].count,
                                          .dtype = m->dtype,
                                          .op = TRIB_SUM};
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
    static struct search search;
    static struct state state;
    memset(&search, 0, sizeof search);
    memset(&state, 0, sizeof state);
    search.model = model;
    search.report.whole = true;
    for (search.room = 1; search.room < 2 * model->most + 64;)
        search.room *= 2;
    search.seen = calloc(search.room, sizeof *search.seen);
    if (search.seen == NULL) {
        search.report.wrong = "there is no memory for the model";
        return search.report;
    }
    lay_out(&search);
    memset(state.scratch, TRI_PUSH_EMPTY_BYTE, sizeof state.scratch);
    for (int r = 0; r < model->ranks; r++)
        begin_call(&search, &state, r);
    explore(&search, &state, 0);
    free(search.seen);
    return search.report;
}
