/* Sparse allreduces that an abort ends: one that a rank never joins, and many on large tensors, so
 * that the library's own kernels are at work. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"
#include "tests/scenarios/scenario.h"

enum { SETTLE_MS = 30, LARGE = 1 << 19, LARGE_SLOW = 1 << 24, CALLS = 200, WINDOW_MS = 40 };

/* ------------------------------------------------------------------------------ a missing rank */

struct missing {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    _Atomic int begun;
    double raised_at;
};

/* The residual is to the bit what it was, and the call was not applied. */
static void unchanged(struct fixture *fixture, const char *before, size_t bytes)
{
    enum { HEAD = 128 }; /* of an export: what counts calls */
    size_t found = 0;
    char *after = fixture_export(fixture, &found);
    CHECK(found == bytes && memcmp(before + HEAD, after + HEAD, FIXTURE_COUNT * 4) == 0);
    CHECK(fixture_statistics(fixture).calls_applied == 1);
    CHECK(fixture_outcome(fixture) == (fixture->rank < fixture->size - 1 ? 0 : 1));
    free(after);
}

static void waiting_rank(struct missing *missing, struct fixture *fixture)
{
    atomic_fetch_add(&missing->begun, 1);
    const trib_status status =
        trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result, fixture->stream);
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "a sparse allreduce is %s: %s",
              trib_status_name(status), trib_last_detail());
    CHECK_OK(trib_stream_wait(fixture->device, fixture->stream));
    faults_returned(missing->faults, check_now_ms() - missing->raised_at);
}

static void missing_rank(int rank, int size, void *argument)
{
    struct missing *missing = argument;
    struct fixture fixture;
    size_t bytes = 0;
    const trib_sparse_options options = fixture_options(missing->faults->call, 16, 0);
    if (!fixture_open(&fixture, &missing->team, rank, &options))
        return;
    fixture_fill(&fixture, (size_t)rank, 100, 1);
    CHECK_OK(fixture_call(&fixture));
    char *before = fixture_export(&fixture, &bytes);
    if (rank < size - 1) {
        waiting_rank(missing, &fixture);
    } else {
        while (atomic_load(&missing->begun) < size - 1)
            check_sleep_ms(1);
        check_sleep_ms(SETTLE_MS);
        missing->raised_at = check_now_ms();
        CHECK_OK(trib_abort_raise(missing->handle, "a rank never joined"));
    }
    CHECK_STATUS(trib_sparse_status(fixture.sparse), TRIB_ERR_ABORTED);
    CHECK_DETAIL("a rank never joined");
    unchanged(&fixture, before, bytes);
    free(before);
    fixture_close(&fixture);
}

void scenario_sparse_missing(const struct faults *faults)
{
    struct missing missing = {.faults = faults};
    check_begin("%s, %d ranks: a rank never joins a sparse allreduce (%s)", faults->backend,
                faults->size, faults->call);
    if (faults_team(&missing.team, faults, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&missing.handle, missing.team.comms[0]))) {
        check_ranks(faults->size, missing_rank, &missing);
        faults_all_aborted(&missing.team, "a rank never joined");
        trib_abort_release(missing.handle);
    }
    team_destroy(&missing.team);
    check_end();
}

/* ---------------------------------------------------------------------------- kernels at work */

struct spinning {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    size_t count;
    _Atomic int begun, calls;
    double raised_at;
    int after_ms;
};

/* Ascending magnitudes, other places on other ranks: merges have much to do. */
static void put_gradient(const struct spinning *spinning, int rank, float *gradient)
{
    const struct team *team = &spinning->team;
    float *given = malloc(spinning->count * sizeof *given);
    if (given == NULL)
        abort();
    for (size_t i = 0; i < spinning->count; i++)
        given[i] = (float)((i * 2654435761u + (size_t)rank * 97) % 100003) - 50000;
    CHECK_OK(trib_device_copy(team->devices[rank], gradient, given, spinning->count * sizeof *given,
                              team->streams[rank]));
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    free(given);
}

static void work(struct spinning *spinning, int rank, trib_sparse *state, float *gradient)
{
    const struct team *team = &spinning->team;
    trib_status status = TRIB_OK;
    team_barrier(&spinning->begun, team->size + 1);
    for (int i = 0; i < CALLS && status == TRIB_OK; i++) {
        status = trib_sparse_allreduce(state, gradient, gradient, team->streams[rank]);
        if (rank == 0)
            atomic_fetch_add(&spinning->calls, 1);
    }
    CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "a sparse allreduce is %s: %s",
              trib_status_name(status), trib_last_detail());
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    faults_returned(spinning->faults, check_now_ms() - spinning->raised_at);
    CHECK_STATUS(trib_sparse_status(state), TRIB_ERR_ABORTED);
    CHECK_DETAIL("while kernels run");
}

static void spinning_rank(struct spinning *spinning, int rank)
{
    const struct team *team = &spinning->team;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *state = NULL;
    void *gradient = NULL;
    options.algorithm = "topka";
    options.density = 0.25;
    if (CHECK_OK(
            trib_device_alloc(&gradient, team->devices[rank], spinning->count * sizeof(float)))) {
        put_gradient(spinning, rank, gradient);
        if (CHECK_OK(
                trib_sparse_create(&state, team->comms[rank], spinning->count, TRIB_F32, &options)))
            work(spinning, rank, state, gradient);
        CHECK_OK(trib_sparse_destroy(state));
        CHECK_OK(trib_device_free(team->devices[rank], gradient));
    }
}

static void spinning_member(int index, int size, void *argument)
{
    struct spinning *spinning = argument;
    if (index < size - 1) {
        spinning_rank(spinning, index);
        return;
    }
    team_barrier(&spinning->begun, size);
    while (atomic_load(&spinning->calls) == 0)
        check_sleep_ms(1);
    check_sleep_ms(spinning->after_ms);
    spinning->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(spinning->handle, "while kernels run"));
}

void scenario_sparse_spinning(const struct faults *faults)
{
    static int turn;
    struct spinning spinning = {.faults = faults,
                                .count = faults->slow ? LARGE_SLOW : LARGE,
                                .after_ms = 7 + 13 * turn++ % WINDOW_MS};
    check_begin("%s, %d ranks: abort while sparse kernels run, after %d ms", faults->backend,
                faults->size, spinning.after_ms);
    if (faults_team(&spinning.team, faults, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&spinning.handle, spinning.team.comms[0]))) {
        check_ranks(faults->size + 1, spinning_member, &spinning);
        faults_all_aborted(&spinning.team, "while kernels run");
        trib_abort_release(spinning.handle);
    }
    team_destroy(&spinning.team);
    check_end();
}
