/* What becomes of a communicator, in this process, when a rank in another one aborts, does not make
 * a call, makes another call, closes, exits, or is killed; and the one that goes on without it. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/core/communicator.h"
#include "csrc/core/inside.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote_ask.h"
#include "tests/processes/member.h"

enum {
    RANKS = 4,
    CALL_MS = 300,  /* a call's deadline, */
    LATER_MS = 100, /* and how much later the call may end */
    TRIES = 5,      /* of which one is that fast: other programs may have the processors */
    GIVE_UP_MS = 20000
};

/* --------------------------------------------------------------------------------------- aborts */

struct thread {
    int index, processes;
};

/* Rank 0, of process 0, makes no call and aborts; every other one waits in a call. */
static void wait_and_abort(int thread, int threads, void *argument)
{
    const struct thread *self = argument;
    const int rank = self->index * threads + thread, size = self->processes * threads;
    struct member m;
    float one = 1;
    char who[64];
    trib_abort *handle = NULL;
    if (!member_begin(&m, rank, size, NULL))
        return;
    CHECK_OK(trib_comm_abort_handle(&handle, m.comm));
    if (rank != 0)
        member_call(&m, &one);
    processes_meet(0, size);
    if (rank == 0)
        CHECK_OK(trib_abort_raise(handle, "from rank 0"));
    CHECK(member_ends(&m, GIVE_UP_MS));
    CHECK_STATUS(trib_comm_status(m.comm), TRIB_ERR_ABORTED);
    CHECK_DETAIL("the communicator was aborted: from rank 0");
    (void)snprintf(who, sizeof who, " (process %ld on ", (long)processes_pid(0));
    if (self->index != 0)
        CHECK_DETAIL(who);
    processes_meet(1, size);
    trib_abort_release(handle);
    member_end(&m);
}

static void aborting(int index, int n, void *threads)
{
    struct thread self = {index, n};
    check_ranks(*(const int *)threads, wait_and_abort, &self);
}

/* An abort ends the calls of all ranks, in all processes. */
static void abort_is_global(int processes, int threads)
{
    check_begin("%d processes of %d ranks, one of which aborts", processes, threads);
    processes_check(processes, MEMBER_DEADLINE_MS, aborting, &threads);
    check_end();
}

/* -------------------------------------------------------------------------------- missing ranks */

/* What the last process does while the others make a call. */
enum lost { SILENT, DIFFERENT, CLOSES, EXITS, KILLED, STOPPED, LOST };
static const struct {
    const char *name;
    trib_status status;
    int deadline_ms;    /* until the others know; 0: at once */
    const char *detail; /* what it says of that rank; %d is its number */
} cases[LOST] = {
    [SILENT] = {"does not call", TRIB_ERR_TIMEOUT, CALL_MS,
                " has not made it: its newest is call 4, "},
    [DIFFERENT] = {"makes another call", TRIB_ERR_TIMEOUT, CALL_MS,
                   " makes another call: call 5, "},
    [CLOSES] = {"closes", TRIB_ERR_CLOSED, 0,
                " has closed after call 4, trib_allreduce of 1 f32, sum"},
    [EXITS] = {"exits", TRIB_ERR_CLOSED, 0,
               " has closed after call 4, trib_allreduce of 1 f32, sum"},
    [KILLED] = {"is killed", TRIB_ERR_CLOSED, 0, " was killed by signal 9 (SIGKILL)"},
    [STOPPED] = {"is stopped", TRIB_ERR_TIMEOUT, CALL_MS, " does not answer"},
};

struct trial {
    enum lost how;
    double took[RANKS]; /* by rank: until its call ended; written by its process */
};

/* This rank makes a call that ends without its last rank. How long did that take? */
static double await_end(const struct member *m, enum lost how)
{
    char who[64];
    float one = 1;
    const int last = m->size - 1;
    const double start = check_now_ms();
    const trib_status status =
        trib_allreduce(m->comm, &one, &one, 1, TRIB_F32, TRIB_SUM, m->stream);
    CHECK(status == TRIB_OK || status == cases[how].status); /* others may know already */
    CHECK(member_ends(m, GIVE_UP_MS));
    const double took = check_now_ms() - start;
    (void)snprintf(who, sizeof who, "rank %d (process %ld on ", last, (long)processes_pid(last));
    CHECK_STATUS(trib_comm_status(m->comm), cases[how].status);
    if (how != STOPPED && strstr(trib_last_detail(), " does not answer") != NULL)
        return GIVE_UP_MS; /* within 50 ms: other programs have the processors */
    if (how != DIFFERENT)  /* that one may have been the first to tell */
        CHECK_DETAIL(who);
    CHECK_DETAIL(cases[how].detail);
    CHECK_MSG(took >= cases[how].deadline_ms, "%.1f ms", took);
    return took;
}

