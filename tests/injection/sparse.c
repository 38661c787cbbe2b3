/* Sparse allreduce: the calls of every algorithm, and the life of a state. A call that is not
 * applied leaves residual, velocity and thresholds as they were, to the bit, and the counters say so: after
 * each step an export is what it was after that step of the run without a fault; or, if the step
 * was not applied, after the step before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/core/communicator.h"
#include "tests/injection/programs.h"
#include "tests/injection/walk.h"

enum {
    COUNT = 240,
    K = 12,
    CALLS = 3,
    QUICK_CALLS = 2,
    HEAD = 128,
    EXPORT = 16384,
    STEPS = 12,
    VARIANTS = 80
};

struct variant {
    char name[64];
    const char *algorithm, *constants;
    uint32_t flags;
    double momentum;
    bool apart; /* every rank on a host of its own but the first two */
};

/* What can be seen of a rank's state after a step. */
struct view {
    uint64_t applied, k;
    size_t bytes;
    char exported[EXPORT];
    float accumulator[COUNT], result[COUNT];
};

static struct view expected[RANKS_MAX][STEPS]; /* of the run without a fault */

struct state {
    struct rank *rank;
    const struct variant *variant;
    trib_sparse *sparse;
    float *gradient, *result; /* in the rank's memory */
    uint32_t *index, *count;
    int step;   /* the last that has been seen; -1: none */
    bool fresh; /* no call since thresholds began anew: they have no meaning */
};

static struct state open(struct rank *rank)
{
    float *data = rank->data[0];
    return (struct state){.rank = rank,
                          .variant = rank->trial->program->argument,
                          .gradient = data,
                          .result = data + COUNT,
                          .index = (uint32_t *)(void *)(data + 2 * COUNT),
                          .count = (uint32_t *)(void *)(data + 3 * COUNT),
                          .step = -1,
                          .fresh = true};
}

static bool in_place(const struct state *state)
{
    return (state->variant->flags & TRIB_SPARSE_IN_PLACE) != 0;
}

/* What auto's choice follows is the same in every run. */
static void measure(struct rank *rank)
{
    rank->comm->measured = (struct tri_measured){.latency = 1e-6, .bandwidth = 1e9};
}

static const int32_t apart[RANKS_MAX] = {0, 0, 1};

static bool create(struct state *state)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = state->variant->algorithm;
    options.constants = state->variant->constants;
    options.flags = state->variant->flags | TRIB_SPARSE_USE_K;
    options.k = K;
    options.decay = 0.5;
    options.norm_every = 2;
    options.momentum = state->variant->momentum;
    options.hosts = state->variant->apart ? apart : NULL;
    options.clip_norm = options.momentum != 0 && !in_place(state) ? 1e6 : 0;
    const bool good =
        WENT_TOGETHER(state->rank, trib_sparse_create(&state->sparse, state->rank->comm, COUNT,
                                                      TRIB_F32, &options));
    CHECK(good == (state->sparse != NULL));
    return good;
}

/* Small whole numbers, so that sums are exact. In place they are added. */
static void next_gradient(const struct state *state)
{
    uint32_t seed = 1000003u * (uint32_t)(state->step + 2) + 7919u * (uint32_t)state->rank->rank;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float value = (float)((int)(seed >> 16 & 127) - 64);
        state->gradient[i] = in_place(state) ? state->gradient[i] + value : value;
    }
}

static trib_status call(const struct state *state)
{
    const trib_stream stream = state->rank->stream;
    if ((state->variant->flags & TRIB_SPARSE_ENTRIES) == 0)
        return trib_sparse_allreduce(state->sparse, state->gradient, state->result, stream);
    return trib_sparse_allreduce_entries(state->sparse, state->gradient, state->index,
                                         state->result, state->count, stream);
}

/* --------------------------------------------------------------------------------- what is seen */

/* Without faults, after all that is queued. */
static void look(const struct state *state, struct view *view)
{
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    struct rank *rank = state->rank;
    injection_leave();
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    CHECK_OK(trib_sparse_statistics_get(&statistics, state->sparse));
    view->applied = statistics.calls_applied;
    view->k = trib_sparse_k(state->sparse);
    view->bytes = (size_t)trib_sparse_export_bytes(state->sparse);
    if (view->bytes > sizeof view->exported)
        abort();
    memset(view->exported, 0, sizeof view->exported);
    CHECK_OK(trib_sparse_export(state->sparse, view->exported, view->bytes, rank->stream));
    memcpy(view->accumulator, state->gradient, sizeof view->accumulator);
    memcpy(view->result, state->result, sizeof view->result);
    injection_enter(rank->rank, rank->handle);
}

