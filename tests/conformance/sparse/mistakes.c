/* Calls that are refused, alone or because the ranks differ: nothing hangs, nothing changes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse/sparse.h"

enum { COUNT = 500 };

/* ---------------------------------------------------------------------------- the same mistake */

struct mistake {
    const char *what;
    size_t count;
    trib_dtype dtype;
    trib_status expected;
    trib_sparse_options options;
};

#define OPTIONS(...) {.size = (uint32_t)sizeof(trib_sparse_options), __VA_ARGS__}

static const int32_t below_0[TEAM_MAX] = {-1};

static const struct mistake mistakes[] = {
    {"a host below 0", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.algorithm = "hier", .hosts = below_0)},
    {"unknown algorithm", COUNT, TRIB_F32, TRIB_ERR_UNKNOWN_NAME, OPTIONS(.algorithm = "topkb")},
    {"density above 1", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.density = 1.01)},
    {"density below 0", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.density = -1)},
    {"density NaN", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.density = NAN)},
    {"decay above 1", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.decay = 1.5)},
    {"decay below 0", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.decay = -0.5)},
    {"decay NaN", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.decay = NAN)},
    {"wire f16", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.wire = TRIB_F16)},
    {"wire bf16 for f64", COUNT, TRIB_F64, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.wire = TRIB_BF16)},
    {"f16 in place", COUNT, TRIB_F16, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.flags = TRIB_SPARSE_IN_PLACE)},
    {"chunk not a power of two", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.algorithm = "chunked", .chunk = 1000)},
    {"chunk too large", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.algorithm = "chunked", .chunk = 131072)},
    {"unknown constants", COUNT, TRIB_F32, TRIB_ERR_UNKNOWN_NAME,
     OPTIONS(.algorithm = "oktopk", .constants = "resnet")},
    {"integers", COUNT, TRIB_I32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.algorithm = "topka")},
    {"too many elements", (size_t)1 << 32, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.algorithm = "topka")},
    {"momentum of 1", COUNT, TRIB_F64, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.momentum = 1)},
    {"momentum that f32 rounds to 1", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.momentum = 0.99999999999)},
    {"momentum below 0", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.momentum = -0.5)},
    {"momentum NaN", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.momentum = NAN)},
    {"no masking without momentum", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.flags = TRIB_SPARSE_NO_MASKING)},
    {"clip_norm without momentum", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.clip_norm = 1)},
    {"clip_norm in place", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.clip_norm = 1, .momentum = 0.5, .flags = TRIB_SPARSE_IN_PLACE)},
    {"clip_norm below 0", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.clip_norm = -1, .momentum = 0.5)},
    {"clip_norm infinite", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.clip_norm = INFINITY, .momentum = 0.5)},
    {"clip_norm NaN", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT,
     OPTIONS(.clip_norm = NAN, .momentum = 0.5)},
    {"unknown flag", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.flags = 1u << 20)},
    {"reserved", COUNT, TRIB_F32, TRIB_ERR_INVALID_ARGUMENT, OPTIONS(.reserved = 1)},
};

enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

/* Constants and chunks may also be found invalid; names have a status of their own. */
static bool as_expected(trib_status found, trib_status expected)
{
    return found == expected ||
           (expected == TRIB_ERR_UNKNOWN_NAME ? found == TRIB_ERR_INVALID_ARGUMENT
                                              : found == TRIB_ERR_UNSUPPORTED);
}

static void mistaken_rank(int rank, int size, void *argument)
{
    struct sparse_session *session = argument;
    trib_comm *comm = session->team.comms[rank];
    (void)size;
    for (int i = 0; i < MISTAKES; i++) {
        const struct mistake *mistake = &mistakes[i];
        trib_sparse *state = (trib_sparse *)&state;
        uint64_t bytes = 0;
        trib_status found =
            trib_sparse_create(&state, comm, mistake->count, mistake->dtype, &mistake->options);
        CHECK_MSG(as_expected(found, mistake->expected), "%s: %s", mistake->what,
                  trib_status_name(found));
        CHECK_MSG(state == NULL, "%s: a state was made", mistake->what);
        found = trib_sparse_bytes(&bytes, comm, mistake->count, mistake->dtype, &mistake->options);
        CHECK_MSG(as_expected(found, mistake->expected), "bytes, %s: %s", mistake->what,
                  trib_status_name(found));
    }
    CHECK_OK(trib_comm_status(comm));
}

