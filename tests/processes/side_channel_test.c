/* The side channel between processes: switched off, when a communicator is split or shrunk over
 * processes, and in dumps and waits. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/core/communicator.h"
#include "csrc/core/remote.h"
#include "tests/peers/delay.h"
#include "tests/process.h"
#include "tests/processes/member.h"

enum {
    SHORT_MS = 200,
    LONG_MS = 20000,
    MOST = 8,
    TRIES = 5,
    HOLD_DELAY_MS = 5,
    ANSWER_MS = 2, /* for each of two */
    LONG_HELD_MS = TRI_HELD_MS / 2
};

static void raise_abort(const struct member *m, const char *reason)
{
    trib_abort *handle = NULL;
    CHECK_OK(trib_comm_abort_handle(&handle, m->comm));
    CHECK_OK(trib_abort_raise(handle, reason));
    trib_abort_release(handle);
}

/* One float of every rank, correct. */
static void check_works(const struct member *m)
{
    float one = 1;
    member_call(m, &one);
    member_wait(m);
    CHECK_MSG(one == (float)m->size, "%g", (double)one);
}

/* Does the communicator say whether it hears of other processes? */
static void check_hears(const trib_comm *comm, bool hears)
{
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    CHECK_OK(trib_comm_capabilities(&can, comm));
    CHECK(((can.flags & TRIB_CAN_HEAR) != 0) == hears);
}

/* ----------------------------------------------------------------------------------- switched off
 */

