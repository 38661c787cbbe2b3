/* The state of an abort: which one follows which, what it waits for, and that live CUDA graphs keep
 * no thread inside NCCL. */
#include "tests/nccl_fake/states.h"

#include <nccl.h>
#include <stdatomic.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/stopped.h"
#include "csrc/nccl/quiesce.h"
#include "csrc/nccl/thread.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fixture.h"
#include "tests/process.h"

enum { PLENTY_MS = 20000, SOON_MS = 500, PARKED_MS = 1000, TEXT = 128, TRIES = 5 };

/* ------------------------------------------------------------------------------------- fixture */

/* Two ranks on devices 0 and 1 that have connected, and their handle, which outlives them. */
struct pair {
    struct tri_transport *ranks[2];
    trib_stream streams[2];
    struct trib_abort *handle;
    const uint32_t *flag;
    struct fake_graph *graphs[2];
};

/* An allreduce, as core makes it. */
static trib_status add(const struct pair *pair, int rank)
{
    size_t found = 0;
    CHECK(devices()->check_stream(rank, pair->streams[rank], &found) == TRI_FAULT_NONE);
    return allreduce(pair->ranks[rank], pair->streams[rank]);
}

static void connect(int rank, int size, void *argument)
{
    (void)size;
    CHECK_OK(add(argument, rank));
}

static bool open_pair(struct pair *pair)
{
    const int32_t order[2] = {0, 1};
    *pair = (struct pair){.handle = NULL};
    if (!CHECK_OK(transports()->open_group(pair->ranks, order, 2, NULL, PLENTY_MS)))
        return false;
    pair->handle = tri_abort_retain(transports()->abort_state(pair->ranks[0]));
    pair->flag = transports()->abort_flag(pair->ranks[0]);
    for (int i = 0; i < 2; i++)
        CHECK_OK(devices()->stream_create(i, &pair->streams[i]));
    check_ranks(2, connect, pair);
    return true;
}

static void abort_pair(const struct pair *pair)
{
    (void)tri_abort_raise(pair->handle, TRIB_ERR_ABORTED, "for its state");
}

/* Close and destroy the ranks; the handle stays. */
static void finish_pair(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        CHECK_OK(transports()->close(pair->ranks[i], PLENTY_MS));
        transports()->destroy(pair->ranks[i]);
        CHECK_OK(devices()->stream_wait(i, pair->streams[i]));
        CHECK_OK(devices()->stream_destroy(i, pair->streams[i]));
    }
}

/* Each rank's stream is captured by a graph of its own, with two calls. */
static void capture_pair(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        pair->graphs[i] = fake_capture_begin(pair->streams[i]);
        CHECK_OK(add(pair, i));
        CHECK_OK(add(pair, i));
        fake_capture_end(pair->streams[i]);
    }
}

static trib_comm_state state_of(const struct pair *pair, char text[TEXT])
{
    return tri_abort_state(pair->handle, text, TEXT);
}

/* The state, and the beginning of what it waits for. */
static bool is(const struct pair *pair, trib_comm_state wanted, const char *begin)
{
    char text[TEXT];
    const trib_comm_state found = state_of(pair, text);
    const bool same = begin[0] == '\0' ? text[0] == '\0' : strncmp(text, begin, strlen(begin)) == 0;
    return CHECK_MSG(found == wanted && same, "the state is %d (\"%s\"), expected %d (\"%s\")",
                     (int)found, text, (int)wanted, begin);
}

/* It becomes `wanted` within `ms`, and never goes back on the way: only ABORTED and PARKED
 * alternate. */
static bool becomes(const struct pair *pair, trib_comm_state wanted, int ms)
{
    char text[TEXT];
    trib_comm_state last = TRIB_COMM_LIVE, found = TRIB_COMM_LIVE;
    const double end = check_now_ms() + ms;
    for (;;) {
        found = state_of(pair, text);
        CHECK_MSG(found >= last || (found == TRIB_COMM_ABORTED && last == TRIB_COMM_PARKED),
                  "the state goes from %d to %d", (int)last, (int)found);
        last = found;
        if (found == wanted || check_now_ms() > end)
            break;
        check_sleep_ms(1);
    }
    return CHECK_MSG(found == wanted, "after %d ms the state is %d (\"%s\"), expected %d", ms,
                     (int)found, text, (int)wanted);
}

static void release_pair(const struct pair *pair)
{
    tri_abort_release(pair->handle);
}