static void make_another_call(const struct member *m)
{
    double two[2] = {1, 1};
    CHECK_OK(trib_allreduce(m->comm, two, two, 2, TRIB_F64, TRIB_SUM, m->stream));
    CHECK(member_ends(m, GIVE_UP_MS));
    CHECK_STATUS(trib_comm_status(m->comm), TRIB_ERR_TIMEOUT);
}

/* Returns if the process is to end like the others. */
static void be_lost(const struct member *m, enum lost how)
{
    while (how == KILLED || how == STOPPED)
        (void)pause();
    if (how == EXITS)
        exit(0); /* NOLINT(concurrency-mt-unsafe): what the case is about */
    if (how == DIFFERENT)
        make_another_call(m);
    if (how == SILENT)
        processes_meet(1, m->size);
}

/* The ranks that remain make a communicator of their own. */
static void go_on(struct member *m, enum lost how)
{
    int32_t lost[RANKS] = {-1}, n = 0;
    float one = 1;
    trib_comm *next = NULL;
    CHECK_OK(trib_comm_lost(&n, m->comm, lost, RANKS));
    if (how == DIFFERENT) { /* nobody is missing */
        n = 1;
        lost[0] = m->size - 1;
    }
    CHECK_MSG(n == 1 && lost[0] == m->size - 1, "%d lost, rank %d", n, lost[0]);
    if (!CHECK_OK(trib_comm_shrink(&next, m->comm, lost, n, 0)))
        return;
    CHECK_OK(trib_comm_destroy(m->comm));
    m->comm = next;
    m->size--;
    CHECK(trib_comm_rank(next) == m->rank && trib_comm_size(next) == m->size);
    member_call(m, &one);
    member_wait(m);
    CHECK(one == (float)m->size);
}

static void lose(int n, enum lost how)
{
    if (how == KILLED || how == STOPPED)
        CHECK(kill(processes_pid(n - 1), how == KILLED ? SIGKILL : SIGSTOP) == 0);
}

static void last_is_lost(int index, int n, void *argument)
{
    struct trial *trial = argument;
    struct member m;
    float one = 1;
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = CALL_MS;
    if (!member_begin(&m, index, n, &options))
        return;
    member_call(&m, &one);
    member_wait(&m);
    CHECK(one == (float)n);
    processes_meet(0, n);
    if (index == 0)
        lose(n, trial->how);
    if (index == n - 1) {
        be_lost(&m, trial->how);
    } else {
        trial->took[index] = await_end(&m, trial->how);
        go_on(&m, trial->how);
        if (trial->how == SILENT)
            processes_meet(1, n);
        if (trial->how == STOPPED) {
            processes_meet(2, n - 1);
            if (index == 0)
                CHECK(kill(processes_pid(n - 1), SIGKILL) == 0);
        }
    }
    member_end(&m);
}

/* How late the latest of the remaining processes noticed. */
static double try_once(int n, struct trial *trial)
{
    struct child_end ends[RANKS];
    double most = 0;
    processes_run(ends, n, MEMBER_DEADLINE_MS, last_is_lost, trial);
    const bool killed = trial->how == KILLED || trial->how == STOPPED;
    children_check_killed(ends, n, killed ? n - 1 : -1);
    for (int i = 0; i < n - 1; i++)
        most = trial->took[i] > most ? trial->took[i] : most;
    return most - cases[trial->how].deadline_ms;
}

static void one_is_lost(int n, enum lost how)
{
    double best = GIVE_UP_MS;
    struct trial *trial = children_share(sizeof *trial);
    check_begin("%d processes, of which one %s", n, cases[how].name);
    trial->how = how;
    for (int i = 0; i < TRIES && best > LATER_MS && !check_failed(); i++) {
        const double later = try_once(n, trial);
        best = later < best ? later : best;
    }
    CHECK_MSG(best <= LATER_MS, "it was noticed %.1f ms late", best);
    check_end();
    children_unshare(trial, sizeof *trial);
}

/* ------------------------------------------------------------------------- calls that block, sends */

