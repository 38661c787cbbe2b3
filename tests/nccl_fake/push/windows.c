/* Symmetric memory that is registered with NCCL, as windows. */
#include <string.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

/* The first version whose calls on windows an abort ends, and one before. */
enum { RANKS = 2, ABORTABLE = 22907, UNABORTABLE = 22809, LATE_MS = 1500, HELD_MS = 60 };

/* What each rank gets of one allocation, and its call. */
struct windowed {
    struct push_ranks ranks;
    void *data[RANKS];
    trib_status status[RANKS];
    char detail[RANKS][256];
    trib_id id;
    bool held; /* what waits inside NCCL stays there */
};

static bool open_with(struct windowed *all, int version, trib_options *options)
{
    *all = (struct windowed){.data = {NULL}};
    options->flags |= TRIB_WINDOWS;
    fake_version(version);
    if (CHECK(push_open(&all->ranks, RANKS, LARGE_BYTES, options)))
        return true;
    fake_version(0);
    return false;
}

static bool open_ranks(struct windowed *all)
{
    trib_options options = TRIB_OPTIONS_INIT;
    return open_with(all, ABORTABLE, &options);
}

static bool open_unabortable(struct windowed *all)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_WINDOWS_UNABORTABLE;
    return open_with(all, UNABORTABLE, &options);
}

/* The communicators are destroyed: no window is left. */
static void end_windows(void)
{
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
    fake_version(0);
    CHECK_MSG(fake_windows() == 0, "%d windows", fake_windows());
}

static void close_ranks(struct windowed *all)
{
    push_close(&all->ranks);
    end_windows();
}

static void allocate_rank(int rank, int size, void *argument)
{
    struct windowed *all = argument;
    (void)size;
    all->status[rank] = trib_symmetric_alloc(&all->data[rank], all->ranks.comms[rank], LARGE_BYTES);
    (void)strncpy(all->detail[rank], trib_last_detail(), sizeof all->detail[rank] - 1);
}

static bool allocate(struct windowed *all)
{
    check_ranks(RANKS, allocate_rank, all);
    return all->status[0] == TRIB_OK && all->status[1] == TRIB_OK;
}

static void free_rank(int rank, int size, void *argument)
{
    struct windowed *all = argument;
    (void)size;
    all->status[rank] = trib_symmetric_free(all->ranks.comms[rank], all->data[rank]);
}

/* ----------------------------------------------------------------------------------------- calls */

/* Of small numbers, by the library's own kernels, or by NCCL, for which each rank needs a thread. */
struct sum {
    const struct windowed *all;
    size_t count;
    trib_variant variant;
};

static void sum_rank(int rank, int size, void *argument)
{
    const struct sum *sum = argument;
    const struct push_ranks *ranks = &sum->all->ranks;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    (void)size;
    options.variant = sum->variant;
    CHECK_OK(trib_allreduce_with(ranks->comms[rank], sum->all->data[rank], sum->all->data[rank],
                                 sum->count, TRIB_F32, TRIB_SUM, &options, ranks->streams[rank]));
}

/* How many of NCCL's calls had buffers in windows; -1: the result is wrong. */
static long sum_all(const struct windowed *all, size_t count, trib_variant variant)
{
    struct sum sum = {all, count, variant};
    struct push_ranks on = all->ranks;
    const long before = fake_window_calls();
    for (int rank = 0; rank < RANKS; rank++)
        on.data[rank] = all->data[rank];
    push_fill(&on, TRIB_F32, count);
    fake_move_data(true);
    check_ranks(RANKS, sum_rank, &sum);
    fake_move_data(false);
    return push_summed(&on, TRIB_F32, count) ? fake_window_calls() - before : -1;
}

static void calls(void)
{
    struct windowed all;
    push_begin("calls on windows");
    if (open_ranks(&all) && CHECK(fake_windows() == 0) && CHECK(allocate(&all))) {
        CHECK_MSG(fake_windows() == RANKS, "%d windows", fake_windows());
        CHECK(sum_all(&all, PUSH_N, TRIB_VARIANT_WINDOW) == RANKS);
        CHECK(sum_all(&all, LARGE_N, TRIB_VARIANT_WINDOW) == RANKS);
        CHECK(sum_all(&all, LARGE_N, TRIB_VARIANT_NCCL) == RANKS);
        CHECK(sum_all(&all, PUSH_N, TRIB_VARIANT_AUTO) == 0);
        CHECK(sum_all(&all, LARGE_N, TRIB_VARIANT_AUTO) == 0);
        CHECK(sum_all(&all, LARGE_N, TRIB_VARIANT_SYMMETRIC) == 0);
        check_ranks(RANKS, free_rank, &all);
        CHECK(all.status[0] == TRIB_OK && all.status[1] == TRIB_OK && fake_windows() == 0);
        CHECK(allocate(&all) && fake_windows() == RANKS); /* and is left to the communicator */
        CHECK(sum_all(&all, LARGE_N, TRIB_VARIANT_WINDOW) == RANKS);
        close_ranks(&all);
    }
    push_end();
}