static uint32_t left(uint32_t ms, uint32_t *graphs)
{
    *graphs = 0;
    return tri_nccl_quiesce(tri_deadline_ns(ms), graphs);
}

static void end(void)
{
    uint32_t graphs = 0;
    CHECK(left(PLENTY_MS, &graphs) == 0 && graphs == 0);
    CHECK(fake_communicators() == 0 && fake_user_objects() == 0);
    CHECK_MSG(fake_freed_early() == 0, "%d times, proxy threads still ran", fake_freed_early());
    check_end();
}

/* -------------------------------------------------------------------------------------- phases */

/* A close is not seen before everything is released; an abort meanwhile is. */
static void orderly(bool aborted)
{
    struct pair pair;
    check_begin("nccl over a fake: the state of a communicator that closes%s",
                aborted ? ", and is aborted then" : "");
    if (open_pair(&pair)) {
        is(&pair, TRIB_COMM_LIVE, "");
        fake_hold(FAKE_RECLAIM, true);
        finish_pair(&pair);
        is(&pair, TRIB_COMM_LIVE, "");
        fake_async_error(0, ncclInternalError);
        CHECK_OK(tri_abort_ask(pair.handle)); /* NCCL, which destroys it, is not asked */
        fake_async_error(0, ncclSuccess);
        if (aborted) {
            tri_abort_hold(pair.handle);
            abort_pair(&pair);
            CHECK(load_flag(pair.flag) == TRI_STOPPED); /* no job waits for other processes */
            tri_abort_let_go(pair.handle);
            is(&pair, TRIB_COMM_ABORTED, "");
        }
        fake_hold(FAKE_RECLAIM, false);
        becomes(&pair, TRIB_COMM_RECLAIMED, PLENTY_MS);
        abort_pair(&pair);
        is(&pair, TRIB_COMM_RECLAIMED, "");
        release_pair(&pair);
    }
    end();
}

/* A stream that has refused a call goes on, though NCCL has not ended the communicator yet. */
static void check_released(const struct pair *pair)
{
    const double start = check_now_ms();
    while (load_flag(pair->flag) != TRI_STOPPED && check_now_ms() < start + SOON_MS)
        check_sleep_ms(1);
    CHECK(load_flag(pair->flag) == TRI_STOPPED);
}

/* NCCL is told to abort once the ranks in other processes have stopped, too, and so are the streams. */
static void held(void)
{
    struct pair pair;
    bool seen = false;
    check_begin("nccl over a fake: an abort of which other processes have not heard");
    for (int i = 0; i < TRIES && !seen && open_pair(&pair); i++) {
        fake_hold(FAKE_RECLAIM, true);
        tri_abort_hold(pair.handle);
        abort_pair(&pair);
        const uint32_t flag = load_flag(pair.flag);
        CHECK(flag == TRI_STOPPED_HERE || tri_abort_may_interrupt(pair.handle));
        check_sleep_ms(20); /* the job has run several rounds by then */
        char text[TEXT];
        const trib_comm_state found = state_of(&pair, text);
        seen = !tri_abort_may_interrupt(pair.handle); /* else other programs have the processors */
        if (seen)
            CHECK_MSG(found == TRIB_COMM_ABORTING &&
                          strstr(text, "ranks of other processes") == text,
                      "the state is %d (\"%s\")", (int)found, text);
        tri_abort_let_go(pair.handle);
        check_released(&pair);
        fake_hold(FAKE_RECLAIM, false);
        becomes(&pair, TRIB_COMM_RECLAIMED, PLENTY_MS);
        finish_pair(&pair);
        release_pair(&pair);
    }
    CHECK(seen);
    end();
}

/* Each phase, held as long as the test likes. The last one before the end: the background thread is
 * inside NCCL, which waits for earlier work. */