/* What the last process keeps waiting. */
enum blocked { COMPARED, SPARSE_CREATE, RECEIVE, BLOCKED };
static const struct {
    const char *name;
    uint32_t flags;
    const char *detail; /* what it says of that rank, after its name */
} blocked_cases[BLOCKED] = {
    [COMPARED] = {"a compared call", TRIB_MATCH,
                  " has not made it: its newest is call 5, trib_allreduce of 1 f32, sum"},
    [SPARSE_CREATE] = {"trib_sparse_create", 0,
                       " has not made it: its newest is call 4, trib_allreduce of 1 f32, sum"},
    [RECEIVE] = {"a receive", 0, ", whose newest is call 4, trib_allreduce of 1 f32, sum"},
};

static void block(const struct member *m, enum blocked which)
{
    float one = 1;
    trib_sparse *sparse = NULL;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.k = 1;
    if (which == COMPARED) {
        CHECK_STATUS(trib_allreduce(m->comm, &one, &one, 1, TRIB_F32, TRIB_SUM, m->stream),
                     TRIB_ERR_TIMEOUT);
    } else if (which == SPARSE_CREATE) {
        CHECK_STATUS(trib_sparse_create(&sparse, m->comm, 8, TRIB_F32, &options), TRIB_ERR_TIMEOUT);
    } else {
        CHECK_OK(trib_comm_set_call_timeout(m->comm, CALL_MS, 1));
        CHECK_OK(trib_recv(m->comm, &one, 1, TRIB_F32, m->size - 1, m->stream));
        CHECK(member_ends(m, GIVE_UP_MS));
        CHECK_STATUS(trib_comm_status(m->comm), TRIB_ERR_TIMEOUT);
    }
}