/* NCCL chooses by where both buffers of a rank lie: all that a rank has is looked at, in place as well, of
 * the calls that ask for symmetric memory alone, too. */
static void looked_at(void)
{
    struct windowed all;
    trib_call_options window = TRIB_CALL_OPTIONS_INIT, symmetric = TRIB_CALL_OPTIONS_INIT;
    const size_t beyond = LARGE_N + 100; /* twice: what is mapped, but not what was asked for */
    window.variant = TRIB_VARIANT_WINDOW;
    symmetric.variant = TRIB_VARIANT_SYMMETRIC;
    push_begin("buffers of other calls that are in no window");
    if (open_ranks(&all) && CHECK(allocate(&all))) {
        trib_comm *const comm = all.ranks.comms[0];
        const trib_stream stream = all.ranks.streams[0];
        void *const data = all.data[0], *const plain = all.ranks.data[0];
        CHECK_STATUS(trib_broadcast_with(comm, plain, plain, 4, TRIB_F32, 1, &window, stream),
                     TRIB_ERR_INVALID_BUFFER);
        CHECK_DETAIL("`recv`");
        CHECK_STATUS(trib_allgather_with(comm, data, data, beyond, TRIB_F32, &window, stream),
                     TRIB_ERR_INVALID_BUFFER);
        CHECK_DETAIL("is not symmetric memory");
        CHECK_STATUS(trib_allgather_with(comm, data, plain, 4, TRIB_F32, &symmetric, stream),
                     TRIB_ERR_INVALID_BUFFER);
        CHECK_DETAIL("`recv`");
        CHECK_STATUS(
            trib_reduce_scatter_with(comm, plain, data, 4, TRIB_F32, TRIB_SUM, &window, stream),
            TRIB_ERR_INVALID_BUFFER);
        CHECK_DETAIL("`send`");
        CHECK(sum_all(&all, PUSH_N, TRIB_VARIANT_WINDOW) == RANKS);
        close_ranks(&all);
    }
    push_end();
}

/* A buffer that NCCL does not know is its rank's mistake; without TRIB_WINDOWS nobody may ask. */
static void refused(void)
{
    struct windowed all;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = TRIB_VARIANT_WINDOW;
    push_begin("what windows refuse");
    if (open_ranks(&all) && CHECK(allocate(&all))) {
        CHECK_STATUS(trib_allreduce_with(all.ranks.comms[0], all.data[0], all.ranks.data[0], PUSH_N,
                                         TRIB_F32, TRIB_SUM, &options, all.ranks.streams[0]),
                     TRIB_ERR_INVALID_BUFFER);
        CHECK_DETAIL("`recv`");
        CHECK_DETAIL("variant window");
        CHECK(sum_all(&all, PUSH_N, TRIB_VARIANT_WINDOW) == RANKS);
        close_ranks(&all);
    }
    if (large_open(&all.ranks, RANKS, LARGE_ROOM) && CHECK(allocate(&all)) &&
        CHECK(fake_windows() == 0)) {
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_STATUS(trib_allreduce_with(all.ranks.comms[rank], all.data[rank], all.data[rank],
                                             PUSH_N, TRIB_F32, TRIB_SUM, &options,
                                             all.ranks.streams[rank]),
                         TRIB_ERR_UNSUPPORTED);
        CHECK_DETAIL("made without TRIB_WINDOWS");
        push_close(&all.ranks);
    }
    push_end();
}

static void alone(void)
{
    struct windowed all = {.data = {NULL}};
    trib_options options = TRIB_OPTIONS_INIT;
    trib_call_options call = TRIB_CALL_OPTIONS_INIT;
    push_begin("windows of one rank");
    options.flags = TRIB_WINDOWS;
    call.variant = TRIB_VARIANT_WINDOW;
    fake_version(ABORTABLE);
    if (push_open(&all.ranks, 1, LARGE_BYTES, &options) &&
        CHECK_OK(trib_symmetric_alloc(&all.data[0], all.ranks.comms[0], LARGE_BYTES))) {
        CHECK_OK(trib_allreduce_with(all.ranks.comms[0], all.data[0], all.data[0], PUSH_N, TRIB_F32,
                                     TRIB_SUM, &call, all.ranks.streams[0]));
        CHECK_OK(trib_symmetric_free(all.ranks.comms[0], all.data[0]));
        close_ranks(&all);
    }
    push_end();
}

/* ------------------------------------------------------------------------------------------ ends */