/* Bit r of *off: rank r switches it off. Then an abort stays in its process. */
static void without(int index, int n, void *off)
{
    struct member m;
    float one = 1;
    trib_comm *next = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = (*(const int *)off >> index & 1) != 0 ? TRIB_NO_SIDE_CHANNEL : 0;
    if (!member_begin(&m, index, n, &options))
        return;
    CHECK(m.comm->remote == NULL);
    check_hears(m.comm, false);
    check_works(&m);
    if (index != 0)
        member_call(&m, &one);
    else
        raise_abort(&m, "from rank 0");
    processes_meet(0, n);
    if (index != 0) {
        CHECK(!member_ends(&m, SHORT_MS));
        raise_abort(&m, "from its own");
    }
    CHECK(member_ends(&m, LONG_MS));
    CHECK_STATUS(trib_comm_shrink(&next, m.comm, NULL, 0, SHORT_MS), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("there is no side channel to carry a new id there");
    member_end(&m);
}

static void switched_off(int off)
{
    check_begin("three processes, switched off by those of the bits %d", off);
    processes_check(3, MEMBER_DEADLINE_MS, without, &off);
    check_end();
}

/* Rank 1 connects, and says that it could not. */
static bool refuses;

trib_status __real_tri_remote_connect(struct tri_remote *remote, const struct tri_peer_address *all,
                                      uint64_t deadline_ns);
trib_status __wrap_tri_remote_connect(struct tri_remote *remote, const struct tri_peer_address *all,
                                      uint64_t deadline_ns);

trib_status __wrap_tri_remote_connect(struct tri_remote *remote, const struct tri_peer_address *all,
                                      uint64_t deadline_ns)
{
    TRI_TRY(__real_tri_remote_connect(remote, all, deadline_ns));
    return refuses ? tri_fail(TRIB_ERR_SYSTEM, "on demand") : TRIB_OK;
}

static void one_refuses(int index, int n, void *nothing)
{
    struct member m;
    (void)nothing;
    refuses = index == 1;
    if (!member_begin(&m, index, n, NULL))
        return;
    CHECK(m.comm->remote == NULL);
    check_works(&m);
    member_end(&m);
}

static void not_connected(void)
{
    check_begin("three processes, of which one cannot connect");
    processes_check(3, MEMBER_DEADLINE_MS, one_refuses, NULL);
    check_end();
}

/* ------------------------------------------------------------------------------------------ holds
 */

/* What three processes share. */
struct holding {
    enum { ALL_HEAR, ONE_HAS_LEFT, ONE_IS_KILLED, ONE_IS_STOPPED, ONE_DIES } how;
    double stopped_ms[3], free_ms[3]; /* of each rank: it has stopped; a backend may interrupt */
    double begun_ms[3];               /* it looked from then on */
};

struct holder {
    struct member m;
    struct tri_abort_observer observer;
    double *stopped_ms;
    bool kills; /* rank 2, once rank 0 has aborted */
};

/* How many ranks hear of the abort: the first ones. */
static int hearers(const struct holding *holding)
{
    return holding->how == ALL_HEAR ? 3 : 2;
}

static void note_stop(void *context, bool relayed)
{
    struct holder *self = context;
    (void)relayed;
    *self->stopped_ms = check_now_ms();
}

/* Rank 0 aborts in one thread, and the other one looks when this rank lets go. */
static void raise_or_look(int thread, int threads, void *argument)
{
    const struct holder *self = argument;
    const struct trib_abort *state = self->m.comm->state;
    (void)threads;
    if (thread == 0) {
        if (self->m.rank == 0)
            raise_abort(&self->m, "from rank 0");
        if (self->m.rank == 0 && self->kills)
            (void)kill(processes_pid(2), SIGKILL);
        return;
    }
    const double end = check_now_ms() + LONG_MS;
    while ((tri_abort_live(state) || !tri_abort_may_interrupt(state)) && check_now_ms() < end)
        check_sleep_ms(0);
}

static void be_absent(struct holder *self, const struct holding *holding)
{
    if (holding->how == ONE_IS_KILLED)
        (void)kill(getpid(), SIGKILL);
    if (holding->how >= ONE_IS_STOPPED)
        (void)kill(getpid(), SIGSTOP);
    member_end(&self->m);
}

static void hold(int index, int n, void *argument)
{
    struct holding *holding = argument;
    struct holder self = {.stopped_ms = &holding->stopped_ms[index],
                          .kills = holding->how == ONE_DIES};
    if (!member_begin(&self.m, index, n, NULL))
        return;
    check_works(&self.m);
    self.observer = (struct tri_abort_observer){.raised = note_stop, .context = &self};
    processes_meet(0, n);
    if (index >= hearers(holding)) {
        be_absent(&self, holding);
        return;
    }
    tri_abort_observe(self.m.comm->state, &self.observer);
    processes_meet(1, hearers(holding));
    if (holding->how != ONE_IS_KILLED)
        check_sleep_ms(SHORT_MS); /* the absent one is absent by then */
    delay_aborts(index == 0 ? HOLD_DELAY_MS : 0);
    holding->begun_ms[index] = check_now_ms();
    check_ranks(2, raise_or_look, &self);
    holding->free_ms[index] = check_now_ms();
    tri_abort_unobserve(self.m.comm->state, &self.observer);
    processes_meet(2, hearers(holding));
    if (holding->how == ONE_IS_STOPPED && index == 0)
        (void)kill(processes_pid(2), SIGKILL);
    member_end(&self.m);
}

/* No rank lets go before all that hear have stopped, unless that takes too long. Returns how long the last one
 * took. */
static double check_order(const struct holding *holding)
{
    const int size = hearers(holding);
    double last = 0;
    for (int i = 0; i < size; i++) {
        const double begun = holding->begun_ms[i], stopped = holding->stopped_ms[0];
        const double ms = holding->free_ms[i] - (stopped > begun ? stopped : begun);
        for (int of = 0; of < size; of++)
            CHECK_MSG(ms >= LONG_HELD_MS || holding->free_ms[i] >= holding->stopped_ms[of],
                      "rank %d lets go %.2f ms before rank %d has stopped", i,
                      holding->stopped_ms[of] - holding->free_ms[i], of);
        last = ms > last ? ms : last;
    }
    return last;
}

static double hold_once(struct holding *holding)
{
    memset(holding->stopped_ms, 0, sizeof holding->stopped_ms);
    processes_check_killed(holding->how >= ONE_IS_KILLED ? 2 : -1, 3, MEMBER_DEADLINE_MS, hold,
                           holding);
    return check_order(holding);
}

/* Only a process that does not answer is waited for as long as it may take. */
static void holds(void)
{
    static const char *const names[] = {
        "all hear of", "one has left before", "one is killed before",
        "a stopped process does not hear of", "a stopped process dies of"};
    for (int how = ALL_HEAR; how <= ONE_DIES; how++) {
        struct holding *holding = children_share(sizeof *holding);
        holding->how = how;
        check_begin("an abort that %s", names[how]);
        double ms = hold_once(holding);
        for (int i = 1; i < TRIES && how != ONE_IS_STOPPED && ms >= LONG_HELD_MS; i++)
            ms = hold_once(holding); /* other programs may have the processors */
        CHECK_MSG((ms >= LONG_HELD_MS) == (how == ONE_IS_STOPPED), "%.1f ms", ms);
        check_end();
        children_unshare(holding, sizeof *holding);
    }
}

/* Rank 0 aborts and closes. `ms`: until a backend may interrupt. */
static void abort_and_close(int index, int n, void *ms)
{
    struct member m;
    if (!member_begin(&m, index, n, NULL))
        return;
    check_works(&m);
    trib_abort *state = tri_abort_retain(m.comm->state);
    delay_answers(index == 0 ? 0 : ANSWER_MS); /* so that closing is faster */
    processes_meet(0, n);
    const double start = check_now_ms();
    if (index == 0) {
        raise_abort(&m, "by one who closes");
        CHECK_OK(trib_comm_destroy(m.comm));
        m.comm = NULL;
        while (!tri_abort_may_interrupt(state))
            check_sleep_ms(1);
        *(double *)ms = check_now_ms() - start;
    }
    processes_meet(1, n);
    tri_abort_release(state);
    member_end(&m);
}

/* It hears the answers before it closes its channels. */
static void closes(void)
{
    double *ms = children_share(sizeof *ms);
    *ms = LONG_HELD_MS;
    check_begin("who aborts and closes at once lets go as early");
    for (int i = 0; i < TRIES && *ms >= LONG_HELD_MS; i++)
        processes_check(3, MEMBER_DEADLINE_MS, abort_and_close, ms);
    CHECK_MSG(*ms < LONG_HELD_MS, "%.1f ms", *ms);
    check_end();
    children_unshare(ms, sizeof *ms);
}

/* ----------------------------------------------------------------------------------------- splits
 */

/* The child of all ranks, reversed, has channels of its own, which outlive the parent's. */
static void split_and_abort(int index, int n, void *nothing)
{
    struct member m, child;
    float one = 1;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL))
        return;
    child = m;
    child.rank = n - 1 - index;
    CHECK_OK(trib_comm_split(&child.comm, m.comm, 0, -index));
    CHECK(child.comm->remote != NULL && trib_comm_rank(child.comm) == child.rank);
    check_hears(child.comm, true);
    if (index != 0)
        member_call(&m, &one);
    processes_meet(0, n);
    if (index == 0)
        raise_abort(&m, "the parent");
    CHECK(member_ends(&m, LONG_MS));
    processes_meet(1, n);
    CHECK_OK(trib_comm_status(child.comm));
    CHECK_OK(trib_comm_destroy(m.comm));
    check_works(&child);
    if (index != 0)
        member_call(&child, &one);
    processes_meet(2, n);
    if (index == 0)
        raise_abort(&child, "the child");
    CHECK(member_ends(&child, LONG_MS));
    CHECK_STATUS(trib_comm_status(child.comm), TRIB_ERR_ABORTED);
    CHECK_DETAIL("the child");
    member_end(&child);
}