/* In *argument `which`, and behind it whether it answered in time; else the case proves nothing. */
static void block_all(int index, int n, void *argument)
{
    int *const shared = argument, which = shared[0];
    int32_t lost = -1, lost_n = -1;
    struct member m;
    float one = 1;
    char detail[160];
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = blocked_cases[which].flags;
    if (!member_begin(&m, index, n, &options))
        return;
    m.comm->timeout_ms = CALL_MS;
    member_call(&m, &one);
    member_wait(&m);
    processes_meet(0, n);
    if (index == 0) {
        block(&m, (enum blocked)which);
        (void)snprintf(detail, sizeof detail, "rank %d (process %ld on ", n - 1,
                       (long)processes_pid(n - 1));
        CHECK_STATUS(trib_comm_status(m.comm), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL(detail);
        shared[1] = strstr(trib_last_detail(), " does not answer") == NULL;
        if (shared[1] != 0)
            CHECK_DETAIL(blocked_cases[which].detail);
        CHECK_OK(trib_comm_lost(&lost_n, m.comm, &lost, 1));
        CHECK_MSG(which == RECEIVE ? lost_n == 0 : lost_n == 1 && lost == n - 1, "%d lost, rank %d",
                  lost_n, lost);
    }
    processes_meet(1, n);
    CHECK(member_fails(&m, GIVE_UP_MS)); /* a destroy that learns of it reports it */
    member_end(&m);
}

/* Two processes, of which the other does nothing; within 50 ms it answers, but for other programs. */
static void other_does_nothing(enum blocked which)
{
    int *shared = children_share(2 * sizeof *shared);
    check_begin("%s, which the other process does not make", blocked_cases[which].name);
    shared[0] = (int)which;
    for (int i = 0; i < TRIES && shared[1] == 0 && !check_failed(); i++)
        processes_check(2, MEMBER_DEADLINE_MS, block_all, shared);
    CHECK(shared[1] != 0);
    check_end();
    children_unshare(shared, 2 * sizeof *shared);
}

/* -------------------------------------------------------------------------------- a deferred end
 */

enum {
    EARLY_MS = 100, /* the deadline, */
    DEFER_MS =
        3200, /* until which it is deferred; the last question is asked after 1.6 s or later, */
    REST_MS = 2400, /* and the next one not before 3.2 s */
    QUESTIONS = 10  /* at most; rank 0 may be late itself */
};

/* How often the others are asked about `collective` until the communicator has ended. */
static int count_questions(const struct member *m, uint64_t collective)
{
    const double end = check_now_ms() + GIVE_UP_MS;
    uint64_t last = 0;
    int n = 0;
    while (trib_comm_status(m->comm) == TRIB_OK && check_now_ms() < end) {
        const uint64_t asked = tri_remote_asked_ns(m->comm->remote, collective);
        n += asked != last;
        last = asked;
        check_sleep_ms(1);
    }
    return n;
}

/* Rank 0 waits. Rank 1 comes after the last question but one; rank 2 does not. In
 * *argument: whether rank 1 was in time, and all have answered. */
static void defer(int index, int n, void *argument)
{
    bool *const good = argument;
    int32_t lost = -1, lost_n = -1;
    struct member m;
    float one = 1;
    trib_abort *handle = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = EARLY_MS;
    if (!member_begin(&m, index, n, &options))
        return;
    member_call(&m, &one);
    member_wait(&m);
    CHECK_OK(trib_comm_abort_handle(&handle, m.comm));
    CHECK_OK(trib_abort_defer(handle, index == 0 ? DEFER_MS : 2 * GIVE_UP_MS));
    processes_meet(0, n);
    if (index == 0) {
        member_call(&m, &one);
        const int questions = count_questions(&m, 5);
        CHECK_STATUS(trib_comm_status(m.comm), TRIB_ERR_TIMEOUT);
        good[1] = strstr(trib_last_detail(), " does not answer") == NULL;
        CHECK_MSG(questions <= QUESTIONS, "%d questions", questions);
        CHECK_OK(trib_comm_lost(&lost_n, m.comm, &lost, 1));
    } else if (index == 1) {
        check_sleep_ms(REST_MS);
        good[0] = trib_allreduce(m.comm, &one, &one, 1, TRIB_F32, TRIB_SUM, m.stream) == TRIB_OK;
    }
    processes_meet(1, n);
    if (index == 0 && good[0] && good[1])
        CHECK_MSG(lost_n == 1 && lost == 2, "%d lost, rank %d", lost_n, lost);
    CHECK(member_ends(&m, GIVE_UP_MS));
    trib_abort_release(handle);
    member_end(&m);
}

static void deferred(void)
{
    bool *good = children_share(2 * sizeof *good);
    check_begin("once a deadline is no longer deferred, all are asked anew");
    for (int i = 0; i < TRIES && !(good[0] && good[1]) && !check_failed(); i++)
        processes_check(3, MEMBER_DEADLINE_MS, defer, good);
    CHECK(good[0] && good[1]);
    check_end();
    children_unshare(good, 2 * sizeof *good);
}

/* ------------------------------------------------------------------------------- while all is quiet
 */

enum { ASLEEP_MS = 1500 }; /* by then the watchdog sleeps */

static void take_line(void *told, int32_t level, const char *line)
{
    (void)level;
    if (strstr(line, " has ended, ") != NULL)
        atomic_store((_Atomic bool *)told, true);
}

/* Nobody calls. Process 1 is killed, or aborts: the other one logs that. */
static void end_quietly(int index, int n, void *killed)
{
    static _Atomic bool told;
    const bool is_killed = *(const bool *)killed;
    struct member m;
    float one = 1;
    trib_abort *handle = NULL;
    CHECK_OK(trib_log_set(take_line, (void *)&told, TRIB_LOG_WARN));
    if (!member_begin(&m, index, n, NULL))
        return;
    member_call(&m, &one);
    member_wait(&m);
    check_sleep_ms(ASLEEP_MS);
    processes_meet(0, n);
    if (index == 1 && is_killed)
        (void)kill(getpid(), SIGKILL);
    CHECK_OK(trib_comm_abort_handle(&handle, m.comm));
    if (index == 1)
        CHECK_OK(trib_abort_raise(handle, "while all is quiet"));
    const double end = check_now_ms() + GIVE_UP_MS;
    while (index == 0 && !atomic_load(&told) && check_now_ms() < end)
        check_sleep_ms(1);
    CHECK(index != 0 || atomic_load(&told));
    if (!is_killed)
        processes_meet(1, n);
    trib_abort_release(handle);
    member_end(&m);
}

static void quiet(void)
{
    for (int killed = 0; killed < 2; killed++) {
        bool is_killed = killed != 0;
        check_begin("while nobody calls, a process %s", is_killed ? "is killed" : "aborts");
        processes_check_killed(is_killed ? 1 : -1, 2, MEMBER_DEADLINE_MS, end_quietly, &is_killed);
        check_end();
    }
}

/* --------------------------------------------------------------------------------------- splits */

enum { SPLIT_MS = 500 };

/* Rank 0 does not split. */
static void split_alone(int index, int n, void *argument)
{
    struct member m;
    trib_comm *child = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    (void)argument;
    options.timeout_ms = SPLIT_MS;
    if (!member_begin(&m, index, n, &options))
        return;
    if (index != 0) {
        CHECK_STATUS(trib_comm_split(&child, m.comm, 0, 0), TRIB_ERR_TIMEOUT);
        CHECK(child == NULL);
        CHECK_STATUS(trib_comm_status(m.comm), TRIB_ERR_TIMEOUT);
    }
    processes_meet(0, n);
    if (index == 0) {
        CHECK(member_fails(&m, GIVE_UP_MS));
        CHECK_STATUS(trib_comm_status(m.comm), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("told by rank ");
    }
    member_end(&m);
}

static void split_or_abort(int thread, int threads, void *argument)
{
    struct member *m = argument;
    trib_comm *child = NULL;
    trib_abort *handle = NULL;
    (void)threads;
    if (thread == 0) {
        CHECK_STATUS(trib_comm_split(&child, m->comm, 0, 0), TRIB_ERR_ABORTED);
        CHECK_DETAIL("soon");
        CHECK(child == NULL);
    } else {
        CHECK_OK(trib_comm_abort_handle(&handle, m->comm));
        check_sleep_ms(50);
        CHECK_OK(trib_abort_raise(handle, "soon"));
        trib_abort_release(handle);
    }
}

/* An abort of its own process ends a split that waits for the other. */
static void split_aborted(int index, int n, void *argument)
{
    struct member m;
    (void)argument;
    if (!member_begin(&m, index, n, NULL))
        return;
    if (index == 0)
        check_ranks(2, split_or_abort, &m);
    processes_meet(0, n);
    member_end(&m);
}

static void splits(void)
{
    check_begin("a split without rank 0");
    processes_check(3, MEMBER_DEADLINE_MS, split_alone, NULL);
    check_end();
    check_begin("an abort during a split");
    processes_check(2, MEMBER_DEADLINE_MS, split_aborted, NULL);
    check_end();
}

/* ------------------------------------------------------------------------------- ranks of hosts */

/* Of two hosts of two ranks each, which also have communicators of their own, rank 3 makes no call: all others,
 * rank 2 on its host as well, hear which rank is lost, and go on without it. */
static void host_loses_one(int index, int n, void *argument)
{
    static const uint8_t host_of[TRI_MAX_LISTS] = {0, 0, 1, 1};
    struct tri_transport *inside = NULL;
    struct member m;
    trib_options options = TRIB_OPTIONS_INIT;
    float one = 1;
    (void)argument;
    options.call_timeout_ms = index == 0 ? CALL_MS : GIVE_UP_MS;
    if (!member_begin(&m, index, n, &options))
        return;
    CHECK_OK(tri_inside_open(&inside, m.comm, TRI_SPARSE_CREATE, host_of));
    CHECK(inside != NULL && inside != m.comm->transport);
    member_call(&m, &one);
    member_wait(&m);
    processes_meet(0, n);
    if (index < n - 1) {
        int32_t lost[RANKS] = {-1}, found = -1;
        trib_comm *next = NULL;
        CHECK_OK(trib_allreduce(m.comm, &one, &one, 1, TRIB_F32, TRIB_SUM, m.stream));
        CHECK(member_ends(&m, GIVE_UP_MS));
        CHECK_OK(trib_comm_lost(&found, m.comm, lost, RANKS));
        CHECK_MSG(found == 1 && lost[0] == n - 1, "rank %d: %d lost, the first one %d", index,
                  (int)found, (int)lost[0]);
        const struct trib_abort *part = m.comm->backend->transport->abort_state(inside);
        for (int waited = 0; waited < GIVE_UP_MS && tri_abort_live(part); waited++)
            check_sleep_ms(1); /* the stream ends first */
        CHECK(!tri_abort_live(part));
        CHECK_OK(trib_comm_shrink(&next, m.comm, lost, found, GIVE_UP_MS));
        CHECK_OK(trib_comm_destroy(next));
    }
    processes_meet(1, n);
    member_end(&m);
}

static void hosts(void)
{
    check_begin("two hosts, one of which loses a rank");
    processes_check(RANKS, MEMBER_DEADLINE_MS, host_loses_one, NULL);
    check_end();
}

int main(void)
{
    abort_is_global(3, 1);
    abort_is_global(2, 2);
    for (enum lost how = SILENT; how < LOST; how++) {
        one_is_lost(2, how);
        one_is_lost(3, how);
    }
    for (enum blocked which = COMPARED; which < BLOCKED; which++)
        other_does_nothing(which);
    deferred();
    quiet();
    splits();
    hosts();
    return check_finish("lost_test");
}
