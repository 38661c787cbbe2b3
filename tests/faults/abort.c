/* Aborts: the fixture, and the scenarios in which no rank is waiting. */
#include "tests/faults/abort.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ fixture */

void faults_returned(const struct faults *faults, double ms)
{
    const int us = ms < 2e6 ? (int)(1000 * ms) : INT_MAX;
    if (faults->worst_us == NULL)
        return;
    int worst = atomic_load(faults->worst_us);
    while (worst < us && !atomic_compare_exchange_weak(faults->worst_us, &worst, us))
        continue;
}

bool fault_data_create(struct fault_data *data, const struct team *team, int rank)
{
    return guarded_create(&data->memory, team->devices[rank], FAULT_ELEMENTS * sizeof(float));
}

void fault_data_destroy(struct fault_data *data)
{
    guarded_destroy(&data->memory);
}

void *fault_data_at(const struct fault_data *data)
{
    return guarded_data(&data->memory, 0);
}

static void fill(struct fault_data *data, int size, int rank, bool summed)
{
    float *image = guarded_image(&data->memory, 0);
    for (int i = 0; i < FAULT_ELEMENTS; i++)
        image[i] = summed ? (float)(size * (size - 1) / 2 + size * (i % 7)) : (float)(rank + i % 7);
}

bool fault_data_put(struct fault_data *data, const struct team *team, int rank)
{
    guarded_reset(&data->memory, FAULT_ELEMENTS * sizeof(float), 0);
    fill(data, team->size, rank, false);
    return guarded_push(&data->memory, team->streams[rank]) &&
           CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
}

bool fault_data_is(struct fault_data *data, const struct team *team, int rank, bool summed,
                   const char *what)
{
    fill(data, team->size, rank, summed);
    return guarded_pull(&data->memory, team->streams[rank]) &&
           CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank])) &&
           guarded_same(&data->memory, __FILE__, __LINE__, what);
}

struct works {
    struct team *team;
    const char *what;
};

static void works_rank(int rank, int size, void *argument)
{
    const struct works *works = argument;
    const struct team *team = works->team;
    struct fault_data data;
    (void)size;
    if (!fault_data_create(&data, team, rank))
        return;
    if (fault_data_put(&data, team, rank) &&
        CHECK_OK(trib_allreduce(team->comms[rank], fault_data_at(&data), fault_data_at(&data),
                                FAULT_ELEMENTS, TRIB_F32, TRIB_SUM, team->streams[rank])) &&
        CHECK_OK(trib_barrier(team->comms[rank], team->streams[rank])) &&
        fault_data_is(&data, team, rank, true, works->what))
        CHECK_OK(trib_comm_status(team->comms[rank]));
    fault_data_destroy(&data);
}

void faults_works(struct team *team, const char *what)
{
    struct works works = {team, what};
    check_ranks(team->size, works_rank, &works);
}

bool faults_team(struct team *team, const struct faults *faults, const trib_options *options)
{
    if (!team_create(team, faults->backend, faults->size, options))
        return false;
    faults_works(team, "before");
    return true;
}

static void fresh(const struct faults *faults)
{
    struct team team;
    if (team_create(&team, faults->backend, faults->size, NULL))
        faults_works(&team, "a fresh communicator");
    team_destroy(&team);
}

void faults_fresh(const struct faults *faults)
{
    if (!faults->slow)
        fresh(faults);
}

void faults_abort(const struct team *team, const char *reason)
{
    trib_abort *handle = NULL;
    if (CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0])))
        CHECK_OK(trib_abort_raise(handle, reason));
    trib_abort_release(handle);
}

void faults_all_aborted(struct team *team, const char *reason)
{
    for (int rank = 0; rank < team->size; rank++) {
        trib_comm *comm = team->comms[rank], *child = comm;
        trib_counters counters = TRIB_COUNTERS_INIT;
        trib_abort *handle = NULL;
        CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_ABORTED);
        CHECK_DETAIL(reason);
        CHECK_STATUS(trib_barrier(comm, team->streams[rank]), TRIB_ERR_ABORTED);
        CHECK_DETAIL(reason);
        CHECK_STATUS(trib_allreduce(comm, NULL, NULL, 0, TRIB_F32, TRIB_SUM, team->streams[rank]),
                     TRIB_ERR_ABORTED);
        CHECK_STATUS(trib_allreduce_list(comm, NULL, 0, TRIB_SUM, team->streams[rank]),
                     TRIB_ERR_ABORTED);
        CHECK_STATUS(trib_batch_begin(comm), TRIB_ERR_ABORTED);
        CHECK_STATUS(trib_comm_split(&child, comm, 0, 0), TRIB_ERR_ABORTED);
        CHECK(child == NULL);
        CHECK_OK(trib_comm_counters(&counters, comm));
        if (CHECK_OK(trib_comm_abort_handle(&handle, comm)))
            CHECK(trib_abort_raised(handle) == 1);
        trib_abort_release(handle);
    }
}

