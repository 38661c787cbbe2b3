/* While no call is queued the watchdog sleeps, with communicators that are there, and the next call
 * wakes it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/process.h"
#include "tests/team.h"

enum {
    RANKS = 2,
    CALL_MS = 300,
    LATER_MS = 1000, /* other programs may have the processors */
    IDLE_MS = 2000,  /* twice the longest of the watchdog's periods */
    BOUND_MS = 20000,
    THREADS = 64
};

static float data[RANKS];

/* The threads of this process; how many. */
static int list_threads(int out[THREADS])
{
    int n = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads != NULL && (entry = readdir(threads)) != NULL;) {
        const int thread = atoi(entry->d_name); /* 0: a folder above */
        if (thread != 0 && n < THREADS)
            out[n++] = thread;
    }
    if (threads != NULL)
        (void)closedir(threads);
    return n;
}

/* A team, and the thread that came with the first communicator of the process; 0: not just one. */
static int open_team(struct team *team)
{
    int before[THREADS], after[THREADS], found = 0, n = 0;
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = CALL_MS;
    if (!team_prepare(team, "host", RANKS))
        return 0;
    const int old = list_threads(before);
    if (!team_open(team, &options))
        return 0;
    const int all = list_threads(after);
    for (int i = 0; i < all; i++) {
        bool known = false;
        for (int j = 0; j < old; j++)
            known = known || before[j] == after[i];
        found = known ? found : after[i];
        n += !known;
    }
    CHECK_MSG(n == 1, "%d new threads", n);
    return n == 1 ? found : 0;
}

/* In time there is a while in which nothing wakes it. A thread that has just begun has not slept
 * yet. */
static void check_sleeps(int watchdog)
{
    const double end = check_now_ms() + BOUND_MS;
    long before = 0, after = process_sleeps(watchdog);
    do {
        before = after;
        check_sleep_ms(IDLE_MS);
        after = process_sleeps(watchdog);
    } while ((after == 0 || after != before) && check_now_ms() < end);
    CHECK_MSG(after > 0 && after == before, "%ld wake-ups in all, %ld of them in %d ms", after,
              after - before, (int)IDLE_MS);
}

static void call(struct team *team, int rank)
{
    CHECK_OK(trib_allreduce(team->comms[rank], &data[rank], &data[rank], 1, TRIB_F32, TRIB_SUM,
                            team->streams[rank]));
}

/* Rank 1 does not make the call. */
static void check_deadline(struct team *team)
{
    const double start = check_now_ms();
    trib_status status = TRIB_OK;
    call(team, 0);
    while (status == TRIB_OK && check_now_ms() < start + BOUND_MS) {
        check_sleep_ms(1);
        status = trib_comm_status(team->comms[0]);
    }
    const double took = check_now_ms() - start;
    CHECK_STATUS(status, TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 1 has not made it");
    CHECK_MSG(took >= CALL_MS && took < CALL_MS + LATER_MS, "after %.0f ms", took);
}

int main(void)
{
    struct team team;
    check_begin("the watchdog sleeps");
    const int watchdog = open_team(&team);
    if (watchdog != 0) {
        for (int rank = 0; rank < RANKS; rank++)
            call(&team, rank);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(team_wait(&team, rank, BOUND_MS));
        check_sleeps(watchdog);
        check_deadline(&team);
        check_sleeps(watchdog); /* the communicator has ended */
    }
    team_destroy(&team);
    check_end();
    return check_finish("watchdog_idle_test");
}