/* Rank 0 aborts the parent instead of splitting it: nobody waits. */
static void abort_for_split(int index, int n, void *nothing)
{
    struct member m;
    trib_comm *child = NULL;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL))
        return;
    const double start = check_now_ms();
    if (index == 0) {
        check_sleep_ms(50);
        raise_abort(&m, "no split");
    } else {
        CHECK_STATUS(trib_comm_split(&child, m.comm, 0, 0), TRIB_ERR_ABORTED);
        CHECK_DETAIL("no split");
    }
    CHECK(child == NULL && check_now_ms() - start < LONG_MS);
    member_end(&m);
}

static void splits(void)
{
    check_begin("a child of all ranks");
    processes_check(3, MEMBER_DEADLINE_MS, split_and_abort, NULL);
    check_end();
    check_begin("an abort where others split");
    processes_check(3, MEMBER_DEADLINE_MS, abort_for_split, NULL);
    check_end();
}

/* ---------------------------------------------------------------------------------------- shrinks
 */

struct shrinking {
    int processes, threads;
    int index; /* of this process */
};

/* Process 1 is killed with all of its ranks; the others know within the call that waits for it. */
static void lose_process(int thread, int threads, void *argument)
{
    const struct shrinking *self = argument;
    const int size = self->processes * threads;
    int32_t lost[MOST], n = 0;
    struct member m;
    float one = 1;
    trib_comm *next = NULL;
    if (!member_begin(&m, self->index * threads + thread, size, NULL))
        return;
    check_works(&m);
    processes_meet(0, size);
    while (self->index == 1)
        (void)pause();
    member_call(&m, &one);
    processes_meet(1, size - threads);
    if (m.rank == 0)
        CHECK(kill(processes_pid(1), SIGKILL) == 0);
    CHECK(member_ends(&m, LONG_MS));
    CHECK_STATUS(trib_comm_status(m.comm), TRIB_ERR_CLOSED);
    const double end = check_now_ms() + LONG_MS;
    while (n < threads && check_now_ms() < end) /* the death of each rank is told by itself */
        CHECK_OK(trib_comm_lost(&n, m.comm, lost, MOST));
    CHECK_MSG(n == threads && lost[0] == threads && lost[n - 1] == 2 * threads - 1, "%d lost", n);
    if (CHECK_OK(trib_comm_shrink(&next, m.comm, lost, n, LONG_MS))) {
        /* What both sides of a connection know is the id of the first communicator. */
        CHECK(memcmp(&next->id, &m.comm->id, sizeof next->id) == 0);
        CHECK(next->identity != m.comm->identity);
        CHECK_OK(trib_comm_destroy(m.comm));
        m.comm = next;
        m.size = size - threads;
        CHECK((next->remote != NULL) == (self->processes > 2));
        check_works(&m);
        processes_meet(2, m.size);
        /* and again, with nobody excluded */
        CHECK_OK(trib_comm_shrink(&next, m.comm, NULL, 0, LONG_MS));
        CHECK_OK(trib_comm_destroy(m.comm));
        m.comm = next;
        check_works(&m);
    }
    member_end(&m);
}