/* NCCL fails on one rank: the communicator ends, and everything is freed with it. */
static void fails(void)
{
    struct windowed all;
    push_begin("a window that NCCL does not make");
    if (open_ranks(&all)) {
        fake_fail_windows(1);
        CHECK(!allocate(&all) && all.status[1] == TRIB_ERR_NCCL && all.data[1] == NULL);
        CHECK_MSG(strstr(all.detail[1], "making a window") != NULL, "%s", all.detail[1]);
        fake_fail_windows(-1);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_STATUS(trib_comm_status(all.ranks.comms[rank]), TRIB_ERR_NCCL);
        close_ranks(&all);
    }
    push_end();
    push_begin("a window that NCCL does not end");
    if (open_ranks(&all) && CHECK(allocate(&all))) {
        fake_fail_windows(0);
        check_ranks(RANKS, free_rank, &all);
        CHECK_STATUS(all.status[0], TRIB_ERR_NCCL);
        fake_fail_windows(-1);
        CHECK_STATUS(trib_comm_status(all.ranks.comms[0]), TRIB_ERR_NCCL);
        close_ranks(&all);
    }
    push_end();
}

static void end_soon(const struct windowed *all)
{
    trib_abort *handle = NULL;
    CHECK_OK(trib_comm_abort_handle(&handle, all->ranks.comms[0]));
    CHECK_OK(trib_abort_raise(handle, "a test"));
    trib_abort_release(handle);
}

/* The last one of RANKS + 1 threads, once all ranks wait inside NCCL. */
static void abort_allocation(int rank, int size, void *argument)
{
    struct windowed *all = argument;
    if (rank < RANKS) {
        allocate_rank(rank, size, all);
        return;
    }
    while (fake_waiting(FAKE_WINDOW) < RANKS)
        check_sleep_ms(1);
    end_soon(all);
    if (all->held)
        return;
    check_sleep_ms(HELD_MS);
    fake_hold(FAKE_WINDOW, false);
}

/* Each rank's call goes on by itself, and holds what it needs. */
static void destroy_held(struct windowed *all)
{
    CHECK(fake_waiting(FAKE_WINDOW) == RANKS);
    push_destroy(&all->ranks);
    check_sleep_ms(HELD_MS);
    CHECK(fake_communicators() == RANKS); /* calls are inside */
    fake_hold(FAKE_WINDOW, false);
    push_drop(&all->ranks);
    end_windows();
}

/* The ranks wait inside NCCL, which returns soon after the abort, or does not. */
static void interrupted(bool held)
{
    struct windowed all;
    push_begin(held ? "an abort while NCCL hangs" : "an abort while NCCL makes windows");
    if (open_ranks(&all)) {
        all.held = held;
        fake_hold(FAKE_WINDOW, true);
        check_ranks(RANKS + 1, abort_allocation, &all);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_MSG(all.status[rank] == TRIB_ERR_ABORTED && all.data[rank] == NULL, "%s: %s",
                      trib_status_name(all.status[rank]), all.detail[rank]);
        if (held)
            destroy_held(&all);
        else
            close_ranks(&all);
    }
    push_end();
}

static void late(void)
{
    struct windowed all;
    trib_options options = TRIB_OPTIONS_INIT;
    options.timeout_ms = LATE_MS;
    push_begin("windows that NCCL does not make in time");
    if (open_with(&all, ABORTABLE, &options)) {
        fake_hold(FAKE_WINDOW, true);
        CHECK(!allocate(&all) && all.data[0] == NULL && all.data[1] == NULL);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_MSG(all.status[rank] == TRIB_ERR_TIMEOUT &&
                          strstr(all.detail[rank], "in trib_symmetric_alloc for 1500 ms") != NULL,
                      "%s", all.detail[rank]);
        fake_hold(FAKE_WINDOW, false);
        close_ranks(&all);
    }
    push_end();
}

/* An older NCCL keeps what it is not told of before its communicator ends. */
static void left_to_the_communicator(void)
{
    struct windowed all;
    push_begin("windows that are left to the communicator");
    if (open_unabortable(&all) && CHECK(allocate(&all)) && CHECK(allocate(&all))) {
        CHECK(fake_windows() == 2 * RANKS);
        close_ranks(&all);
    }
    push_end();
}