static size_t residual_bytes(const struct state *state)
{
    return in_place(state) && state->variant->momentum == 0 ? 0 : COUNT * sizeof(float);
}

static bool same_residual(const struct state *state, const struct view *a, const struct view *b)
{
    return memcmp(a->exported + HEAD, b->exported + HEAD, residual_bytes(state)) == 0;
}

/* The last part of an export; in place it is the accumulator. */
static bool same_velocity(const struct state *state, const struct view *a, const struct view *b)
{
    enum { BYTES = COUNT * sizeof(float) };
    if (in_place(state) || state->variant->momentum == 0)
        return true;
    return a->bytes == b->bytes &&
           memcmp(a->exported + a->bytes - BYTES, b->exported + b->bytes - BYTES, BYTES) == 0;
}

/* What an algorithm keeps on the device, behind the residual. (What it keeps on the host may count
 * calls that are not applied.) */
static bool same_thresholds(const struct state *state, const struct view *a, const struct view *b)
{
    enum { DEVICE_BYTES = HEAD - 24 }; /* where the head says how many there are */
    const size_t from = HEAD + residual_bytes(state);
    uint64_t bytes = 0;
    memcpy(&bytes, a->exported + DEVICE_BYTES, sizeof bytes);
    return a->bytes == b->bytes && memcmp(a->exported + from, b->exported + from, bytes) == 0;
}

static bool same(const struct state *state, const struct view *a, const struct view *b)
{
    return a->k == b->k && same_residual(state, a, b) && same_velocity(state, a, b) &&
           same_thresholds(state, a, b);
}

/* The step has succeeded: it did what it does without a fault. */
static bool done(struct state *state)
{
    struct view *clean = &expected[state->rank->rank][++state->step];
    struct view now;
    if (state->rank->trial->clean) {
        look(state, clean);
        return true;
    }
    look(state, &now);
    CHECK_MSG(now.applied == clean->applied, "step %d: %llu calls are applied", state->step,
              (unsigned long long)now.applied);
    return CHECK_MSG(same(state, &now, clean), "step %d: another state", state->step);
}

/* ------------------------------------------------------------------------------------- one call */

static bool failed_at(const struct state *state, const char *const *names)
{
    const struct trial *trial = state->rank->trial;
    if (trial->fault.mode != INJECT_FAILURE || trial->fault.rank != state->rank->rank)
        return false;
    while (*names != NULL && strcmp(*names, where()) != 0)
        names++;
    return *names != NULL;
}

/* The steps after an algorithm's own: the call stays what it is, and is perhaps not counted. */
static const char *const ends[] = {"sparse.decay", "sparse.norm", "sparse.record", NULL};
/* In place a step after the decision cannot be taken back. If one fails, those before it stay. */
static const char *const updates[] = {"sparse.decay", "sparse.residual_update", "sparse.residual",
                                      "sparse.adjust_threshold", NULL};
static const char *const adjusts[] = {"sparse.adjust_threshold", NULL};

/* The call has failed: it is applied, or has changed nothing. */
static void judge_call(struct state *state, bool queued, const float *accumulator)
{
    const struct view *before = &expected[state->rank->rank][state->step];
    const uint32_t outcome = *trib_sparse_outcome(state->sparse);
    const bool ends_badly = failed_at(state, ends);
    struct view now;
    look(state, &now);
    const bool counted = now.applied == before->applied + 1;
    const bool applied = counted || (ends_badly && outcome == 1);
    const struct view *due = applied ? before + 1 : before;
    const char *is = applied ? "applied" : "not applied";
    CHECK_MSG(counted || now.applied == before->applied, "%s: %llu calls are applied", where(),
              (unsigned long long)now.applied);
    CHECK_MSG(outcome == applied || (!queued && !applied), "%s: call %d is %s, the outcome is %u",
              where(), state->step + 1, is, outcome);
    CHECK_MSG(same_residual(state, &now, due), "%s: call %d is %s: another residual", where(),
              state->step + 1, is);
    CHECK_MSG(same_velocity(state, &now, due), "%s: call %d is %s: another velocity", where(),
              state->step + 1, is);
    CHECK_MSG(same_thresholds(state, &now, due) || (state->fresh && !applied) ||
                  failed_at(state, adjusts),
              "%s: call %d is %s: other thresholds", where(), state->step + 1, is);
    if (in_place(state))
        CHECK_MSG(memcmp(now.accumulator, applied ? due->accumulator : accumulator,
                         sizeof now.accumulator) == 0 ||
                      failed_at(state, updates),
                  "%s: call %d is %s: another accumulator", where(), state->step + 1, is);
}