static void shrink_process(int index, int n, void *threads)
{
    struct shrinking self = {n, *(const int *)threads, index};
    check_ranks(self.threads, lose_process, &self);
}

static void shrink_after_kill(int processes, int threads)
{
    check_begin("%d processes of %d ranks, of which one is killed", processes, threads);
    processes_check_killed(1, processes, MEMBER_DEADLINE_MS, shrink_process, &threads);
    check_end();
}

/* Of three processes: all disagree; one does not come; all agree. */
static void shrink_attempts(int index, int n, void *nothing)
{
    struct member m;
    trib_comm *next = NULL;
    const int32_t other[3] = {1, 2, 1};
    (void)nothing;
    if (!member_begin(&m, index, n, NULL))
        return;
    processes_meet(4, n);
    /* Ranks 0 and 2 go on without 1; 0 leads, and hears of 2 only. */
    if (index != 1) {
        CHECK_OK(trib_comm_shrink(&next, m.comm, &other[index], 1, LONG_MS));
        CHECK_OK(trib_comm_destroy(next));
    }
    processes_meet(0, n);
    /* Rank 0 excludes nobody, rank 2 excludes 1: both hear of it. */
    if (index != 1) {
        CHECK_STATUS(trib_comm_shrink(&next, m.comm, &other[0], index == 0 ? 0 : 1, LONG_MS),
                     TRIB_ERR_MISMATCH);
        CHECK_DETAIL("the ranks do not exclude the same: rank 0 goes on with 3 ranks, rank 2 ");
        CHECK(next == NULL);
    }
    processes_meet(1, n);
    /* Rank 1 does not come. */
    if (index != 1) {
        CHECK_STATUS(trib_comm_shrink(&next, m.comm, NULL, 0, index == 0 ? SHORT_MS : LONG_MS),
                     TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("these ranks of other processes have not called it: 1; call it again");
    }
    processes_meet(2, n);
    /* Only the leader does not come. */
    if (index != 0) {
        CHECK_STATUS(trib_comm_shrink(&next, m.comm, NULL, 0, SHORT_MS), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("rank 0 has sent no new id within the deadline");
    }
    processes_meet(3, n);
    if (CHECK_OK(trib_comm_shrink(&next, m.comm, NULL, 0, LONG_MS))) {
        CHECK_OK(trib_comm_destroy(m.comm));
        m.comm = next;
        check_works(&m);
    }
    member_end(&m);
}

/* Two processes of two ranks. Those of the first close; of the others, one is late: it is not lost. */
static void close_for_late(int thread, int threads, void *argument)
{
    const struct shrinking *self = argument;
    const int size = self->processes * threads;
    int32_t lost[MOST] = {-1, -1}, n = 0;
    struct member m;
    float one = 1;
    if (!member_begin(&m, self->index * threads + thread, size, NULL))
        return;
    check_works(&m);
    processes_meet(0, size);
    if (self->index == 1) {
        if (thread == 1)
            check_sleep_ms(SHORT_MS);
        (void)trib_allreduce(m.comm, &one, &one, 1, TRIB_F32, TRIB_SUM, m.stream);
        CHECK(member_ends(&m, LONG_MS));
        CHECK_STATUS(trib_comm_status(m.comm), TRIB_ERR_CLOSED);
        CHECK_OK(trib_comm_lost(&n, m.comm, lost, MOST));
        CHECK_MSG(n >= 1 && n <= 2 && lost[0] < 2 && lost[1] < 2, "%d lost: %d, %d", n, lost[0],
                  lost[1]); /* the second one may close later */
    }
    member_end(&m);
}

/* The same processes disagree, and agree at once: what is left of the first attempt in the mail of
 * the leader's other rank does not count. */
static void agree_at_last(int thread, int threads, void *argument)
{
    const struct shrinking *self = argument;
    const int size = self->processes * threads;
    const int32_t nobody = 1;
    struct member m;
    trib_comm *next = NULL;
    if (!member_begin(&m, self->index * threads + thread, size, NULL))
        return;
    processes_meet(0, size);
    CHECK_STATUS(
        trib_comm_shrink(&next, m.comm, &nobody, m.rank == nobody ? 0 : self->index, LONG_MS),
        TRIB_ERR_MISMATCH);
    if (CHECK_OK(trib_comm_shrink(&next, m.comm, NULL, 0, LONG_MS))) {
        CHECK_OK(trib_comm_destroy(m.comm));
        m.comm = next;
        check_works(&m);
    }
    member_end(&m);
}

static void in_threads(int index, int n, void *body)
{
    struct shrinking self = {n, 2, index};
    check_ranks(2, *(void (**)(int, int, void *))body, &self);
}

/* A rank that should go on closes, and another is killed, while the rest wait for them. */
static void shrink_without(int index, int n, void *killed)
{
    struct member m;
    trib_comm *next = NULL;
    const bool is_killed = *(const bool *)killed;
    if (!member_begin(&m, index, n, NULL))
        return;
    processes_meet(1, n);
    if (index == 2) {
        check_sleep_ms(SHORT_MS);
        if (is_killed)
            (void)kill(getpid(), SIGKILL);
    } else {
        CHECK_STATUS(trib_comm_shrink(&next, m.comm, NULL, 0, LONG_MS), TRIB_ERR_CLOSED);
        CHECK_DETAIL(is_killed ? " was killed by signal 9 (SIGKILL); call it again, and exclude"
                               : " has closed the communicator; call it again, and exclude");
        processes_meet(0, 2);
    }
    member_end(&m);
}

static void shrinks(void)
{
    shrink_after_kill(2, 1);
    shrink_after_kill(2, 2);
    shrink_after_kill(3, 2);
    check_begin("shrinks that fail, and one that does not");
    processes_check(3, MEMBER_DEADLINE_MS, shrink_attempts, NULL);
    check_end();
    void (*body)(int, int, void *) = close_for_late;
    check_begin("two ranks close, and another is late");
    processes_check(2, MEMBER_DEADLINE_MS, in_threads, &body);
    check_end();
    body = agree_at_last;
    check_begin("processes that disagree, then agree");
    for (int i = 0; i < TRIES; i++)
        processes_check(2, MEMBER_DEADLINE_MS, in_threads, &body);
    check_end();
    for (int killed = 0; killed < 2; killed++) {
        bool is_killed = killed != 0;
        check_begin("a rank that should go on %s", is_killed ? "is killed" : "closes");
        processes_check_killed(is_killed ? 2 : -1, 3, MEMBER_DEADLINE_MS, shrink_without,
                               &is_killed);
        check_end();
    }
}

/* ------------------------------------------------------------------------------ dumps and waits */

static void read_dump(char *out, size_t size, const char *path)
{
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    if (!CHECK(file != NULL))
        return;
    out[fread(out, 1, size - 1, file)] = '\0';
    (void)fclose(file);
    (void)remove(path);
}

/* Rank 1 is behind; rank 0 waits, and its sentence and its dump say so. */
static void look(int index, int n, void *nothing)
{
    static char dump[1 << 16];
    char path[64], expected[160];
    struct member m;
    float one = 1;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL))
        return;
    check_works(&m);
    processes_meet(0, n);
    if (index == 0) {
        member_call(&m, &one);
        for (int i = 0; i < TRIES; i++) { /* a loaded machine may take more than 50 ms to answer */
            CHECK_STATUS(trib_comm_wait(m.comm, m.stream, SHORT_MS), TRIB_ERR_TIMEOUT);
            if (strstr(trib_last_detail(), " does not answer") == NULL)
                break;
        }
        CHECK_DETAIL(" has not made it: its newest is call 4, trib_allreduce of 1 f32, sum");
        (void)snprintf(path, sizeof path, "side-channel-%ld.json", (long)getpid());
        CHECK_OK(trib_dump(path));
        read_dump(dump, sizeof dump, path);
        (void)snprintf(expected, sizeof expected,
                       "\"process\": %ld, \"way\": \"unix\", "
                       "\"state\": \"present\", \"detail\": null, \"entered\": 4, \"issued\": 4, "
                       "\"collective\": 4, \"age_ms\": ",
                       (long)processes_pid(1));
        CHECK_MSG(strstr(dump, expected) != NULL, "%s", dump);
    }
    processes_meet(1, n);
    if (index == 1)
        member_call(&m, &one);
    member_wait(&m);
    member_end(&m);
}

/* Nothing is left behind. */
static void cycles(int index, int n, void *nothing)
{
    struct member m;
    (void)nothing;
    if (!member_prepare(&m, index, n, 0))
        return;
    long before = 0;
    for (int i = 0; i < 12; i++) {
        if (!member_join(&m, i, NULL))
            return;
        check_works(&m);
        CHECK_OK(trib_comm_destroy(m.comm));
        if (i == 1)
            before = process_descriptors();
    }
    CHECK_MSG(process_descriptors() == before, "%ld descriptors, %ld before", process_descriptors(),
              before);
    CHECK_OK(trib_stream_destroy(m.device, m.stream));
}

int main(void)
{
    switched_off(7);
    switched_off(2);
    not_connected();
    holds();
    closes();
    splits();
    shrinks();
    check_begin("a wait and a dump");
    processes_check(2, MEMBER_DEADLINE_MS, look, NULL);
    check_end();
    check_begin("twelve communicators, one after the other");
    processes_check(2, MEMBER_DEADLINE_MS, cycles, NULL);
    check_end();
    return check_finish("side_channel_test");
}
