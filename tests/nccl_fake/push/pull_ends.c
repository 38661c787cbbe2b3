/* The end of a communicator whose large calls pull serves. */
#include <stdatomic.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { RANKS = 2 };

static void abort_ranks(const struct push_ranks *ranks)
{
    trib_abort *handle = NULL;
    CHECK_OK(trib_comm_abort_handle(&handle, ranks->comms[0]));
    CHECK_OK(trib_abort_raise(handle, "a test"));
    trib_abort_release(handle);
}

/* A rank waits for one that does not come; another communicator of the same devices goes on. */
static void waiting(void)
{
    struct push_ranks ranks, others;
    push_begin("an abort while a large call waits for a peer");
    if (large_open(&ranks, RANKS, LARGE_ROOM) && large_open(&others, RANKS, LARGE_ROOM)) {
        large_sum(&ranks, 0);
        CHECK(large_works(&others) && !push_is_done(&ranks, 0));
        abort_ranks(&ranks);
        CHECK_OK(trib_stream_wait(ranks.devices[0], ranks.streams[0]));
        CHECK_STATUS(trib_comm_wait(ranks.comms[0], ranks.streams[0], 0), TRIB_ERR_ABORTED);
        CHECK_STATUS(push_sum(&ranks, 1, LARGE_N, TRIB_F32), TRIB_ERR_ABORTED);
        CHECK(large_works(&others) && large_counts(&others, 0, 0, 2, 0));
        push_close(&ranks);
        CHECK(large_works(&others));
        push_close(&others);
    }
    push_end();
}

/* The streams are held when the abort comes: the memory stays until they have gone on. */
static void held_back(void)
{
    struct push_ranks ranks;
    struct fake_held held;
    push_begin("an abort of large calls that have not begun");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        const int mappings = fake_mappings();
        fake_hold_stream(&held, ranks.streams[0]);
        for (int rank = 0; rank < RANKS; rank++)
            large_sum(&ranks, rank);
        abort_ranks(&ranks);
        push_destroy(&ranks);
        CHECK_STATUS(trib_quiesce(PUSH_LATE_MS), TRIB_ERR_TIMEOUT);
        CHECK(fake_mappings() == mappings);
        fake_release_stream(&held);
        push_drop(&ranks);
    }
    push_end();
}

/* A call that does not begin ends its communicator: its peer may have begun. */
static void no_launch(void)
{
    struct push_ranks ranks;
    push_begin("a launch of a large call that fails");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        large_sum(&ranks, 1);
        fake_fail_pull(0);
        CHECK_STATUS(push_sum(&ranks, 0, LARGE_N, TRIB_F32), TRIB_ERR_CUDA);
        CHECK_STATUS(trib_comm_status(ranks.comms[1]), TRIB_ERR_CUDA);
        CHECK_OK(trib_stream_wait(ranks.devices[1], ranks.streams[1]));
        CHECK_STATUS(push_sum(&ranks, 1, LARGE_N, TRIB_F32), TRIB_ERR_CUDA);
        push_close(&ranks);
    }
    push_end();
}

/* ----------------------------------------------------------------------------------------- closing */

struct closing {
    struct push_ranks ranks;
    struct fake_held held;
    _Atomic int closed;
};

static void close_or_release(int rank, int size, void *argument)
{
    struct closing *closing = argument;
    (void)size;
    if (rank == 1) {
        CHECK_OK(trib_comm_close(closing->ranks.comms[1], PUSH_PLENTY_MS));
        atomic_fetch_add(&closing->closed, 1);
    } else {
        check_sleep_ms(50);
        CHECK_MSG(atomic_load(&closing->closed) == 0, "the close has not waited");
        CHECK(fake_mappings() > 0);
        fake_release_stream(&closing->held);
    }
}

static void closes(void)
{
    static struct closing closing;
    push_begin("a close waits for large calls");
    if (large_open(&closing.ranks, RANKS, LARGE_ROOM)) {
        push_fill(&closing.ranks, TRIB_F32, LARGE_N);
        fake_hold_stream(&closing.held, closing.ranks.streams[1]);
        for (int rank = 0; rank < RANKS; rank++)
            large_sum(&closing.ranks, rank);
        CHECK_OK(trib_comm_close(closing.ranks.comms[0], PUSH_PLENTY_MS));
        check_ranks(RANKS, close_or_release, &closing);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(push_holds(&closing.ranks, rank, TRIB_F32, LARGE_N, 1));
        push_close(&closing.ranks);
    }
    push_end();
}

void pull_ends(void)
{
    waiting();
    held_back();
    no_launch();
    closes();
}

/* ------------------------------------------------------------------------------- what is never freed */

/* CUDA has marked no end of a call: its memory stays, and so does its place on the devices. */
static void no_mark(void)
{
    struct push_ranks ranks, others;
    struct fake_held held;
    push_begin("a large call whose end nobody could mark");
    const int before = fake_mappings();
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        const int kept = fake_mappings() - before;
        fake_hold_stream(&held, ranks.streams[0]);
        fake_fail_record(true);
        CHECK_STATUS(push_sum(&ranks, 0, LARGE_N, TRIB_F32), TRIB_ERR_CUDA);
        fake_fail_record(false);
        push_destroy(&ranks);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(fake_mappings() - before == kept);
        fake_release_stream(&held);
        push_drop(&ranks);
        push_keep(kept, RANKS);
    }
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        CHECK(push_large_refusals(NULL) == 0);
        if (large_open(&others, RANKS, LARGE_ROOM)) {
            CHECK(push_large_refusals("as many communicators") == 1);
            push_close(&others);
        }
        CHECK(large_works(&ranks));
        push_close(&ranks);
    }
    push_end();
}

void pull_kept(void)
{
    no_mark();
}
