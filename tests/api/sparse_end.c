/* Aborts in the middle of calls, and states that are destroyed while calls are queued. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"

static _Atomic int arrived, gave_up;

static void abort_here(trib_comm *comm)
{
    trib_abort *handle = NULL;
    check_sleep_ms(50);
    CHECK_OK(trib_comm_abort_handle(&handle, comm));
    CHECK_OK(trib_abort_raise(handle, "in the middle of a sparse allreduce"));
    trib_abort_release(handle);
}

/* Every later call reports the abort. */
static void stays_aborted(struct fixture *fixture)
{
    CHECK_STATUS(
        trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result, fixture->stream),
        TRIB_ERR_ABORTED);
    CHECK_DETAIL("trib_sparse_allreduce");
    CHECK_STATUS(trib_sparse_set_k(fixture->sparse, 3), TRIB_ERR_ABORTED);
    CHECK_STATUS(trib_sparse_reset(fixture->sparse, fixture->stream), TRIB_ERR_ABORTED);
}

/* One rank does not make the call that the others make: it aborts. */
static void aborted(int rank, int size, void *team)
{
    struct fixture fixture;
    const trib_sparse_options options = fixture_options("topka", 16, 0);
    size_t bytes, other;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    for (int call = 0; call < 2; call++) {
        fixture_fill(&fixture, (size_t)rank, 100, 1);
        CHECK_OK(fixture_call(&fixture));
    }
    const trib_sparse_statistics reported = fixture_statistics(&fixture);
    char *before = fixture_export(&fixture, &bytes);
    team_barrier(&arrived, size);
    if (rank != size - 1) {
        const trib_status status =
            trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream);
        CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "%s", trib_last_detail());
    } else {
        abort_here(fixture.comm);
    }
    CHECK(team_wait(team, rank, 10000));
    CHECK_STATUS(trib_sparse_status(fixture.sparse), TRIB_ERR_ABORTED);
    CHECK_DETAIL("in the middle");
    const trib_sparse_statistics found = fixture_statistics(&fixture);
    CHECK(found.calls_applied == reported.calls_applied &&
          found.words_sent == reported.words_sent &&
          found.total_selected == reported.total_selected);
    char *after = fixture_export(&fixture, &other);
    const size_t tail = FIXTURE_COUNT * sizeof(float);
    CHECK(bytes == other && memcmp(before + 128, after + 128, tail) == 0);
    CHECK(fixture_outcome(&fixture) == (rank != size - 1 ? 0 : 1));
    stays_aborted(&fixture);
    free(before);
    free(after);
    fixture_close(&fixture);
}

/* A stream that is held: destroying gives up waiting, and what is queued runs all the same. */
static void held(int rank, int size, void *argument)
{
    static _Atomic bool released;
    struct team *team = argument;
    const trib_sparse_options options = fixture_options("topka", 16, 0);
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    fixture_fill(&fixture, 0, 16, 1);
    fixture_push(&fixture);
    if (rank == 0)
        atomic_store(&released, false);
    team_barrier(&arrived, size);
    CHECK_OK(trib_stream_submit(fixture.device, team_hold, &released, fixture.stream));
    CHECK_OK(
        trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream));
    CHECK_STATUS(trib_sparse_destroy(fixture.sparse), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("trib_sparse_destroy");
    fixture.sparse = NULL;
    team_barrier(&gave_up, size);
    atomic_store(&released, true);
    fixture_pull(&fixture);
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture.found[i] == (i < 16 ? (float)((i + 1) * size) : 0));
    fixture_close(&fixture);
}

/* So it is for who has asked what a state has not applied. */
static void held_reading(int rank, int size, void *argument)
{
    _Atomic bool released = false;
    const trib_sparse_options options = fixture_options("topka", 16, 0);
    struct fixture fixture;
    (void)size;
    if (!fixture_open(&fixture, argument, rank, &options))
        return;
    CHECK_OK(trib_stream_submit(fixture.device, team_hold, &released, fixture.stream));
    CHECK_OK(trib_sparse_residual(fixture.sparse, fixture.result, fixture.stream));
    CHECK_STATUS(trib_sparse_destroy(fixture.sparse), TRIB_ERR_TIMEOUT);
    fixture.sparse = NULL;
    atomic_store(&released, true);
    fixture_pull(&fixture);
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture.found[i] == 0);
    fixture_close(&fixture);
}

/* A call that is queued and takes its time is waited for. */
static void waited(int rank, int size, void *argument)
{
    static int pause_ms = 100;
    struct team *team = argument;
    const trib_sparse_options options = fixture_options("topka", 16, 0);
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    fixture_fill(&fixture, 0, 16, 1);
    fixture_push(&fixture);
    CHECK_OK(trib_stream_submit(fixture.device, team_rest, &pause_ms, fixture.stream));
    CHECK_OK(
        trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream));
    CHECK_OK(trib_sparse_destroy(fixture.sparse));
    fixture.sparse = NULL;
    fixture_pull(&fixture);
    CHECK(fixture.found[15] == 16 * (float)size);
    fixture_close(&fixture);
}

void sparse_end(const char *backend, int size)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.close_timeout_ms = 100;
    atomic_store(&arrived, 0);
    fixture_ranks(backend, size, NULL, aborted, "an abort during a sparse allreduce");
    atomic_store(&arrived, 0);
    atomic_store(&gave_up, 0);
    fixture_ranks(backend, size, &options, held, "a state destroyed while its stream is held");
    fixture_ranks(backend, size, &options, held_reading,
                  "a state destroyed while it is being read");
    fixture_ranks(backend, size, NULL, waited, "a state destroyed while a call is queued");
}
