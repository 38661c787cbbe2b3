/* How long aborts take: from the abort to the return of the last rank, and to the first correct
 * allreduce on the next communicator: two rounds on one made by an id, two on one that the ranks of
 * the aborted one made with trib_comm_shrink, without an exclusion. Warm: ranks have connected
 * before. In every second round a rank is missing; in the others all ranks work. A rank waits for
 * its stream after each call, or after 16: NCCL's kernels whose peers make no call notice an abort
 * one after the other. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/shrink.h"
#include "tests/scenarios/scenario.h"

enum { ABORTS = 200, ABORTS_MAX = 10000, REBUILT_MS = 1000, WINDOW_US = 3000 };

struct latency {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    struct fault_data data[TEAM_MAX];
    _Atomic int begun;
    bool missing; /* the last rank makes no call */
    int queued;   /* calls that a rank queues before it waits */
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
        if ((i + 1) % latency->queued == 0)
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

/* Half of the rounds with a missing rank shrink, and half of the others. */
static bool shrinks(int round)
{
    return round / 2 % 2 == 1;
}

/* The aborted communicator gives way to another one of the same ranks. */
static bool rebuild(struct team *team, bool by_shrink)
{
    if (!by_shrink) {
        team_close(team);
        return team_open(team, NULL);
    }
    struct shrinking shrinking = shrinking_without(team, -1);
    const bool good = shrinking_run(&shrinking);
    team_close(team);
    memcpy(team->comms, shrinking.made.comms, sizeof team->comms);
    return good;
}

/* The milliseconds until all ranks are free, and until the next communicator has done an allreduce. */
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
    if (!rebuild(team, shrinks(latency->round)))
        return false;
    faults_works(team, shrinks(latency->round) ? "after a shrink" : "after an abort");
    *rebuilt_ms = check_now_ms() - latency->raised_at;
    return !check_failed();
}

struct spread {
    int n;
    double p50, p99, most;
};

static struct spread spread_of(double *ms, int n)
{
    if (n == 0)
        return (struct spread){0};
    check_sort(ms, n);
    return (struct spread){n, ms[n / 2], ms[(n * 99 - 1) / 100], ms[n - 1]};
}

/* Until all ranks were free, and until the first correct allreduce, by the way to get there. */
struct times {
    double freed[ABORTS_MAX], opened[ABORTS_MAX], shrunk[ABORTS_MAX];
    int n, nopened, nshrunk;
};

static bool measure(struct latency *latency, struct times *times, int n)
{
    for (; times->n < n; times->n++) {
        const bool shrunk = shrinks(times->n);
        double *rebuilt_ms =
            shrunk ? &times->shrunk[times->nshrunk++] : &times->opened[times->nopened++];
        latency->round = times->n;
        latency->missing = times->n % 2 == 0;
        if (!one_abort(latency, &times->freed[times->n], rebuilt_ms))
            return false;
    }
    return true;
}

static void check_rebuilt(const struct spread *spread, const char *how)
{
    CHECK_MSG(spread->p99 <= REBUILT_MS, "first correct allreduce %s after %.1f ms (p99 of %d)",
              how, spread->p99, spread->n);
}

static void aborts(struct latency *latency, int n)
{
    static struct times times;
    times.n = times.nopened = times.nshrunk = 0;
    if (!CHECK(measure(latency, &times, n)))
        return;
    const struct spread freed = spread_of(times.freed, times.n),
                        opened = spread_of(times.opened, times.nopened),
                        shrunk = spread_of(times.shrunk, times.nshrunk);
    scenario_says("%d aborts: all ranks free after %.2f ms (p50), %.2f (p99), %.2f (max); first "
                  "correct allreduce after %.1f, %.1f, %.1f by an id, %.1f, %.1f, %.1f by shrink",
                  freed.n, freed.p50, freed.p99, freed.most, opened.p50, opened.p99, opened.most,
                  shrunk.p50, shrunk.p99, shrunk.most);
    faults_returned(latency->faults, freed.p99);
    check_rebuilt(&opened, "of a communicator by an id");
    check_rebuilt(&shrunk, "of one by shrink");
}

void scenario_latency(const struct faults *faults)
{
    struct latency latency = {.faults = faults, .queued = (int)strtol(faults->call, NULL, 10)};
    const int wanted = scenario_number("TRIB_TEST_SCENARIO_ABORTS", ABORTS);
    const int most = wanted < ABORTS_MAX ? wanted : ABORTS_MAX;
    const int n = latency.queued == 1 ? most : (most + 3) / 4;
    check_begin("%s, %d ranks: latency of %d aborts, %d calls queued", faults->backend,
                faults->size, n, latency.queued);
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
