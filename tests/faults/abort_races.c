/* Aborts: many at once, and against destroy, creation and other communicators. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/abort.h"

enum { ABORTERS = 8 };

/* ----------------------------------------------------------------------- eight threads at once */

struct crowd {
    struct team team;
    trib_abort *handle;
    _Atomic int arrived;
};

static void aborter(int index, int size, void *argument)
{
    struct crowd *crowd = argument;
    char reason[32];
    trib_abort *own = NULL;
    (void)snprintf(reason, sizeof reason, "aborter %d of eight", index);
    CHECK_OK(trib_abort_clone(&own, crowd->handle));
    team_meet(&crowd->arrived, size);
    CHECK_OK(trib_abort_raise(own, reason));
    CHECK(trib_abort_raised(own) == 1);
    trib_abort_release(own);
}

static void eight_at_once(const struct faults *faults)
{
    struct crowd crowd = {.arrived = 0};
    check_begin("%s, %d ranks: abort from eight threads at once", faults->backend, faults->size);
    if (faults_team(&crowd.team, faults, NULL)) {
        CHECK_OK(trib_comm_abort_handle(&crowd.handle, crowd.team.comms[0]));
        check_ranks(ABORTERS, aborter, &crowd);
        /* One of them was the first, and every rank names the same one. */
        CHECK_STATUS(trib_comm_status(crowd.team.comms[0]), TRIB_ERR_ABORTED);
        const char *named = strstr(trib_last_detail(), "aborter ");
        char reason[32] = "";
        if (CHECK(named != NULL))
            (void)snprintf(reason, sizeof reason, "%.18s", named);
        faults_all_aborted(&crowd.team, reason);
        trib_abort_release(crowd.handle);
    }
    team_destroy(&crowd.team);
    faults_fresh(faults);
    check_end();
}

/* --------------------------------------------------------------------------- abort and destroy */

struct race {
    struct team team;
    trib_abort *handle;
    _Atomic int arrived;
    int round;
};

/* All ranks destroy, and one more thread aborts. A turn at waiting moves the abort to and fro. */
static void race_member(int index, int size, void *argument)
{
    struct race *race = argument;
    team_meet(&race->arrived, size);
    for (volatile int spin = 0; spin < (index * 37 + race->round * 101) % 3000; spin++)
        continue;
    if (index == size - 1) {
        CHECK_OK(trib_abort_raise(race->handle, "in a race"));
        trib_abort_release(race->handle);
        return;
    }
    if (race->round % 3 == 0) /* may run, may be refused; nobody knows */
        (void)trib_barrier(race->team.comms[index], race->team.streams[index]);
    CHECK_OK(trib_comm_destroy(race->team.comms[index]));
    race->team.comms[index] = NULL;
    CHECK_OK(trib_stream_wait(race->team.devices[index], race->team.streams[index]));
}

static void against_destroy(const struct faults *faults)
{
    struct race race = {.arrived = 0};
    check_begin("%s, %d ranks: abort against destroy, %d times", faults->backend, faults->size,
                faults->repetitions);
    bool good = team_prepare(&race.team, faults->backend, faults->size);
    for (race.round = 0; race.round < faults->repetitions && good; race.round++) {
        atomic_store(&race.arrived, 0);
        good = team_open(&race.team, NULL) &&
               CHECK_OK(trib_comm_abort_handle(&race.handle, race.team.comms[0]));
        if (good)
            check_ranks(faults->size + 1, race_member, &race);
    }
    team_destroy(&race.team);
    faults_fresh(faults);
    check_end();
}

/* -------------------------------------------------------------------------- other communicators */

static void abort_team(struct team *team, const char *reason)
{
    trib_abort *handle = NULL;
    if (CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0])))
        CHECK_OK(trib_abort_raise(handle, reason));
    trib_abort_release(handle);
}

static void neighbours(const struct faults *faults)
{
    struct team first, second;
    check_begin("%s, %d ranks: two communicators on the same devices", faults->backend,
                faults->size);
    if (faults_team(&first, faults, NULL) && faults_team(&second, faults, NULL)) {
        abort_team(&first, "only the first");
        faults_all_aborted(&first, "only the first");
        faults_works(&second, "the neighbour of an aborted communicator");
        team_close(&first);
        faults_works(&second, "the neighbour of a destroyed communicator");
        CHECK(team_open(&first, NULL));
        faults_works(&first, "in the place of an aborted communicator");
        abort_team(&second, "now the second");
        faults_works(&first, "the other neighbour");
    }
    team_destroy(&second);
    team_destroy(&first);
    faults_fresh(faults);
    check_end();
}

struct family {
    struct team *parent, *child;
};

static void split_rank(int rank, int size, void *argument)
{
    struct family *family = argument;
    (void)size;
    CHECK_OK(trib_comm_split(&family->child->comms[rank], family->parent->comms[rank], 0, rank));
}

static void families(const struct faults *faults, bool abort_parent)
{
    struct team parent, child;
    struct family family = {&parent, &child};
    struct team *aborted = abort_parent ? &parent : &child;
    struct team *other = abort_parent ? &child : &parent;
    check_begin("%s, %d ranks: abort the %s of a family", faults->backend, faults->size,
                abort_parent ? "parent" : "child");
    if (faults_team(&parent, faults, NULL) &&
        team_prepare(&child, faults->backend, faults->size)) {
        check_ranks(faults->size, split_rank, &family);
        faults_works(&child, "a child");
        abort_team(aborted, "this generation");
        faults_all_aborted(aborted, "this generation");
        faults_works(other, "the other generation");
        team_close(aborted);
        faults_works(other, "the other generation, alone");
        team_destroy(&child);
    }
    team_destroy(&parent);
    faults_fresh(faults);
    check_end();
}

/* -------------------------------------------------------------------------- again and again */

/* Threads of this process, by the operating system's account; 0 where it gives none. */
static int threads_now(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[128];
    int threads = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "Threads:", 8) == 0)
            threads = atoi(line + 8);
    if (file != NULL)
        fclose(file);
    return threads;
}

static int threads_settled(int wanted)
{
    for (int i = 0; i < 2000 && threads_now() > wanted; i++)
        check_sleep_ms(1); /* those that reclaim in the background come to their end */
    return threads_now();
}

static void again_and_again(const struct faults *faults)
{
    struct team team;
    int threads = 0;
    check_begin("%s, %d ranks: create and abort, %d times, leave nothing", faults->backend,
                faults->size, faults->repetitions / 4 + 3);
    for (int round = 0; round < faults->repetitions / 4 + 3; round++) {
        if (faults_team(&team, faults, NULL))
            abort_team(&team, "again");
        team_destroy(&team);
        if (round == 1) /* after the first there may be some that stay for ever */
            threads = threads_settled(1);
    }
    const int left = threads_settled(threads);
    CHECK_MSG(left <= threads, "%d threads after the second time, %d in the end", threads, left);
    check_end();
}

void faults_races(const struct faults *faults)
{
    eight_at_once(faults);
    against_destroy(faults);
    neighbours(faults);
    families(faults, true);
    families(faults, false);
    again_and_again(faults);
}
