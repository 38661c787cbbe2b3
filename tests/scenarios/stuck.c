/* Ranks wait for one that never comes, and abort: by whatever handle, from whatever threads, beside
 * threads that ask how things are. */
#include <stdatomic.h>
#include <stdio.h>

#include "tests/scenarios/scenario.h"

enum { POLLERS = 3 };

static void queue_barrier(int rank, int size, void *argument)
{
    struct team *team = argument;
    if (rank < size - 1)
        CHECK_OK(trib_barrier(team->comms[rank], team->streams[rank]));
}

bool scenario_stuck(struct team *team, const struct faults *faults)
{
    if (!faults_team(team, faults, NULL))
        return false;
    check_ranks(faults->size, queue_barrier, team);
    return true;
}

void scenario_freed(struct team *team, const struct faults *faults, double raised_at,
                    const char *reason)
{
    for (int rank = 0; rank < faults->size; rank++)
        team_wait(team, rank, faults->bound_ms);
    faults_returned(faults, check_now_ms() - raised_at);
    faults_all_aborted(team, reason);
    team_destroy(team);
}

/* ----------------------------------------------------------------------------- whose handle */

static void with_handle_of(const struct faults *faults, int rank)
{
    struct team team;
    trib_abort *handle = NULL;
    check_begin("%s, %d ranks: abort with the handle of rank %d", faults->backend, faults->size,
                rank);
    if (scenario_stuck(&team, faults) &&
        CHECK_OK(trib_comm_abort_handle(&handle, team.comms[rank]))) {
        const double raised_at = check_now_ms();
        CHECK_OK(trib_abort_raise(handle, "one rank's handle"));
        scenario_freed(&team, faults, raised_at, "one rank's handle");
        trib_abort_release(handle);
    }
    check_end();
}

void scenario_each_handle(const struct faults *faults)
{
    for (int rank = 0; rank < faults->size; rank++)
        with_handle_of(faults, rank);
}

/* ------------------------------------------------------------------------- all ranks at once */

struct all {
    struct team team;
    _Atomic int arrived;
    double begun_at[TEAM_MAX];
};

static void abort_rank(int rank, int size, void *argument)
{
    struct all *all = argument;
    char reason[32];
    trib_abort *handle = NULL;
    (void)snprintf(reason, sizeof reason, "all of us, and rank %d", rank);
    CHECK_OK(trib_comm_abort_handle(&handle, all->team.comms[rank]));
    team_barrier(&all->arrived, size);
    all->begun_at[rank] = check_now_ms();
    CHECK_OK(trib_abort_raise(handle, reason));
    trib_abort_release(handle);
}

void scenario_all_abort(const struct faults *faults)
{
    struct all all = {.arrived = 0};
    check_begin("%s, %d ranks: all ranks abort", faults->backend, faults->size);
    if (scenario_stuck(&all.team, faults)) {
        check_ranks(faults->size, abort_rank, &all);
        double first = all.begun_at[0];
        for (int rank = 1; rank < faults->size; rank++)
            first = all.begun_at[rank] < first ? all.begun_at[rank] : first;
        scenario_freed(&all.team, faults, first, "all of us, and rank ");
    }
    check_end();
}

/* -------------------------------------------------------- threads that ask how things are */

struct polled {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    _Atomic int polling;
    double raised_at;
};

/* Once it has ended, it stays so. */
static void poll_status(struct polled *polled)
{
    while (trib_abort_status(polled->handle) == TRIB_OK)
        atomic_fetch_add(&polled->polling, 1);
    faults_returned(polled->faults, check_now_ms() - polled->raised_at);
    for (int i = 0; i < 1000; i++)
        CHECK_STATUS(trib_abort_status(polled->handle), TRIB_ERR_ABORTED);
    CHECK_DETAIL("beside pollers");
}

/* So does what the owner of a rank asks. */
static void poll_rank(struct polled *polled, int rank)
{
    struct team *team = &polled->team;
    while (trib_comm_status(team->comms[rank]) == TRIB_OK)
        continue;
    team_wait(team, rank, polled->faults->bound_ms);
    faults_returned(polled->faults, check_now_ms() - polled->raised_at);
    for (int i = 0; i < 1000; i++)
        CHECK_STATUS(trib_comm_status(team->comms[rank]), TRIB_ERR_ABORTED);
}

static void polled_member(int index, int size, void *argument)
{
    struct polled *polled = argument;
    const int ranks = polled->team.size;
    if (index < ranks) {
        poll_rank(polled, index);
    } else if (index < size - 1) {
        poll_status(polled);
    } else {
        while (atomic_load(&polled->polling) < 1000)
            check_sleep_ms(1);
        polled->raised_at = check_now_ms();
        CHECK_OK(trib_abort_raise(polled->handle, "beside pollers"));
    }
}

void scenario_poller(const struct faults *faults)
{
    struct polled polled = {.faults = faults};
    check_begin("%s, %d ranks: abort beside pollers", faults->backend, faults->size);
    if (scenario_stuck(&polled.team, faults) &&
        CHECK_OK(trib_comm_abort_handle(&polled.handle, polled.team.comms[0]))) {
        check_ranks(faults->size + POLLERS + 1, polled_member, &polled);
        trib_abort_release(polled.handle);
        faults_all_aborted(&polled.team, "beside pollers");
    }
    team_destroy(&polled.team);
    check_end();
}