static bool one_call(struct state *state)
{
    struct rank *rank = state->rank;
    float accumulator[COUNT];
    next_gradient(state);
    memcpy(accumulator, state->gradient, sizeof accumulator);
    const bool queued = WENT(rank, call(state));
    const bool good = queued && settled(rank) && WENT(rank, trib_sparse_status(state->sparse));
    if (!good) {
        injection_leave();
        CHECK_OK(trib_stream_wait(rank->device, rank->stream)); /* what the outcome waits for */
        judge_call(state, queued, accumulator);
        return false;
    }
    (void)done(state);
    state->fresh = false;
    const struct view *clean = &expected[rank->rank][state->step];
    CHECK_MSG(*trib_sparse_outcome(state->sparse) == 1, "a call that succeeded is not applied");
    CHECK_MSG(memcmp(state->result, clean->result, sizeof clean->result) == 0,
              "call %d: another result", state->step);
    if (in_place(state))
        CHECK_MSG(memcmp(state->gradient, clean->accumulator, sizeof clean->accumulator) == 0,
                  "call %d: another accumulator", state->step);
    return true;
}

/* ------------------------------------------------------------------------------------- programs */

static void calls(struct rank *rank)
{
    struct state state = open(rank);
    injection_leave();
    measure(rank);
    const bool made = CHECK(create(&state));
    together();
    injection_enter(rank->rank, rank->handle);
    bool good = made && done(&state);
    const int ncalls = walk_is_quick() ? QUICK_CALLS : CALLS;
    for (int i = 0; i < ncalls && good; i++)
        good = one_call(&state);
    (void)WENT(rank, trib_sparse_destroy(state.sparse));
}

/* A step that is no call has succeeded, or has failed: then it leaves k, and the residual of
 * before, or if it replaces that, perhaps the new one. */
static bool stepped(struct state *state, bool good, bool replaces)
{
    const struct view *before = &expected[state->rank->rank][state->step];
    struct view now;
    if (good) {
        state->fresh = true;
        return done(state);
    }
    look(state, &now);
    CHECK_MSG(now.k == before->k, "%s: step %d has failed, and k is %llu", where(), state->step + 1,
              (unsigned long long)now.k);
    CHECK_MSG(same_residual(state, &now, before) ||
                  (replaces && same_residual(state, &now, before + 1)),
              "%s: step %d has failed: another residual", where(), state->step + 1);
    CHECK_MSG(replaces || same_velocity(state, &now, before),
              "%s: step %d has failed: another velocity", where(), state->step + 1);
    CHECK_MSG(replaces || same_thresholds(state, &now, before),
              "%s: step %d has failed: other thresholds", where(), state->step + 1);
    return false;
}

static bool exports(const struct state *state, char *data, size_t *bytes)
{
    *bytes = (size_t)trib_sparse_export_bytes(state->sparse);
    if (*bytes > EXPORT)
        abort();
    return WENT(state->rank, trib_sparse_export(state->sparse, data, *bytes, state->rank->stream));
}

/* From a first call on. */
static bool changes(struct state *state)
{
    struct rank *rank = state->rank;
    const trib_stream stream = rank->stream;
    char data[EXPORT];
    size_t bytes = 0;
    return stepped(state, WENT_TOGETHER(rank, trib_sparse_set_k(state->sparse, 4 * K)), false) &&
           one_call(state) &&
           stepped(state, WENT_TOGETHER(rank, trib_sparse_set_density(state->sparse, 0.1)),
                   false) &&
           stepped(state, exports(state, data, &bytes), false) &&
           (in_place(state) ||
            stepped(state,
                    WENT(rank, trib_sparse_residual(state->sparse, state->result, stream)) &&
                        settled(rank),
                    false)) &&
           stepped(state, WENT(rank, trib_sparse_reset(state->sparse, stream)) && settled(rank),
                   true) &&
           stepped(state,
                   WENT_TOGETHER(rank, trib_sparse_import(state->sparse, data, bytes, 0, stream)),
                   true) &&
           stepped(state, WENT(rank, trib_sparse_import(state->sparse, data, bytes, 1, stream)),
                   true) &&
           one_call(state);
}