static trib_abort *handle_of(const struct team *team, int rank)
{
    trib_abort *handle = NULL;
    CHECK_OK(trib_comm_abort_handle(&handle, team->comms[rank]));
    return handle;
}

static void end(struct team *team, const struct faults *faults)
{
    const double start = check_now_ms();
    team_destroy(team);
    CHECK_MSG(check_now_ms() - start < faults->bound_ms, "destroy took %.0f ms",
              check_now_ms() - start);
    faults_fresh(faults);
}

/* ------------------------------------------------------------------------- nobody is waiting */

void faults_unused(const struct faults *faults)
{
    struct team team;
    check_begin("%s, %d ranks: abort before any collective", faults->backend, faults->size);
    if (team_create(&team, faults->backend, faults->size, NULL)) {
        trib_abort *handle = handle_of(&team, 0);
        CHECK(trib_abort_raised(handle) == 0);
        CHECK_OK(trib_abort_status(handle));
        const double start = check_now_ms();
        CHECK_OK(trib_abort_raise(handle, "nothing had begun"));
        CHECK(trib_abort_raised(handle) == 1);
        faults_all_aborted(&team, "nothing had begun");
        faults_returned(faults, check_now_ms() - start);
        team_close(&team);
        CHECK_STATUS(trib_abort_status(handle), TRIB_ERR_ABORTED); /* it outlives them */
        CHECK_DETAIL("nothing had begun");
        trib_abort_release(handle);
    }
    end(&team, faults);
    check_end();
}

struct idle {
    struct team team;
    double raised_at;
};

static void idle_rank(int rank, int size, void *argument)
{
    struct idle *idle = argument;
    struct team *team = &idle->team;
    struct fault_data data;
    (void)size;
    if (!fault_data_create(&data, team, rank) || !fault_data_put(&data, team, rank))
        return;
    const trib_status status =
        trib_allreduce(team->comms[rank], fault_data_at(&data), fault_data_at(&data),
                       FAULT_ELEMENTS, TRIB_F32, TRIB_SUM, team->streams[rank]);
    /* Another rank's call may still be on its way back when rank 0 has its result, and aborts. */
    CHECK_MSG(status == TRIB_OK || (rank != 0 && status == TRIB_ERR_ABORTED), "the call is %s: %s",
              trib_status_name(status), trib_last_detail());
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    if (rank == 0) { /* its own result is there; the others' may be on the way, and then are lost */
        trib_abort *handle = handle_of(team, 0);
        idle->raised_at = check_now_ms();
        CHECK_OK(trib_abort_raise(handle, NULL));
        trib_abort_release(handle);
        fault_data_is(&data, team, rank, true, "the result from before the abort");
    }
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    fault_data_destroy(&data);
}

void faults_after_success(const struct faults *faults)
{
    struct idle idle = {.raised_at = 0};
    check_begin("%s, %d ranks: abort after success", faults->backend, faults->size);
    if (faults_team(&idle.team, faults, NULL)) {
        check_ranks(faults->size, idle_rank, &idle);
        faults_all_aborted(&idle.team, "");
        faults_returned(faults, check_now_ms() - idle.raised_at);
    }
    end(&idle.team, faults);
    check_end();
}

void faults_twice(const struct faults *faults)
{
    struct team team;
    check_begin("%s, %d ranks: the first reason stays", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        trib_abort *handle = handle_of(&team, faults->size - 1), *clone = NULL;
        CHECK_OK(trib_abort_clone(&clone, handle));
        const double start = check_now_ms();
        CHECK_OK(trib_abort_raise(handle, "first reason"));
        CHECK_OK(trib_abort_raise(handle, "second reason"));
        CHECK_OK(trib_abort_raise(clone, "third reason"));
        trib_abort_release(handle);
        CHECK(trib_abort_raised(clone) == 1);
        faults_all_aborted(&team, "first reason");
        faults_returned(faults, check_now_ms() - start);
        trib_abort_release(clone);
    }
    end(&team, faults);
    check_end();
}