static void same_mistakes(struct sparse_session *session)
{
    check_begin("%s, %d ranks: mistakes of all ranks", session->team.backend, session->team.size);
    check_ranks(session->team.size, mistaken_rank, session);
    check_end();
}

/* ------------------------------------------------------------------ the mistake of one rank */

/* Rank 0 makes a mistake, the others make none: no rank waits for another, and none gets a
 * state. */
static void one_mistaken_rank(int rank, int size, void *argument)
{
    static const trib_sparse_options good = OPTIONS(.algorithm = "topka");
    struct sparse_session *session = argument;
    trib_comm *comm = session->team.comms[rank];
    (void)size;
    for (int i = 0; i < MISTAKES; i++) {
        const struct mistake *mistake = &mistakes[i];
        trib_sparse *state = (trib_sparse *)&state;
        const trib_status found = rank == 0
                                      ? trib_sparse_create(&state, comm, mistake->count,
                                                           mistake->dtype, &mistake->options)
                                      : trib_sparse_create(&state, comm, COUNT, TRIB_F32, &good);
        CHECK_MSG(rank == 0 ? as_expected(found, mistake->expected) : found == TRIB_ERR_MISMATCH,
                  "%s: %s", mistake->what, trib_status_name(found));
        CHECK_MSG(state == NULL, "%s: a state was made", mistake->what);
    }
    CHECK_OK(trib_comm_status(comm));
}

static void lonely_mistakes(struct sparse_session *session)
{
    check_begin("%s, %d ranks: mistakes of one rank", session->team.backend, session->team.size);
    check_ranks(session->team.size, one_mistaken_rank, session);
    check_end();
}

/* ------------------------------------------------------------------------- ranks that differ */

#define PLAIN                                                                                      \
    .algorithm = "topka", .count = COUNT, .k = 10, .dtype = TRIB_F32, .decay = 0.5, .chunk = 64
static const struct sparse_plan plain = {PLAIN};

static const struct {
    const char *what;
    struct sparse_plan plan;
} differences[] = {
    {"count",
     {.algorithm = "topka",
      .count = COUNT + 1,
      .k = 10,
      .dtype = TRIB_F32,
      .decay = 0.5,
      .chunk = 64}},
    {"k",
     {.algorithm = "topka", .count = COUNT, .k = 11, .dtype = TRIB_F32, .decay = 0.5, .chunk = 64}},
    {"k 0",
     {.algorithm = "topka", .count = COUNT, .k = 0, .dtype = TRIB_F32, .decay = 0.5, .chunk = 64}},
    {"dtype",
     {.algorithm = "topka", .count = COUNT, .k = 10, .dtype = TRIB_F64, .decay = 0.5, .chunk = 64}},
    {"f16",
     {.algorithm = "topka", .count = COUNT, .k = 10, .dtype = TRIB_F16, .decay = 0.5, .chunk = 64}},
    {"algorithm",
     {.algorithm = "srs", .count = COUNT, .k = 10, .dtype = TRIB_F32, .decay = 0.5, .chunk = 64}},
    {"decay",
     {.algorithm = "topka",
      .count = COUNT,
      .k = 10,
      .dtype = TRIB_F32,
      .decay = 0.25,
      .chunk = 64}},
    {"average", {PLAIN, .flags = TRIB_SPARSE_AVERAGE}},
    {"entries", {PLAIN, .flags = TRIB_SPARSE_ENTRIES}},
    {"wire", {PLAIN, .wire = TRIB_BF16}},
    {"place", {PLAIN, .flags = TRIB_SPARSE_IN_PLACE}},
    {"chunk",
     {.algorithm = "topka",
      .count = COUNT,
      .k = 10,
      .dtype = TRIB_F32,
      .decay = 0.5,
      .chunk = 128}},
    {"constants", {PLAIN, .constants = "vgg"}},
    {"momentum", {PLAIN, .momentum = 0.5}},
};

enum { DIFFERENCES = sizeof differences / sizeof *differences };

struct differing {
    struct sparse_session *session;
    int odd; /* the rank that differs */
    int which;
};

