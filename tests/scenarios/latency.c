/* How long aborts take: from the abort to the return of the last rank, and to the first correct
 * allreduce on a new communicator. Warm: ranks have connected before. In every second round a rank
 * is missing; in the others all ranks work. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/scenarios/scenario.h"

enum { ABORTS = 200, ABORTS_MAX = 10000, REBUILT_MS = 1000, WINDOW_US = 3000 };

struct latency {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    struct fault_data data[TEAM_MAX];
    _Atomic int begun;
    bool missing; /* the last rank makes no call */
    int round;
    double raised_at, free_at[TEAM_MAX];
};

static void working_rank(struct latency *latency, int rank)
{
    struct team *team = &latency->team;
    void *data = fault_data_at(&latency->data[rank]);
    trib_status status = TRIB_OK;
    const bool away = latency->missing && rank == team->size - 1;
    atomic_fetch_add(&latency->begun, 1);
    for (int i = 0; !away && status == TRIB_OK; i++) {
        status = trib_allreduce(team->comms[rank], data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_MAX,
                                team->streams[rank]);
        if (i % 16 == 15 || latency->missing)
            CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    }
    CHECK(away || status == TRIB_ERR_ABORTED);
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    latency->free_at[rank] = check_now_ms();
}

static void member(int index, int size, void *argument)
{
    struct latency *latency = argument;
    if (index < size - 1) {
        working_rank(latency, index);
        return;
    }
    while (atomic_load(&latency->begun) < size - 1)
        check_sleep_ms(0);
    check_sleep_ms(2);
    for (volatile int spin = 0; spin < latency->round * 7919 % 100000; spin++)
        continue;
    latency->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(latency->handle, "to see how long it takes"));
}

/* The milliseconds until all ranks are free, and until a new communicator has done an allreduce. */
static bool one_abort(struct latency *latency, double *free_ms, double *rebuilt_ms)
{
    struct team *team = &latency->team;
    const bool missing = latency->missing;
    if (!CHECK_OK(trib_comm_abort_handle(&latency->handle, team->comms[0])))
        return false;
    atomic_store(&latency->begun, 0);
    check_ranks(team->size + 1, member, latency);
    double last = latency->free_at[0];
    for (int rank = 1; rank < team->size - missing; rank++)
        last = latency->free_at[rank] > last ? latency->free_at[rank] : last;
    *free_ms = last - latency->raised_at;
    trib_abort_release(latency->handle);
    team_close(team);
    if (!team_open(team, NULL))
        return false;
    faults_works(team, "after an abort");
    *rebuilt_ms = check_now_ms() - latency->raised_at;
    return !check_failed();
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread {
    double p50, p99, most;
};

static struct spread spread_of(double *ms, int n)
{
    qsort(ms, (size_t)n, sizeof ms[0], by_value);
    return (struct spread){ms[n / 2], ms[n * 99 / 100], ms[n - 1]};
}

static void aborts(struct latency *latency, int n)
{
    static double free_ms[ABORTS_MAX], rebuilt_ms[ABORTS_MAX];
    int done = 0;
    for (; done < n; done++) {
        latency->round = done;
        latency->missing = done % 2 == 0;
        if (!one_abort(latency, &free_ms[done], &rebuilt_ms[done]))
            break;
    }
    if (!CHECK(done == n))
        return;
    const struct spread ended = spread_of(free_ms, n), rebuilt = spread_of(rebuilt_ms, n);
    scenario_says("%d aborts: all ranks free after %.2f ms (p50), %.2f (p99), %.2f (max); first "
                  "correct allreduce of the next communicator after %.1f, %.1f, %.1f",
                  n, ended.p50, ended.p99, ended.most, rebuilt.p50, rebuilt.p99, rebuilt.most);
    faults_returned(latency->faults, ended.p99);
    CHECK_MSG(rebuilt.p99 <= REBUILT_MS, "first correct allreduce after %.1f ms (p99)",
              rebuilt.p99);
}

void scenario_latency(const struct faults *faults)
{
    struct latency latency = {.faults = faults};
    const int wanted = scenario_number("TRIB_TEST_SCENARIO_ABORTS", ABORTS);
    const int n = wanted < ABORTS_MAX ? wanted : ABORTS_MAX;
    check_begin("%s, %d ranks: latency of %d aborts", faults->backend, faults->size, n);
    if (CHECK(n > 0) && faults_team(&latency.team, faults, NULL)) {
        for (int rank = 0; rank < faults->size; rank++)
            CHECK(fault_data_create(&latency.data[rank], &latency.team, rank));
        aborts(&latency, n);
        for (int rank = 0; rank < faults->size; rank++)
            fault_data_destroy(&latency.data[rank]);
    }
    team_destroy(&latency.team);
    check_end();
}