static void phases(void)
{
    struct pair pair;
    check_begin("nccl over a fake: every state after an abort");
    if (open_pair(&pair)) {
        fake_hold(FAKE_RECLAIM, true);
        CHECK(tri_abort_register(pair.handle) && tri_abort_register(pair.handle));
        abort_pair(&pair);
        is(&pair, TRIB_COMM_ABORTING, "2 calls that are in flight");
        tri_abort_unregister(pair.handle);
        check_sleep_ms(20); /* the job has run several rounds by then */
        is(&pair, TRIB_COMM_ABORTING, "1 call that is in flight");
        CHECK(fake_waiting(FAKE_RECLAIM) == 0);
        tri_abort_unregister(pair.handle);
        becomes(&pair, TRIB_COMM_ABORTED, SOON_MS);
        finish_pair(&pair);
        is(&pair, TRIB_COMM_ABORTED, "");
        becomes(&pair, TRIB_COMM_PARKED, PLENTY_MS);
        is(&pair, TRIB_COMM_PARKED, "earlier work on a device of its ranks, for ");
        CHECK(fake_waiting(FAKE_RECLAIM) == 1);
        fake_hold(FAKE_RECLAIM, false);
        becomes(&pair, TRIB_COMM_RECLAIMED, PLENTY_MS);
        is(&pair, TRIB_COMM_RECLAIMED, "");
        release_pair(&pair);
    }
    end();
}

/* Threads call, one closes, eight abort, one looks. */
struct crowd {
    struct pair pair;
    _Atomic int arrived, over;
};

enum { CALLERS = 2, ABORTERS = 8, LOOKER = CALLERS + ABORTERS };

static void crowd_member(int index, int size, void *argument)
{
    struct crowd *crowd = argument;
    atomic_fetch_add(&crowd->arrived, 1);
    while (atomic_load(&crowd->arrived) < size)
        continue;
    if (index == LOOKER) {
        becomes(&crowd->pair, TRIB_COMM_RECLAIMED, PLENTY_MS);
        return;
    }
    if (index >= CALLERS) {
        abort_pair(&crowd->pair);
        char text[TEXT];
        CHECK(state_of(&crowd->pair, text) >= TRIB_COMM_ABORTING);
        return;
    }
    for (int i = 0; i < 20 && tri_abort_live(crowd->pair.handle); i++) {
        const trib_status status = add(&crowd->pair, index);
        CHECK(status == TRIB_OK || status == TRIB_ERR_ABORTED);
    }
}

static void crowds(void)
{
    check_begin("nccl over a fake: eight threads abort, one reads the state");
    for (int round = 0; round < 50; round++) {
        struct crowd crowd = {.arrived = 0};
        if (!open_pair(&crowd.pair))
            break;
        check_ranks(LOOKER + 1, crowd_member, &crowd);
        finish_pair(&crowd.pair);
        release_pair(&crowd.pair);
    }
    end();
}

/* -------------------------------------------------------------------------------------- graphs */

/* Parked, with no thread inside NCCL. Others are freed meanwhile, and opened without delay. */
static void parked_by_graphs(void)
{
    struct pair pair, other;
    uint32_t graphs = 0;
    check_begin("nccl over a fake: an abort while CUDA graphs live");
    if (open_pair(&pair)) {
        capture_pair(&pair);
        CHECK(fake_user_objects() == 2 + 4); /* ours, and NCCL's of each call */
        is(&pair, TRIB_COMM_LIVE, "");
        abort_pair(&pair);
        finish_pair(&pair);
        becomes(&pair, TRIB_COMM_PARKED, SOON_MS);
        is(&pair, TRIB_COMM_PARKED, "2 live CUDA graphs that captured its calls, for 0.");
        const double start = check_now_ms();
        if (open_pair(&other)) {
            CHECK(check_now_ms() - start < PARKED_MS);
            abort_pair(&other);
            finish_pair(&other);
            becomes(&other, TRIB_COMM_RECLAIMED, PLENTY_MS);
            release_pair(&other);
        }
        CHECK(left(50, &graphs) == 1 && graphs == 2);
        CHECK(fake_waiting_for_graphs() == 0 && fake_communicators() == 2);
        fake_graph_destroy(pair.graphs[1]);
        is(&pair, TRIB_COMM_PARKED, "1 live CUDA graph that captured its calls, for ");
        CHECK(left(50, &graphs) == 1 && graphs == 1);
        fake_graph_destroy(pair.graphs[0]);
        becomes(&pair, TRIB_COMM_RECLAIMED, SOON_MS); /* it is told, and does not look in vain */
        release_pair(&pair);
    }
    end();
}