static void life(struct rank *rank)
{
    struct state state = open(rank);
    if (!create(&state))
        return;
    (void)(done(&state) && one_call(&state) && changes(&state));
    (void)WENT(rank, trib_sparse_destroy(state.sparse));
}

/* auto's first state, which measures the link. What it then does is compared in `calls`. */
static void measures(struct rank *rank)
{
    struct state state = open(rank);
    if (create(&state) && CHECK(rank->comm->measured.bandwidth > 0 || rank->size == 1) &&
        WENT_TOGETHER(rank, trib_sparse_set_k(state.sparse, 4 * K)) &&
        WENT(rank, trib_barrier(rank->comm, rank->stream)))
        (void)settled(rank);
    (void)WENT(rank, trib_sparse_destroy(state.sparse));
}

/* ---------------------------------------------------------------------------------------- table */

static struct variant variants[VARIANTS];
static struct program programs[VARIANTS + 1];
static size_t n;

static void add(const char *algorithm, const char *constants, uint32_t flags,
                void (*run)(struct rank *rank), uint32_t options)
{
    struct variant *variant = &variants[n];
    if (n == VARIANTS)
        abort();
    *variant = (struct variant){.algorithm = algorithm, .constants = constants, .flags = flags};
    (void)snprintf(variant->name, sizeof variant->name, "%s%s%s%s%s%s", algorithm,
                   constants == NULL ? "" : " ", constants == NULL ? "" : constants,
                   (flags & TRIB_SPARSE_IN_PLACE) != 0 ? " in place" : "",
                   (flags & TRIB_SPARSE_ENTRIES) != 0 ? " entries" : "",
                   run == life       ? (options == 0 ? ", life" : ", matched life")
                   : run == measures ? ", its measurement"
                                     : "");
    programs[n++] = (struct program){
        .name = variant->name, .run = run, .options = options, .argument = variant};
}

static void add_momentum(const char *algorithm, uint32_t flags, void (*run)(struct rank *rank))
{
    add(algorithm, NULL, flags, run, 0);
    struct variant *variant = &variants[n - 1];
    const size_t used = strlen(variant->name);
    variant->momentum = 0.5;
    (void)snprintf(variant->name + used, sizeof variant->name - used, ", momentum");
}

static void add_apart(uint32_t flags, double momentum, void (*run)(struct rank *rank))
{
    add("hier", NULL, flags, run, 0);
    struct variant *variant = &variants[n - 1];
    const size_t used = strlen(variant->name);
    variant->momentum = momentum;
    variant->apart = true;
    (void)snprintf(variant->name + used, sizeof variant->name - used, ", apart%s",
                   momentum == 0 ? "" : ", momentum");
}

size_t programs_sparse(const struct program **out)
{
    for (int32_t i = 0; i < trib_sparse_algorithm_count() && n < VARIANTS; i++) {
        const char *name = trib_sparse_algorithm_name(i);
        add(name, NULL, 0, calls, 0);
        add(name, NULL, TRIB_SPARSE_IN_PLACE, calls, 0);
        add(name, NULL, TRIB_SPARSE_ENTRIES, calls, 0);
    }
    add("auto", NULL, 0, measures, 0);
    add("oktopk", "bert", 0, calls, 0);
    add("oktopk", "bert", TRIB_SPARSE_IN_PLACE, calls, 0);
    add("topka", NULL, 0, life, 0);
    add("topkaopt", NULL, 0, life, 0);
    add("oktopk", "bert", TRIB_SPARSE_IN_PLACE, life, 0);
    add("dense", NULL, 0, life, TRIB_MATCH);
    add_momentum("dense", 0, calls);
    add_momentum("topka", 0, calls);
    add_momentum("topka", TRIB_SPARSE_IN_PLACE, calls);
    add_momentum("gtopk", 0, calls);
    add_momentum("topka", 0, life);
    add_apart(0, 0, calls);
    add_apart(TRIB_SPARSE_IN_PLACE, 0, calls);
    add_apart(0, 0.5, calls);
    add_apart(TRIB_SPARSE_IN_PLACE, 0.5, calls);
    add_apart(0, 0, life);
    *out = programs;
    return n;
}
