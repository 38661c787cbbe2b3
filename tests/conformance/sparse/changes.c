/* What may happen to a state between its calls: another k, a reset, an export and an import. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/reference.h"
#include "tests/conformance/sparse/sparse.h"

static const struct sparse_plan plans[] = {
    {.algorithm = "dense"},
    {.algorithm = "topka"},
    {.algorithm = "topka", .flags = TRIB_SPARSE_ENTRIES | TRIB_SPARSE_IN_PLACE},
    {.algorithm = "topka2", .flags = TRIB_SPARSE_ENTRIES},
    {.algorithm = "topkaopt"},
    {.algorithm = "topksa"},
    {.algorithm = "gtopk"},
    {.algorithm = "oktopk"},
    {.algorithm = "oktopk", .flags = TRIB_SPARSE_ENTRIES},
    {.algorithm = "oktopk", .constants = "vgg"},
    {.algorithm = "oktopk", .constants = "bert", .flags = TRIB_SPARSE_IN_PLACE},
    {.algorithm = "gaussiank"},
    {.algorithm = "gaussiankconcat", .constants = "bert"},
    {.algorithm = "gaussianksa"},
    {.algorithm = "srs"},
    {.algorithm = "srs", .flags = TRIB_SPARSE_ENTRIES},
    {.algorithm = "shared"},
    {.algorithm = "chunked", .chunk = 64},
    {.algorithm = "chunked", .chunk = 64, .flags = TRIB_SPARSE_ENTRIES},
    {.algorithm = "hier", .hosts = sparse_hosts_uneven},
    {.algorithm = "hier", .hosts = sparse_hosts_turns, .flags = TRIB_SPARSE_ENTRIES},
    {.algorithm = "dense", .dtype = TRIB_F64, .momentum = 0.5},
    {.algorithm = "topka", .dtype = TRIB_F64, .momentum = 0.5},
    {.algorithm = "oktopk", .dtype = TRIB_F64, .momentum = 0.5, .constants = "vgg"},
    {.algorithm = "srs", .dtype = TRIB_F64, .momentum = 0.5, .flags = TRIB_SPARSE_IN_PLACE},
    {.algorithm = "hier", .dtype = TRIB_F64, .momentum = 0.5, .hosts = sparse_hosts_uneven},
};

enum { PLANS = sizeof plans / sizeof *plans, VELOCITY = PLANS - 4 /* topka with momentum */ };

