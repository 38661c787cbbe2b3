/* Aborts in the middle of calls, and states that are destroyed while calls are queued. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"

static _Atomic int arrived, gave_up;

/* One rank does not make the call that the others make: it aborts. */
static void aborted(int rank, int size, void *team)
{
    struct desk desk;
    const trib_sparse_options options = desk_options("topka", 16, 0);
    size_t bytes, other;
    if (!desk_open(&desk, team, rank, &options))
        return;
    for (int call = 0; call < 2; call++) {
        desk_fill(&desk, (size_t)rank, 100, 1);
        CHECK_OK(desk_call(&desk));
    }
    const trib_sparse_statistics told = desk_statistics(&desk);
    char *before = desk_export(&desk, &bytes);
    team_meet(&arrived, size);
    if (rank != size - 1) {
        const trib_status status =
            trib_sparse_allreduce(desk.sparse, desk.gradient, desk.result, desk.stream);
        CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "%s", trib_last_detail());
    } else {
        trib_abort *handle = NULL;
        check_sleep_ms(50);
        CHECK_OK(trib_comm_abort_handle(&handle, desk.comm));
        CHECK_OK(trib_abort_raise(handle, "in the middle of a sparse allreduce"));
        trib_abort_release(handle);
    }
    CHECK(team_wait(team, rank, 10000));
    CHECK_STATUS(trib_sparse_status(desk.sparse), TRIB_ERR_ABORTED);
    CHECK_DETAIL("in the middle");
    const trib_sparse_statistics found = desk_statistics(&desk);
    CHECK(found.calls_applied == told.calls_applied && found.words_sent == told.words_sent &&
          found.total_selected == told.total_selected);
    char *after = desk_export(&desk, &other);
    const size_t tail = DESK_COUNT * sizeof(float);
    CHECK(bytes == other && memcmp(before + 128, after + 128, tail) == 0);
    CHECK(desk_outcome(&desk) == (rank != size - 1 ? 0 : 1));
    CHECK_STATUS(trib_sparse_allreduce(desk.sparse, desk.gradient, desk.result, desk.stream),
                 TRIB_ERR_ABORTED);
    CHECK_DETAIL("trib_sparse_allreduce");
    CHECK_STATUS(trib_sparse_set_k(desk.sparse, 3), TRIB_ERR_ABORTED);
    CHECK_STATUS(trib_sparse_reset(desk.sparse, desk.stream), TRIB_ERR_ABORTED);
    free(before);
    free(after);
    desk_close(&desk);
}

/* A stream that is held: destroying gives up waiting, and what is queued runs all the same. */
static void held(int rank, int size, void *argument)
{
    static _Atomic bool released;
    struct team *team = argument;
    const trib_sparse_options options = desk_options("topka", 16, 0);
    struct desk desk;
    if (!desk_open(&desk, team, rank, &options))
        return;
    desk_fill(&desk, 0, 16, 1);
    desk_push(&desk);
    if (rank == 0)
        atomic_store(&released, false);
    team_meet(&arrived, size);
    CHECK_OK(trib_stream_submit(desk.device, team_hold, &released, desk.stream));
    CHECK_OK(trib_sparse_allreduce(desk.sparse, desk.gradient, desk.result, desk.stream));
    CHECK_STATUS(trib_sparse_destroy(desk.sparse), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("trib_sparse_destroy");
    desk.sparse = NULL;
    team_meet(&gave_up, size);
    atomic_store(&released, true);
    desk_pull(&desk);
    for (int i = 0; i < DESK_COUNT; i++)
        CHECK(desk.found[i] == (i < 16 ? (float)((i + 1) * size) : 0));
    desk_close(&desk);
}

/* So it is for who has asked what a state has not applied. */
static void held_reading(int rank, int size, void *argument)
{
    _Atomic bool released = false;
    const trib_sparse_options options = desk_options("topka", 16, 0);
    struct desk desk;
    (void)size;
    if (!desk_open(&desk, argument, rank, &options))
        return;
    CHECK_OK(trib_stream_submit(desk.device, team_hold, &released, desk.stream));
    CHECK_OK(trib_sparse_residual(desk.sparse, desk.result, desk.stream));
    CHECK_STATUS(trib_sparse_destroy(desk.sparse), TRIB_ERR_TIMEOUT);
    desk.sparse = NULL;
    atomic_store(&released, true);
    desk_pull(&desk);
    for (int i = 0; i < DESK_COUNT; i++)
        CHECK(desk.found[i] == 0);
    desk_close(&desk);
}

/* A call that is queued and takes its time is waited for. */
static void waited(int rank, int size, void *argument)
{
    static int pause_ms = 100;
    struct team *team = argument;
    const trib_sparse_options options = desk_options("topka", 16, 0);
    struct desk desk;
    if (!desk_open(&desk, team, rank, &options))
        return;
    desk_fill(&desk, 0, 16, 1);
    desk_push(&desk);
    CHECK_OK(trib_stream_submit(desk.device, team_rest, &pause_ms, desk.stream));
    CHECK_OK(trib_sparse_allreduce(desk.sparse, desk.gradient, desk.result, desk.stream));
    CHECK_OK(trib_sparse_destroy(desk.sparse));
    desk.sparse = NULL;
    desk_pull(&desk);
    CHECK(desk.found[15] == 16 * (float)size);
    desk_close(&desk);
}

void sparse_end(const char *backend, int size)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.close_timeout_ms = 100;
    atomic_store(&arrived, 0);
    desk_ranks(backend, size, NULL, aborted, "an abort during a sparse allreduce");
    atomic_store(&arrived, 0);
    atomic_store(&gave_up, 0);
    desk_ranks(backend, size, &options, held, "a state destroyed while its stream is held");
    desk_ranks(backend, size, &options, held_reading, "a state destroyed while it is being read");
    desk_ranks(backend, size, NULL, waited, "a state destroyed while a call is queued");
}