/* Freeing begins once the graphs are gone: only then it may take long. */
static void freed_after_graphs(void)
{
    struct pair pair;
    check_begin("nccl over a fake: the state when a graph has lived for long");
    if (open_pair(&pair)) {
        capture_pair(&pair);
        abort_pair(&pair);
        check_sleep_ms(PARKED_MS + SOON_MS / 5);
        is(&pair, TRIB_COMM_PARKED, "2 live CUDA graphs that captured its calls, for 1.");
        fake_hold(FAKE_RECLAIM, true);
        fake_graph_destroy(pair.graphs[0]);
        fake_graph_destroy(pair.graphs[1]);
        becomes(&pair, TRIB_COMM_ABORTED, SOON_MS);
        fake_hold(FAKE_RECLAIM, false);
        becomes(&pair, TRIB_COMM_RECLAIMED, PLENTY_MS);
        finish_pair(&pair);
        release_pair(&pair);
    }
    end();
}

/* Threads whose jobs are parked do not count as workers, however many have been. */
static void parked_in_turn(void)
{
    enum { TIMES = 20 };
    struct pair pair;
    check_begin("nccl over a fake: parked communicators, one after the other");
    for (int i = 0; i < TIMES && open_pair(&pair); i++) {
        capture_pair(&pair);
        abort_pair(&pair);
        becomes(&pair, TRIB_COMM_PARKED, PLENTY_MS);
        fake_graph_destroy(pair.graphs[0]);
        fake_graph_destroy(pair.graphs[1]);
        becomes(&pair, TRIB_COMM_RECLAIMED, PLENTY_MS);
        finish_pair(&pair);
        release_pair(&pair);
    }
    end();
}

/* Several are parked at once, and those that wait for nothing are freed at once. */
static void many_parked(void)
{
    enum { MANY = 6 };
    struct pair pairs[MANY], other;
    uint32_t graphs = 0;
    check_begin("nccl over a fake: many parked communicators");
    for (int i = 0; i < MANY; i++)
        if (!open_pair(&pairs[i]))
            return;
    if (!open_pair(&other))
        return;
    for (int i = 0; i < MANY; i++) {
        capture_pair(&pairs[i]);
        abort_pair(&pairs[i]);
    }
    abort_pair(&other);
    becomes(&other, TRIB_COMM_RECLAIMED, PARKED_MS);
    for (int i = 0; i < MANY; i++)
        becomes(&pairs[i], TRIB_COMM_PARKED, SOON_MS);
    CHECK(left(50, &graphs) == MANY && graphs == 2 * MANY);
    for (int i = MANY; i-- > 0;) {
        fake_graph_destroy(pairs[i].graphs[0]);
        fake_graph_destroy(pairs[i].graphs[1]);
        becomes(&pairs[i], TRIB_COMM_RECLAIMED, SOON_MS);
        finish_pair(&pairs[i]);
        release_pair(&pairs[i]);
    }
    finish_pair(&other);
    release_pair(&other);
    end();
}

/* Posted while a thread can neither be started nor promoted, all are aborted in one group; a thread
 * that comes later does the rest. */
static void parked_without_threads(void)
{
    const int32_t alone = 2;
    struct pair pairs[3];
    struct tri_transport *single = NULL;
    check_begin("nccl over a fake: parked communicators where no thread can be started");
    if (!CHECK_OK(transports()->open_group(&single, &alone, 1, NULL, PLENTY_MS)))
        return;
    for (int i = 0; i < 3; i++)
        if (!open_pair(&pairs[i]))
            return;
    fake_allow_threads(false);
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            capture_pair(&pairs[i]);
        abort_pair(&pairs[i]);
    }
    /* The last one: it has no proxy threads to wait for, and the others do. */
    (void)tri_abort_raise(transports()->abort_state(single), TRIB_ERR_ABORTED, "the last one");
    becomes(&pairs[1], TRIB_COMM_PARKED, SOON_MS);
    fake_allow_threads(true);
    fake_graph_destroy(pairs[1].graphs[0]);
    fake_graph_destroy(pairs[1].graphs[1]);
    for (int i = 0; i < 3; i++) {
        becomes(&pairs[i], TRIB_COMM_RECLAIMED, PLENTY_MS);
        finish_pair(&pairs[i]);
        release_pair(&pairs[i]);
    }
    CHECK_OK(transports()->close(single, PLENTY_MS));
    transports()->destroy(single);
    end();
}