static void *need(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

static struct sparse_plan planned(struct sparse_session *session, int i)
{
    struct sparse_plan plan = plans[i];
    plan.count = 400;
    plan.k = 24;
    plan.seed = session->seed++;
    return plan;
}

static bool taken(const struct sparse_session *session, int i)
{
    return session->depth == SPARSE_WHOLE || (i + session->team.size) % 4 == 0;
}

static void named(const struct sparse_session *session, const char *what,
                  const struct sparse_plan *plan)
{
    char text[256];
    check_begin("%s: %s: %s", session->team.backend, what,
                sparse_describe(plan, session->team.size, text, sizeof text));
}

/* ------------------------------------------------------------------------------------------ k */

static void other_k(struct sparse_session *session)
{
    static const uint64_t ks[] = {120, 12, 0, 400, 60, 1000, 1};
    for (int i = 0; i < PLANS; i++) {
        if (!taken(session, i))
            continue;
        struct sparse_trial *trial = need(1, sizeof *trial);
        const struct sparse_plan plan = planned(session, i);
        named(session, "k changes", &plan);
        bool good = sparse_trial_open(trial, &session->team, &plan) && sparse_trial_steps(trial, 3);
        for (size_t n = 0; n < sizeof ks / sizeof *ks && good; n++)
            good = sparse_trial_set_k(trial, ks[n]) && sparse_trial_steps(trial, 3);
        sparse_trial_close(trial);
        free(trial);
        check_end();
        sparse_session_mend(session);
    }
}

static void density_rank(int rank, int size, void *argument)
{
    struct sparse_session *session = argument;
    trib_comm *comm = session->team.comms[rank];
    trib_sparse *state = NULL;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    static const struct {
        double density;
        uint64_t k;
    } cases[] = {{0.0025, 2}, {1, 1000}, {0.0001, 1}, {0.5, 500}};
    (void)size;
    options.algorithm = "topka";
    if (!CHECK_OK(trib_sparse_create(&state, comm, 1000, TRIB_F32, &options)))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trib_sparse_statistics found = TRIB_SPARSE_STATISTICS_INIT;
        CHECK_OK(trib_sparse_statistics_get(&found, state));
        CHECK(found.k == (i == 0 ? 10 : cases[i - 1].k));
        CHECK_OK(trib_sparse_set_density(state, cases[i].density));
    }
    CHECK_STATUS(trib_sparse_set_density(state, 1.5), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_sparse_set_density(state, -0.5), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_OK(trib_sparse_destroy(state));
}

static void densities(struct sparse_session *session)
{
    check_begin("%s, %d ranks: densities", session->team.backend, session->team.size);
    check_ranks(session->team.size, density_rank, session);
    check_end();
}

/* -------------------------------------------------------------------------------------- reset */

/* Also where the first call afterwards applies nothing, so that the next one still begins anew. */
static void resets(struct sparse_session *session)
{
    for (int i = 0; i < 2 * PLANS; i++) {
        if (!taken(session, i / 2))
            continue;
        struct sparse_trial *trial = need(1, sizeof *trial);
        struct sparse_plan plan = planned(session, i / 2);
        if (i % 2 != 0) {
            plan.input = SPARSE_BAD;
            plan.seed = 3 * plan.seed + 2; /* step 5 is bad, and 2 */
        }
        named(session, "reset", &plan);
        (void)(sparse_trial_open(trial, &session->team, &plan) && sparse_trial_steps(trial, 5) &&
               sparse_trial_reset(trial) && sparse_trial_steps(trial, 4));
        sparse_trial_close(trial);
        free(trial);
        check_end();
        sparse_session_mend(session);
    }
}

/* ---------------------------------------------------------------------------- export and import */

struct move {
    struct sparse_trial *from, *to;
    int32_t add;
};

/* An export without momentum has a velocity of 0; in place the velocity is the caller's. */
static void take_velocity(const struct move *move, struct sparse_rank *to,
                          const struct sparse_rank *from)
{
    const struct sparse_plan *plan = &move->to->plan;
    if ((plan->flags & TRIB_SPARSE_IN_PLACE) != 0 && move->from->plan.momentum == 0)
        return;
    for (size_t i = 0; i < plan->count && plan->momentum != 0; i++)
        to->velocity[i] = move->add ? to->velocity[i] + from->velocity[i] : from->velocity[i];
}

static void move_rank(int rank, int size, void *argument)
{
    const struct move *move = argument;
    struct sparse_rank *from = &move->from->ranks[rank], *to = &move->to->ranks[rank];
    const size_t bytes = (size_t)trib_sparse_export_bytes(from->state), n = move->from->plan.count;
    char *snapshot = need(bytes, 1);
    (void)size;
    CHECK_OK(trib_sparse_export(from->state, snapshot, bytes, from->stream));
    CHECK_OK(trib_sparse_import(to->state, snapshot, bytes, move->add, to->stream));
    for (size_t i = 0; i < n; i++)
        to->held[i] = move->add ? to->held[i] + from->held[i] : from->held[i];
    take_velocity(move, to, from);
    free(snapshot);
}

/* The reference remembers what the states remember. */
static void move_memory(const struct move *move)
{
    struct sparse_reference *to = &move->to->reference;
    const struct sparse_reference *from = &move->from->reference;
    to->step = from->step;
    to->since = from->since;
    memcpy(to->known, from->known, sizeof to->known);
    memcpy(to->idle, from->idle, sizeof to->idle);
    to->idle_sums = from->idle_sums;
    to->global = from->global;
    memcpy(to->local, from->local, sizeof to->local);
    move->to->step = move->from->step;
}

/* Both states; they are closed even if one of them could not be made. */
static bool open_move(struct move *move, struct sparse_session *session,
                      const struct sparse_plan *from, const struct sparse_plan *to)
{
    move->from = need(1, sizeof *move->from);
    move->to = need(1, sizeof *move->to);
    return sparse_trial_open(move->from, &session->team, from) &
           sparse_trial_open(move->to, &session->team, to);
}

/* The end of the case, too. */
static void close_move(struct move *move, struct sparse_session *session)
{
    sparse_trial_close(move->from);
    sparse_trial_close(move->to);
    free(move->from);
    free(move->to);
    check_end();
    sparse_session_mend(session);
}

/* A state that takes over an export goes on as the other one does. */
static void continues(struct sparse_session *session)
{
    for (int i = 0; i < PLANS; i++) {
        if (!taken(session, i))
            continue;
        const struct sparse_plan plan = planned(session, i);
        struct move move = {.add = 0};
        named(session, "import", &plan);
        if (open_move(&move, session, &plan, &plan) && sparse_trial_steps(move.from, 5) &&
            sparse_trial_steps(move.to, 2)) {
            check_ranks(session->team.size, move_rank, &move);
            move_memory(&move);
            if (sparse_trial_steps(move.to, 30) && sparse_trial_steps(move.from, 30))
                sparse_same_bytes(&session->team, move.from->trace + 5, move.to->trace + 5, 30,
                                  "the state that was imported");
        }
        close_move(&move, session);
    }
}

/* An export of topka, into a state of another algorithm and k: added to the residual that is there,
 * and nothing else changes; or in its place, and the schedule begins anew. */
static void takes(struct sparse_session *session, int i, trib_dtype dtype, int32_t add)
{
    struct sparse_plan plan = planned(session, 1), other = planned(session, i);
    struct move move = {.add = add};
    plan.dtype = other.dtype = dtype;
    other.k = 36;
    named(session, add ? "import, added" : "import of another algorithm", &other);
    if (open_move(&move, session, &plan, &other) && sparse_trial_steps(move.from, 5) &&
        sparse_trial_steps(move.to, 3)) {
        check_ranks(session->team.size, move_rank, &move);
        if (!add)
            sparse_reference_reset(&move.to->reference);
        sparse_trial_steps(move.to, 5);
    }
    close_move(&move, session);
}

/* The same algorithm with another k: what it has learned is of no use. */
static void begins_anew(struct sparse_session *session, int i)
{
    const struct sparse_plan plan = planned(session, i);
    struct sparse_plan other = planned(session, i); /* with other gradients */
    struct move move = {.add = 0};
    other.k = 60;
    named(session, "import of another k", &other);
    if (open_move(&move, session, &plan, &other) && sparse_trial_steps(move.from, 5) &&
        sparse_trial_steps(move.to, 2)) {
        check_ranks(session->team.size, move_rank, &move);
        sparse_reference_reset(&move.to->reference);
        sparse_trial_steps(move.to, 34);
    }
    close_move(&move, session);
}

static void foreign(struct sparse_session *session)
{
    for (int i = 0; i < PLANS; i++) {
        if (!taken(session, i))
            continue;
        begins_anew(session, i);
        if (sparse_in_place(&plans[i]))
            continue; /* it has no residual to import */
        takes(session, i, TRIB_F32, 1);
        takes(session, i, TRIB_F64, 1);
        takes(session, i, TRIB_F32, 0);
    }
}

/* With momentum: both velocities are added. Momentum that begins with an export without it takes a
 * velocity of 0 in the place of the one that is there: `takes`. */
static void adds_velocity(struct sparse_session *session)
{
    struct sparse_plan plan = planned(session, VELOCITY), other = planned(session, VELOCITY);
    struct move move = {.add = 1};
    named(session, "import of a velocity, added", &other);
    if (open_move(&move, session, &plan, &other) && sparse_trial_steps(move.from, 5) &&
        sparse_trial_steps(move.to, 3)) {
        check_ranks(session->team.size, move_rank, &move);
        sparse_trial_steps(move.to, 5);
    }
    close_move(&move, session);
}

/* A velocity is not dropped: a state that keeps none refuses it. */
static void homeless_rank(int rank, int size, void *argument)
{
    struct sparse_trial *trial = argument;
    struct sparse_rank *self = &trial->ranks[rank];
    const size_t bytes = (size_t)trib_sparse_export_bytes(self->state);
    char *good = need(bytes, 1);
    trib_sparse *plain = NULL, *in_place = NULL;
    trib_sparse_options options = sparse_options(&trial->plan);
    const trib_status refused = TRIB_ERR_INVALID_ARGUMENT;
    (void)size;
    CHECK_OK(trib_sparse_export(self->state, good, bytes, self->stream));
    options.flags |= TRIB_SPARSE_IN_PLACE;
    CHECK_OK(trib_sparse_create(&in_place, self->comm, trial->plan.count, TRIB_F64, &options));
    options.flags &= ~(uint32_t)TRIB_SPARSE_IN_PLACE;
    options.momentum = 0;
    CHECK_OK(trib_sparse_create(&plain, self->comm, trial->plan.count, TRIB_F64, &options));
    for (int32_t add = 0; add < 2; add++) {
        CHECK_STATUS(trib_sparse_import(plain, good, bytes, add, self->stream), refused);
        CHECK_STATUS(trib_sparse_import(in_place, good, bytes, add, self->stream), refused);
    }
    CHECK_OK(trib_sparse_destroy(plain));
    CHECK_OK(trib_sparse_destroy(in_place));
    free(good);
}

static void homeless(struct sparse_session *session)
{
    struct sparse_trial *trial = need(1, sizeof *trial);
    const struct sparse_plan plan = planned(session, VELOCITY);
    named(session, "a velocity that has no place", &plan);
    if (sparse_trial_open(trial, &session->team, &plan) && sparse_trial_steps(trial, 3))
        check_ranks(session->team.size, homeless_rank, trial);
    sparse_trial_close(trial);
    free(trial);
    check_end();
    sparse_session_mend(session);
}

/* Ranks that are gone: all residuals go to one rank, whose next call has everything. */
struct fewer {
    struct sparse_trial *from;
    struct team one;
};

static void take_all(int rank, int size, void *argument)
{
    struct fewer *fewer = argument;
    struct sparse_trial *from = fewer->from;
    const size_t n = from->plan.count,
                 bytes = (size_t)trib_sparse_export_bytes(from->ranks[0].state);
    trib_sparse_options options = sparse_options(&from->plan);
    trib_sparse *state = NULL;
    struct guarded data;
    char *snapshot = need(bytes, 1);
    options.k = n;
    (void)rank, (void)size;
    if (CHECK_OK(trib_sparse_create(&state, fewer->one.comms[0], n, TRIB_F32, &options))) {
        for (int other = 0; other < from->team->size; other++) {
            CHECK_OK(trib_sparse_export(from->ranks[other].state, snapshot, bytes,
                                        from->ranks[other].stream));
            CHECK_OK(trib_sparse_import(state, snapshot, bytes, other > 0, fewer->one.streams[0]));
        }
        guarded_create(&data, fewer->one.devices[0], n * sizeof(float));
        guarded_reset(&data, n * sizeof(float), 0);
        memset(guarded_image(&data, 0), 0, n * sizeof(float));
        guarded_push(&data, fewer->one.streams[0]);
        CHECK_OK(trib_sparse_allreduce(state, guarded_data(&data, 0), guarded_data(&data, 0),
                                       fewer->one.streams[0]));
        guarded_pull(&data, fewer->one.streams[0]);
        CHECK_OK(trib_stream_wait(fewer->one.devices[0], fewer->one.streams[0]));
        for (size_t i = 0; i < n; i++) {
            double all = 0;
            for (int other = 0; other < from->team->size; other++)
                all += from->ranks[other].residual[i];
            if (!CHECK_MSG(reference_load(guarded_found(&data, 0), TRIB_F32, i) == all,
                           "element %zu is %g, not %g", i,
                           reference_load(guarded_found(&data, 0), TRIB_F32, i), all))
                break;
        }
        guarded_destroy(&data);
    }
    CHECK_OK(trib_sparse_destroy(state));
    free(snapshot);
}

static void other_ranks(struct sparse_session *session)
{
    struct fewer fewer = {.from = need(1, sizeof *fewer.from)};
    struct sparse_plan plan = planned(session, 1);
    named(session, "all residuals to one rank", &plan);
    if (sparse_trial_open(fewer.from, &session->team, &plan) && sparse_trial_steps(fewer.from, 4) &&
        team_create(&fewer.one, session->team.backend, 1, NULL)) {
        check_ranks(1, take_all, &fewer);
        team_destroy(&fewer.one);
    }
    sparse_trial_close(fewer.from);
    free(fewer.from);
    check_end();
    sparse_session_mend(session);
}

/* What is no export of such a state is refused, and changes nothing. */
static void refuse_rank(int rank, int size, void *argument)
{
    struct sparse_trial *trial = argument;
    struct sparse_rank *self = &trial->ranks[rank];
    const size_t bytes = (size_t)trib_sparse_export_bytes(self->state);
    char *good = need(bytes, 1), *bad = need(bytes + 64, 1), *after = need(bytes, 1);
    trib_sparse *longer = NULL, *wider = NULL;
    const trib_status refused = TRIB_ERR_INVALID_ARGUMENT;
    const trib_sparse_options options = sparse_options(&trial->plan);
    (void)size;
    CHECK_OK(trib_sparse_export(self->state, good, bytes, self->stream));
    CHECK_OK(trib_sparse_create(&longer, self->comm, trial->plan.count + 1, TRIB_F32, &options));
    CHECK_OK(trib_sparse_create(&wider, self->comm, trial->plan.count, TRIB_F64, &options));
    for (int32_t add = 0; add < 2; add++) {
        memcpy(bad, good, bytes);
        CHECK_STATUS(trib_sparse_import(self->state, bad, bytes - 1, add, self->stream), refused);
        CHECK_STATUS(trib_sparse_import(self->state, bad, 0, add, self->stream), refused);
        CHECK_STATUS(trib_sparse_import(self->state, bad, bytes + 64, add, self->stream), refused);
        CHECK_STATUS(trib_sparse_import(longer, bad, bytes, add, self->stream), refused);
        CHECK_STATUS(trib_sparse_import(wider, bad, bytes, add, self->stream), refused);
        bad[0] ^= 1;
        CHECK_STATUS(trib_sparse_import(self->state, bad, bytes, add, self->stream), refused);
        bad[0] ^= 1;
        bad[bytes / 2] ^= 64;
        CHECK_STATUS(trib_sparse_import(self->state, bad, bytes, add, self->stream), refused);
    }
    CHECK_STATUS(trib_sparse_export(self->state, bad, bytes - 1, self->stream), refused);
    CHECK_OK(trib_sparse_export(self->state, after, bytes, self->stream));
    CHECK(memcmp(good, after, bytes) == 0);
    CHECK_OK(trib_sparse_destroy(longer));
    CHECK_OK(trib_sparse_destroy(wider));
    free(good);
    free(bad);
    free(after);
}

static void no_exports(struct sparse_session *session)
{
    struct sparse_trial *trial = need(1, sizeof *trial);
    const struct sparse_plan plan = planned(session, 4);
    named(session, "what is no export", &plan);
    if (sparse_trial_open(trial, &session->team, &plan) && sparse_trial_steps(trial, 2)) {
        check_ranks(session->team.size, refuse_rank, trial);
        sparse_trial_steps(trial, 2);
    }
    sparse_trial_close(trial);
    free(trial);
    check_end();
    sparse_session_mend(session);
}

void sparse_changes(struct sparse_session *session)
{
    densities(session);
    other_k(session);
    resets(session);
    continues(session);
    foreign(session);
    adds_velocity(session);
    homeless(session);
    other_ranks(session);
    no_exports(session);
}