/* What no abort ends is not called ended. */
static void unabortable(void)
{
    struct windowed all;
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    push_begin("an abort of a communicator whose calls no abort ends");
    if (open_unabortable(&all)) {
        trib_comm_state state = TRIB_COMM_LIVE;
        char why[128];
        trib_abort *handle = NULL;
        CHECK_OK(trib_comm_capabilities(&can, all.ranks.comms[0]));
        CHECK((can.flags & (TRIB_CAN_INTERRUPT | TRIB_CAN_WINDOWS)) == 0);
        CHECK_OK(trib_comm_abort_handle(&handle, all.ranks.comms[0]));
        fake_hold(FAKE_RECLAIM, true);
        end_soon(&all);
        while (fake_waiting(FAKE_RECLAIM) == 0)
            check_sleep_ms(1);
        CHECK_OK(trib_abort_state(&state, why, sizeof why, handle));
        CHECK_MSG(state == TRIB_COMM_ABORTING && strstr(why, "which no abort ends") != NULL,
                  "state %d: %s", (int)state, why);
        fake_hold(FAKE_RECLAIM, false);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK_OK(trib_abort_state(&state, NULL, 0, handle));
        CHECK(state == TRIB_COMM_RECLAIMED);
        trib_abort_release(handle);
        close_ranks(&all);
    }
    push_end();
}

/* NCCL may never end the group of one of them: each has its own. */
static void unabortable_together(void)
{
    enum { MANY = 7, ROUNDS = 4 }; /* more than threads that finish jobs */
    struct windowed all[MANY];
    push_begin("communicators whose calls no abort ends do not wait for each other");
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MANY; i++)
            if (!open_unabortable(&all[i]))
                return;
        fake_hold(FAKE_RECLAIM, true);
        for (int i = 0; i < MANY; i++)
            end_soon(&all[i]);
        for (int ms = 0; ms < LATE_MS && fake_waiting(FAKE_RECLAIM) < MANY; ms++)
            check_sleep_ms(1);
        CHECK_MSG(fake_waiting(FAKE_RECLAIM) == MANY, "%d wait", fake_waiting(FAKE_RECLAIM));
        fake_hold(FAKE_RECLAIM, false);
        for (int i = 0; i < MANY; i++)
            close_ranks(&all[i]);
    }
    push_end();
}

static void differ_rank(int rank, int size, void *argument)
{
    struct windowed *all = argument;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = rank == 0 ? TRIB_WINDOWS : 0;
    options.peer_bytes = PUSH_ROOM;
    if (CHECK_OK(trib_comm_create(&all->ranks.comms[rank], &all->id, rank, size, rank, &options)))
        all->status[rank] =
            trib_symmetric_alloc(&all->data[rank], all->ranks.comms[rank], LARGE_BYTES);
    CHECK_STATUS(all->status[rank], TRIB_ERR_MISMATCH);
    CHECK_DETAIL("rank 1 was created without TRIB_WINDOWS");
    CHECK_OK(trib_comm_destroy(all->ranks.comms[rank]));
}

static void differ(void)
{
    struct windowed all = {.data = {NULL}};
    push_begin("ranks of which not all register memory");
    fake_version(ABORTABLE);
    CHECK_OK(trib_id_create(&all.id, "nccl"));
    check_ranks(RANKS, differ_rank, &all);
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
    fake_version(0);
    CHECK(fake_windows() == 0);
    push_end();
}

static void child_rank(int rank, int size, void *argument)
{
    const struct windowed *all = argument;
    trib_comm *child = NULL;
    void *data = NULL;
    float one = 1;
    (void)size;
    if (!CHECK_OK(trib_comm_split(&child, all->ranks.comms[rank], 0, rank)))
        return;
    memcpy(all->ranks.data[rank], &one, sizeof one);
    CHECK_OK(trib_symmetric_import(&data, child, all->ranks.data[rank], sizeof one,
                                   all->ranks.streams[rank]));
    CHECK(fake_windows() > 0);
    CHECK_OK(trib_comm_wait(child, all->ranks.streams[rank], PUSH_PLENTY_MS));
    CHECK(memcmp(data, &one, sizeof one) == 0);
    CHECK_OK(trib_comm_destroy(child));
}

/* A child has its parent's options; and memory that is imported is registered as well. */
static void children(void)
{
    struct windowed all;
    push_begin("windows of a child");
    if (open_ranks(&all)) {
        check_ranks(RANKS, child_rank, &all);
        close_ranks(&all);
    }
    push_end();
}

/* What is on its way when the communicator ends, ends with it. */
static void aborted(void)
{
    struct windowed all;
    push_begin("an abort with windows");
    if (open_ranks(&all) && CHECK(allocate(&all))) {
        end_soon(&all);
        CHECK_STATUS(trib_symmetric_free(all.ranks.comms[1], all.data[1]), TRIB_ERR_ABORTED);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(fake_windows() == 0);
        memset(all.data[0], 1, LARGE_BYTES); /* the memory is there until it is destroyed */
        close_ranks(&all);
    }
    push_end();
}

void push_windows(void)
{
    calls();
    looked_at();
    refused();
    alone();
    fails();
    interrupted(false);
    interrupted(true);
    late();
    left_to_the_communicator();
    unabortable();
    unabortable_together();
    differ();
    children();
    aborted();
}
