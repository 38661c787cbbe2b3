/* A process that exits and leaves something behind: it ends all the same, in good order. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/scenarios/scenario.h"

enum { SETTLE_MS = 50 };

/* Never destroyed, and in use while the process ends. */
static struct team team;
static _Atomic int waiting;

static void *wait_for_ever(void *argument)
{
    const int rank = *(const int *)argument;
    (void)trib_barrier(team.comms[rank], team.streams[rank]);
    atomic_fetch_add(&waiting, 1);
    (void)trib_stream_wait(team.devices[rank], team.streams[rank]);
    return NULL;
}

/* All ranks but the last wait, on threads of their own, which nobody joins. */
static void leave_stuck(void)
{
    static int ranks[TEAM_MAX];
    for (int rank = 0; rank < team.size - 1; rank++) {
        pthread_t thread;
        ranks[rank] = rank;
        CHECK(pthread_create(&thread, NULL, wait_for_ever, &ranks[rank]) == 0);
        CHECK(pthread_detach(thread) == 0);
    }
    while (atomic_load(&waiting) < team.size - 1)
        check_sleep_ms(1);
    check_sleep_ms(SETTLE_MS);
}

static void leave_batch(void)
{
    static float data[2];
    for (int rank = 0; rank < team.size; rank++) {
        CHECK_OK(trib_batch_begin(team.comms[rank]));
        CHECK_OK(trib_allreduce(team.comms[rank], data, data, 0, TRIB_F32, TRIB_SUM,
                                team.streams[rank]));
    }
}

void scenario_exit(const struct faults *faults)
{
    const char *what = faults->call;
    check_begin("%s, %d ranks: exit, left behind: %s", faults->backend, faults->size, what);
    if (faults_team(&team, faults, NULL)) {
        if (strstr(what, "stuck") != NULL)
            leave_stuck();
        if (strcmp(what, "batch") == 0)
            leave_batch();
        if (strstr(what, "aborted") != NULL)
            faults_abort(&team, "the process is about to end");
    }
    scenario_leave();
}