static void differing_rank(int rank, int size, void *argument)
{
    const struct differing *differing = argument;
    const struct sparse_plan *plan =
        rank == differing->odd ? &differences[differing->which].plan : &plain;
    const trib_sparse_options options = sparse_options(plan);
    trib_sparse *state = NULL;
    (void)size;
    CHECK_STATUS(trib_sparse_create(&state, differing->session->team.comms[rank], plan->count,
                                    plan->dtype, &options),
                 TRIB_ERR_MISMATCH);
    CHECK(state == NULL);
    CHECK_OK(trib_comm_status(differing->session->team.comms[rank]));
}

static void other_k_rank(int rank, int size, void *argument)
{
    struct sparse_trial *trial = argument;
    trib_sparse *state = trial->ranks[rank].state;
    trib_sparse_statistics found = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_STATUS(trib_sparse_set_k(state, rank == size - 1 ? 30 : 20), TRIB_ERR_MISMATCH);
    CHECK_STATUS(trib_sparse_set_density(state, rank == 0 ? 0.1 : 0.2), TRIB_ERR_MISMATCH);
    CHECK_OK(trib_sparse_statistics_get(&found, state));
    CHECK(found.k == plain.k);
}

static void set_different_k(struct sparse_session *session)
{
    struct sparse_trial *trial = calloc(1, sizeof *trial);
    struct sparse_plan plan = plain;
    if (trial == NULL)
        abort();
    plan.decay = 1;
    check_begin("%s, %d ranks: k set differently", session->team.backend, session->team.size);
    if (sparse_trial_open(trial, &session->team, &plan) && sparse_trial_steps(trial, 2)) {
        check_ranks(session->team.size, other_k_rank, trial);
        sparse_trial_steps(trial, 2);
    }
    sparse_trial_close(trial);
    free(trial);
    check_end();
}

static void differ(struct sparse_session *session)
{
    for (int i = 0; i < DIFFERENCES; i++) {
        struct differing differing = {session, i % session->team.size, i};
        check_begin("%s, %d ranks: rank %d has another %s", session->team.backend,
                    session->team.size, differing.odd, differences[i].what);
        check_ranks(session->team.size, differing_rank, &differing);
        check_end();
    }
    set_different_k(session);
    sparse_session_mend(session);
}

/* --------------------------------------------------------------------------- calls of others */

struct crossed {
    struct sparse_trial *one, *other;
};

/* Rank 0 calls the one state, the others call the other: no call applies. */
static void crossed_rank(int rank, int size, void *argument)
{
    const struct crossed *crossed = argument;
    struct sparse_rank *self = &(rank == 0 ? crossed->one : crossed->other)->ranks[rank];
    uint32_t outcome = 7;
    (void)size;
    CHECK_OK(trib_sparse_allreduce(self->state, guarded_data(&self->gradient, 0),
                                   guarded_data(&self->result, 0), self->stream));
    CHECK_OK(trib_device_copy(self->device, &outcome, trib_sparse_outcome(self->state),
                              sizeof outcome, self->stream));
    CHECK_OK(trib_stream_wait(self->device, self->stream));
    CHECK(outcome == 0);
    CHECK_STATUS(trib_sparse_status(self->state), TRIB_ERR_MISMATCH);
    sparse_residual(self->state, crossed->one->plan.count, TRIB_F32, self->stream, self->snapshot,
                    self->residual);
    CHECK(memcmp(self->residual, self->held, crossed->one->plan.count * sizeof(double)) == 0);
    CHECK_OK(trib_sparse_statistics_get(&self->after, self->state));
    CHECK(self->after.calls == 3 && self->after.calls_applied == 2);
}

static void crossing(struct sparse_session *session)
{
    struct crossed crossed = {calloc(1, sizeof *crossed.one), calloc(1, sizeof *crossed.other)};
    struct sparse_plan plan = plain;
    if (crossed.one == NULL || crossed.other == NULL)
        abort();
    plan.decay = 1;
    check_begin("%s, %d ranks: calls of different states", session->team.backend,
                session->team.size);
    if (sparse_trial_open(crossed.one, &session->team, &plan) &&
        sparse_trial_open(crossed.other, &session->team, &plan) &&
        sparse_trial_steps(crossed.one, 2) && sparse_trial_steps(crossed.other, 2)) {
        check_ranks(session->team.size, crossed_rank, &crossed);
        if (sparse_trial_reset(crossed.one))
            sparse_trial_reset(crossed.other);
    }
    sparse_trial_close(crossed.one);
    sparse_trial_close(crossed.other);
    free(crossed.one);
    free(crossed.other);
    check_end();
    sparse_session_mend(session);
}

