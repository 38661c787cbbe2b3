/* In one process of a job an allocation, or a thread start, fails while its ranks meet. Whatever it
 * was, every rank returns in time, with the id of rank 0 or an error; nothing is leaked (the address
 * sanitizer looks). Raising n until a run passes whole walks all of them. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/children.h"
#include "tests/injection/injection.h"

enum {
    RANKS = 3,
    AT_ONCE = CHILDREN_MAX / RANKS, /* runs: some wait for a deadline most of the time */
    TIMEOUT_MS = 1000,
    BOUND_MS = 20000,
    MOST = 200
};

/* One meeting, in memory that its processes share. */
struct run {
    struct injection_fault fault; /* in process `fault.rank` */
    _Atomic bool hit;
    trib_job job;
    trib_status statuses[RANKS];
    trib_id ids[RANKS];
};

static struct run *run; /* of this process */
static _Atomic bool armed;
static _Atomic long seen;

/* For tests/injection/memory.c, in place of injection.c's: counts for the whole process. */
bool injection_fails(enum injection_mode mode, const struct injection_place *place)
{
    (void)place;
    if (!atomic_load(&armed) || mode != run->fault.mode ||
        atomic_fetch_add(&seen, 1) + 1 != run->fault.n)
        return false;
    atomic_store(&run->hit, true);
    return true;
}

static void meet(int index, int n, void *argument)
{
    const int rank = index % RANKS;
    trib_job job;
    (void)n;
    run = (struct run *)argument + index / RANKS;
    job = run->job;
    job.rank = rank;
    atomic_store(&armed, rank == run->fault.rank);
    run->statuses[rank] = trib_job_meet(&run->ids[rank], &job, "host", TIMEOUT_MS);
    atomic_store(&armed, false);
}

static bool expected(trib_status status)
{
    return status == TRIB_OK || status == TRIB_ERR_OUT_OF_MEMORY || status == TRIB_ERR_SYSTEM ||
           status == TRIB_ERR_TIMEOUT;
}

static void check_run(const struct run *done)
{
    const trib_id none = {{0}};
    for (int rank = 0; rank < RANKS; rank++) {
        const bool ok = done->statuses[rank] == TRIB_OK;
        CHECK_MSG(expected(done->statuses[rank]), "rank %d: %s", rank,
                  trib_status_name(done->statuses[rank]));
        CHECK((memcmp(&done->ids[rank], &none, sizeof none) != 0) == ok);
        CHECK(!ok || done->statuses[0] != TRIB_OK ||
              memcmp(&done->ids[rank], &done->ids[0], sizeof none) == 0);
        CHECK(ok || done->hit);
    }
}

/* Runs n .. n + AT_ONCE - 1; returns how many of them had their fault. */
static int walk(struct run *runs, enum injection_mode mode, int rank, long n)
{
    int hits = 0;
    memset(runs, 0, AT_ONCE * sizeof *runs);
    for (int i = 0; i < AT_ONCE; i++) {
        runs[i].fault = (struct injection_fault){mode, rank, n + i};
        runs[i].job = (trib_job)TRIB_JOB_INIT;
        runs[i].job.n_ranks = RANKS;
        runs[i].job.token = ((uint64_t)getpid() << 20) + (uint64_t)(n + i);
        memcpy(runs[i].job.host, "127.0.0.1", sizeof "127.0.0.1");
    }
    children_run_all(AT_ONCE * RANKS, BOUND_MS, meet, runs);
    for (int i = 0; i < AT_ONCE; i++) {
        check_run(&runs[i]);
        hits += runs[i].hit;
    }
    return hits;
}

int main(void)
{
    struct run *runs = children_share(AT_ONCE * sizeof *runs);
    for (int rank = 0; rank < 2; rank++) {
        for (int thread = 0; thread < 2; thread++) {
            long n = 1;
            check_begin("rank %d: %s fails", rank, thread ? "a thread start" : "an allocation");
            while (n < MOST &&
                   walk(runs, thread ? INJECT_NO_THREAD : INJECT_NO_MEMORY, rank, n) == AT_ONCE)
                n += AT_ONCE;
            CHECK_MSG(n < MOST, "no end after %ld", n);
            check_end();
        }
    }
    children_unshare(runs, AT_ONCE * sizeof *runs);
    return check_finish("no_memory_meet_test");
}