/* NCCL would wait for the graph until it is gone: the close waits outside, and gives up. */
static void closed_with_graphs(void)
{
    struct pair pair;
    check_begin("nccl over a fake: a close while CUDA graphs live");
    if (open_pair(&pair)) {
        capture_pair(&pair);
        CHECK_OK(transports()->close(pair.ranks[0], 0));
        CHECK_STATUS(transports()->close(pair.ranks[1], 100), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("CUDA graphs that captured calls of the communicator of 2 ranks were alive "
                     "(2)");
        becomes(&pair, TRIB_COMM_PARKED, SOON_MS);
        CHECK(fake_waiting_for_graphs() == 0);
        for (int ms = 0; ms < PLENTY_MS && tri_nccl_threads(TRI_NCCL_TASKS) > 0; ms++)
            check_sleep_ms(1);
        CHECK(tri_nccl_threads(TRI_NCCL_TASKS) == 0); /* nobody waits for them any more */
        fake_graph_destroy(pair.graphs[0]);
        fake_graph_destroy(pair.graphs[1]);
        becomes(&pair, TRIB_COMM_RECLAIMED, SOON_MS);
        for (int i = 0; i < 2; i++) {
            transports()->destroy(pair.ranks[i]);
            CHECK_OK(devices()->stream_destroy(i, pair.streams[i]));
        }
        release_pair(&pair);
    }
    end();
}

/* A close that begins while a graph lives, which then goes: in good order. */
static void closed_after_graphs(void)
{
    struct pair pair;
    check_begin("nccl over a fake: a close after the last graph is gone");
    if (open_pair(&pair)) {
        capture_pair(&pair);
        fake_graph_destroy(pair.graphs[0]);
        fake_graph_destroy(pair.graphs[1]);
        finish_pair(&pair);
        becomes(&pair, TRIB_COMM_RECLAIMED, PLENTY_MS);
        CHECK_OK(tri_abort_status(pair.handle));
        release_pair(&pair);
    }
    end();
}

/* One graph that captured the streams of both ranks is one graph, however many calls it has. */
static void one_graph_for_all(void)
{
    static float memory[4];
    struct pair pair;
    uint32_t graphs = 0;
    check_begin("nccl over a fake: one graph for the ranks of a group");
    if (open_pair(&pair)) {
        struct tri_call calls[2];
        struct fake_graph *graph = fake_capture_begin(pair.streams[0]);
        fake_capture_join(pair.streams[1], graph);
        for (int i = 0; i < 2; i++)
            calls[i] = (struct tri_call){.kind = TRI_ALLREDUCE,
                                         .transport = pair.ranks[i],
                                         .send = memory,
                                         .recv = memory,
                                         .count = 4,
                                         .dtype = TRIB_F32,
                                         .op = TRIB_SUM,
                                         .stream = pair.streams[i]};
        for (int i = 0; i < 3; i++)
            CHECK_OK(transports()->collective(calls, 2));
        for (int i = 0; i < 2; i++)
            fake_capture_end(pair.streams[i]);
        abort_pair(&pair);
        becomes(&pair, TRIB_COMM_PARKED, SOON_MS);
        is(&pair, TRIB_COMM_PARKED, "1 live CUDA graph that captured its calls, for ");
        CHECK(left(50, &graphs) == 1 && graphs == 1);
        fake_graph_destroy(graph);
        becomes(&pair, TRIB_COMM_RECLAIMED, SOON_MS);
        finish_pair(&pair);
        release_pair(&pair);
    }
    end();
}

/* A graph that could not be counted: NCCL waits for it inside, and the state says so after a
 * while. */
static void uncounted(void)
{
    struct pair pair;
    check_begin("nccl over a fake: graphs that could not be counted");
    if (open_pair(&pair)) {
        fake_fail_user_objects(true);
        capture_pair(&pair);
        fake_fail_user_objects(false);
        abort_pair(&pair);
        becomes(&pair, TRIB_COMM_ABORTED, SOON_MS);
        becomes(&pair, TRIB_COMM_PARKED, PLENTY_MS);
        is(&pair, TRIB_COMM_PARKED, "earlier work on a device of its ranks, for ");
        CHECK(fake_waiting_for_graphs() == 1);
        fake_graph_destroy(pair.graphs[0]);
        fake_graph_destroy(pair.graphs[1]);
        becomes(&pair, TRIB_COMM_RECLAIMED, PLENTY_MS);
        finish_pair(&pair);
        release_pair(&pair);
    }
    end();
}

void states(void)
{
    orderly(false);
    orderly(true);
    held();
    phases();
    crowds();
    parked_by_graphs();
    freed_after_graphs();
    parked_in_turn();
    many_parked();
    parked_without_threads();
    closed_with_graphs();
    closed_after_graphs();
    one_graph_for_all();
    uncounted();
}