/* ------------------------------------------------------------------------------ a single call */

struct wrong_calls {
    struct sparse_trial *dense, *entries, *in_place;
};

static void wrong_call_rank(int rank, int size, void *argument)
{
    const struct wrong_calls *calls = argument;
    struct sparse_rank *dense = &calls->dense->ranks[rank], *entries = &calls->entries->ranks[rank],
                       *in_place = &calls->in_place->ranks[rank];
    void *gradient = guarded_data(&dense->gradient, 0), *result = guarded_data(&dense->result, 0);
    uint32_t *index = guarded_data(&dense->index, 0), *count = guarded_data(&dense->count, 0);
    (void)size;
    CHECK(trib_sparse_allreduce(entries->state, gradient, result, dense->stream) != TRIB_OK);
    CHECK(trib_sparse_allreduce_entries(dense->state, gradient, index, result, count,
                                        dense->stream) != TRIB_OK);
    CHECK(trib_sparse_allreduce(dense->state, NULL, result, dense->stream) != TRIB_OK);
    CHECK(trib_sparse_allreduce(dense->state, gradient, NULL, dense->stream) != TRIB_OK);
    CHECK(trib_sparse_allreduce(in_place->state, gradient, gradient, dense->stream) != TRIB_OK);
    CHECK(trib_sparse_allreduce(dense->state, (char *)gradient + 1, result, dense->stream) !=
          TRIB_OK);
    CHECK(trib_sparse_allreduce(dense->state, gradient, (char *)gradient + 4, dense->stream) !=
          TRIB_OK);
    CHECK(trib_sparse_allreduce_entries(entries->state, gradient, NULL, result, count,
                                        dense->stream) != TRIB_OK);
    CHECK(trib_sparse_allreduce_entries(entries->state, gradient, index, result, NULL,
                                        dense->stream) != TRIB_OK);
    CHECK_OK(trib_batch_begin(dense->comm));
    CHECK(trib_sparse_allreduce(dense->state, gradient, result, dense->stream) != TRIB_OK);
    (void)trib_batch_end(dense->comm);
    CHECK_OK(trib_sparse_status(dense->state));
    CHECK_OK(trib_comm_status(dense->comm));
}

static void wrong_calls(struct sparse_session *session)
{
    struct sparse_trial *trials = calloc(3, sizeof *trials);
    struct wrong_calls calls = {&trials[0], &trials[1], &trials[2]};
    struct sparse_plan plan = plain;
    bool good = true;
    if (trials == NULL)
        abort();
    plan.decay = 1;
    check_begin("%s, %d ranks: calls that are refused", session->team.backend, session->team.size);
    for (int i = 0; i < 3; i++) {
        plan.flags = i == 0 ? 0 : i == 1 ? TRIB_SPARSE_ENTRIES : TRIB_SPARSE_IN_PLACE;
        good &= sparse_trial_open(&trials[i], &session->team, &plan) &&
                sparse_trial_steps(&trials[i], 2);
    }
    if (good) {
        check_ranks(session->team.size, wrong_call_rank, &calls);
        for (int i = 0; i < 3; i++)
            sparse_trial_steps(&trials[i], 2);
    }
    for (int i = 0; i < 3; i++)
        sparse_trial_close(&trials[i]);
    free(trials);
    check_end();
    sparse_session_mend(session);
}

/* --------------------------------------------------------------------------------------- names */

static void names(const struct sparse_session *session)
{
    const int32_t n = trib_sparse_algorithm_count();
    check_begin("%s: names of algorithms", session->team.backend);
    CHECK(n == 15);
    CHECK(trib_sparse_algorithm_name(-1) == NULL && trib_sparse_algorithm_name(n) == NULL);
    for (int i = 0; sparse_algorithms[i] != NULL; i++) {
        int found = 0;
        for (int32_t j = 0; j < n; j++)
            found += strcmp(trib_sparse_algorithm_name(j), sparse_algorithms[i]) == 0;
        CHECK_MSG(found == 1, "%s is there %d times", sparse_algorithms[i], found);
    }
    check_end();
}

void sparse_mistakes(struct sparse_session *session)
{
    names(session);
    same_mistakes(session);
    wrong_calls(session);
    if (session->team.size > 1) {
        lonely_mistakes(session);
        differ(session);
        crossing(session);
    }
}