static void handle_outlives(const struct faults *faults)
{
    struct team team;
    check_begin("%s, %d ranks: a handle outlives its communicator", faults->backend, faults->size);
    if (faults_team(&team, faults, NULL)) {
        trib_abort *early = handle_of(&team, 0), *late = handle_of(&team, 0), *clone = NULL;
        CHECK_OK(trib_abort_raise(early, "early"));
        team_close(&team);
        CHECK(trib_abort_raised(late) == 1);
        CHECK_OK(trib_abort_raise(late, "late"));
        CHECK_OK(trib_abort_clone(&clone, late));
        trib_abort_release(early);
        trib_abort_release(late);
        CHECK(trib_abort_raised(clone) == 1);
        trib_abort_release(clone);
    }
    if (CHECK(team_open(&team, NULL))) { /* and one that was never raised before */
        trib_abort *handle = handle_of(&team, 0);
        team_close(&team);
        CHECK_OK(trib_abort_raise(handle, "much too late"));
        trib_abort_release(handle);
    }
    trib_abort_release(NULL);
    end(&team, faults);
    check_end();
}

struct in_batch {
    struct team team;
    const struct faults *faults;
    _Atomic int arrived;
};

static void in_batch_rank(int rank, int size, void *argument)
{
    struct in_batch *in_batch = argument;
    struct team *team = &in_batch->team;
    struct fault_data data;
    if (!fault_data_create(&data, team, rank) || !fault_data_put(&data, team, rank))
        return;
    CHECK_OK(trib_batch_begin(team->comms[rank]));
    CHECK_OK(trib_allreduce(team->comms[rank], fault_data_at(&data), fault_data_at(&data),
                            FAULT_ELEMENTS, TRIB_F32, TRIB_SUM, team->streams[rank]));
    team_barrier(&in_batch->arrived, size);
    trib_abort *handle = handle_of(team, rank); /* all ranks abort, from all threads */
    const double start = check_now_ms();
    CHECK_OK(trib_abort_raise(handle, "in the middle of a batch"));
    trib_abort_release(handle);
    CHECK_STATUS(trib_batch_end(team->comms[rank]), TRIB_ERR_ABORTED);
    faults_returned(in_batch->faults, check_now_ms() - start);
    fault_data_is(&data, team, rank, false, "the input of a batch that never ran");
    fault_data_destroy(&data);
}

void faults_in_batch(const struct faults *faults)
{
    struct in_batch in_batch = {.faults = faults, .arrived = 0};
    check_begin("%s, %d ranks: all ranks abort in the middle of a batch", faults->backend,
                faults->size);
    if (faults_team(&in_batch.team, faults, NULL)) {
        check_ranks(faults->size, in_batch_rank, &in_batch);
        faults_all_aborted(&in_batch.team, "in the middle of a batch");
    }
    end(&in_batch.team, faults);
    check_end();
}

static void groups(const struct faults *faults)
{
    struct team team;
    trib_options options = TRIB_OPTIONS_INIT;
    trib_group *group = NULL;
    trib_abort *handle = NULL;
    const void *send[TEAM_MAX] = {NULL};
    void *recv[TEAM_MAX] = {NULL};
    options.backend = faults->backend;
    check_begin("%s, %d ranks: the handle of a group", faults->backend, faults->size);
    CHECK(team_prepare(&team, faults->backend, faults->size));
    for (int after_split = 0; after_split < 2; after_split++) {
        if (!CHECK_OK(trib_group_create(&group, NULL, faults->size, &options)) ||
            !CHECK_OK(trib_group_abort_handle(&handle, group)))
            break;
        CHECK_OK(trib_group_allreduce(group, send, recv, 0, TRIB_F32, TRIB_SUM, team.streams));
        if (after_split)
            CHECK_OK(trib_group_split(team.comms, group));
        CHECK_OK(trib_abort_raise(handle, "the whole group"));
        trib_abort_release(handle);
        if (after_split) {
            faults_all_aborted(&team, "the whole group");
            continue;
        }
        CHECK_STATUS(trib_group_allreduce(group, send, recv, 0, TRIB_F32, TRIB_SUM, NULL),
                     TRIB_ERR_ABORTED);
        CHECK_DETAIL("the whole group");
        CHECK_STATUS(trib_group_status(group), TRIB_ERR_ABORTED);
        CHECK_OK(trib_group_destroy(group));
    }
    end(&team, faults);
    check_end();
}

void faults_idle(const struct faults *faults)
{
    faults_unused(faults);
    faults_after_success(faults);
    faults_twice(faults);
    handle_outlives(faults);
    faults_in_batch(faults);
    groups(faults);
}

void faults_suite(const struct faults *faults)
{
    faults_idle(faults);
    faults_races(faults);
    faults_stuck(faults);
    faults_deadlines(faults);
    faults_watchdog(faults);
    faults_calls(faults);
    faults_states(faults);
    faults_shrink(faults);
    faults_reducers(faults);
    faults_batches(faults);
    check_begin("%s, %d ranks: after all of it", faults->backend, faults->size);
    fresh(faults);
    check_end();
}
