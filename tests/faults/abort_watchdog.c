/* A rank is missing and nobody aborts: the watchdog does, and says who is missing. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/faults/abort.h"

enum { DEADLINE_MS = 300, BURST = 40 };

enum how { ONE_CALL, BURST_OF_CALLS, BURST_AND_PLAIN_WAIT };

struct missing {
    const struct faults *faults;
    struct team team;
    enum how how;
    _Atomic int worst_us; /* from the first call to the end of the wait */
};

static void note_worst(struct missing *missing, double ms)
{
    const int us = (int)(1000 * ms);
    int worst = atomic_load(&missing->worst_us);
    while (worst < us && !atomic_compare_exchange_weak(&missing->worst_us, &worst, us))
        continue;
}

static void wait_in_vain(struct missing *missing, int rank)
{
    struct team *team = &missing->team;
    if (missing->how == BURST_AND_PLAIN_WAIT)
        team_wait(team, rank, missing->faults->bound_ms + DEADLINE_MS);
    else
        CHECK_STATUS(trib_comm_wait(team->comms[rank], team->streams[rank], TRIB_NO_TIMEOUT),
                     TRIB_ERR_TIMEOUT);
    CHECK_STATUS(trib_comm_status(team->comms[rank]), TRIB_ERR_TIMEOUT);
}

/* The last rank makes no call. */
static void missing_rank(int rank, int size, void *argument)
{
    struct missing *missing = argument;
    struct team *team = &missing->team;
    struct fault_data data;
    char who[100];
    if (rank == size - 1 || !fault_data_create(&data, team, rank) ||
        !fault_data_put(&data, team, rank))
        return;
    void *tensor = fault_data_at(&data);
    const double begin = check_now_ms();
    for (int i = 0; i < (missing->how == ONE_CALL ? 1 : BURST); i++)
        CHECK_OK(trib_allreduce(team->comms[rank], tensor, tensor, FAULT_ELEMENTS, TRIB_F32,
                                TRIB_SUM, team->streams[rank]));
    wait_in_vain(missing, rank);
    (void)snprintf(who, sizeof who, "rank %d has not made it: its newest is call 2, trib_barrier",
                   size - 1);
    CHECK_DETAIL(who);
    note_worst(missing, check_now_ms() - begin);
    team_wait(team, rank, missing->faults->bound_ms); /* the stream has gone on */
    fault_data_destroy(&data);
}

static void gives_up(const struct faults *faults, enum how how, const char *name)
{
    struct missing missing = {.faults = faults, .how = how};
    trib_options options = TRIB_OPTIONS_INIT;
    check_begin("%s, %d ranks: the watchdog gives up a missing rank, %s", faults->backend,
                faults->size, name);
    options.call_timeout_ms = DEADLINE_MS;
    if (faults_team(&missing.team, faults, &options)) {
        check_ranks(faults->size, missing_rank, &missing);
        const double worst = atomic_load(&missing.worst_us) / 1e3;
        CHECK_MSG(worst >= DEADLINE_MS && worst < DEADLINE_MS + faults->bound_ms,
                  "with a deadline of %d ms the last rank returned after %.0f ms", DEADLINE_MS,
                  worst);
        faults_returned(faults, worst - DEADLINE_MS);
        printf("%s, %s: returned %.1f ms after the deadline\n", faults->backend, name,
               worst - DEADLINE_MS);
    }
    team_destroy(&missing.team);
    faults_fresh(faults);
    check_end();
}

void faults_watchdog_ends(const struct faults *faults)
{
    gives_up(faults, ONE_CALL, "one call");
}

struct held {
    struct team team;
    _Atomic bool released;
};

/* Earlier work keeps every stream busy for longer than the deadline. */
static void held_rank(int rank, int size, void *argument)
{
    struct held *held = argument;
    struct team *team = &held->team;
    struct fault_data data;
    (void)size;
    if (!fault_data_create(&data, team, rank) || !fault_data_put(&data, team, rank))
        return;
    void *tensor = fault_data_at(&data);
    CHECK_OK(
        trib_stream_submit(team->devices[rank], team_hold, &held->released, team->streams[rank]));
    CHECK_OK(trib_allreduce(team->comms[rank], tensor, tensor, FAULT_ELEMENTS, TRIB_F32, TRIB_SUM,
                            team->streams[rank]));
    if (rank == 0) {
        CHECK_STATUS(trib_comm_wait(team->comms[rank], team->streams[rank], 3 * DEADLINE_MS),
                     TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("the communicator is as before");
        CHECK_OK(trib_comm_status(team->comms[rank]));
        atomic_store(&held->released, true);
    }
    CHECK_OK(trib_comm_wait(team->comms[rank], team->streams[rank], TRIB_NO_TIMEOUT));
    fault_data_is(&data, team, rank, true, "behind earlier work");
    fault_data_destroy(&data);
}

static void not_started(const struct faults *faults)
{
    struct held held = {.released = false};
    trib_options options = TRIB_OPTIONS_INIT;
    check_begin("%s, %d ranks: a timed call behind earlier work has no deadline yet",
                faults->backend, faults->size);
    options.call_timeout_ms = DEADLINE_MS;
    options.flags = TRIB_TIMED;
    if (faults_team(&held.team, faults, &options))
        check_ranks(faults->size, held_rank, &held);
    team_destroy(&held.team);
    check_end();
}

void faults_watchdog(const struct faults *faults)
{
    faults_watchdog_ends(faults);
    gives_up(faults, BURST_OF_CALLS, "a burst of calls");
    gives_up(faults, BURST_AND_PLAIN_WAIT, "a burst of calls without trib_comm_wait");
    not_started(faults);
}
