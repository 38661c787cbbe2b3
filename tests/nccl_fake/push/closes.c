/* Closing in good order, and ranks that leave. */
#include <stdatomic.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/fixture.h"

enum { RANKS = 2 };

struct closing {
    struct push_ranks ranks;
    _Atomic int closed;
};

static void close_rank(int rank, int size, void *argument)
{
    struct closing *closing = argument;
    if (rank == size - 1) {
        CHECK_OK(trib_comm_close(closing->ranks.comms[1], PUSH_PLENTY_MS));
        atomic_fetch_add(&closing->closed, 1);
    }
}

struct releasing {
    struct closing *closing;
    struct fake_held *held;
};

static void close_or_release(int rank, int size, void *argument)
{
    const struct releasing *releasing = argument;
    if (rank == 0) {
        check_sleep_ms(50);
        CHECK_MSG(atomic_load(&releasing->closing->closed) == 0, "the close has not waited");
        CHECK(fake_mappings() > 0);
        fake_release_stream(releasing->held);
    } else {
        close_rank(rank, size, releasing->closing);
    }
}

static void in_order(void)
{
    struct closing closing = {.closed = 0};
    struct fake_held held;
    struct releasing releasing = {&closing, &held};
    push_begin("a close waits for queued calls");
    if (push_open(&closing.ranks, RANKS, PUSH_N * 4, NULL)) {
        push_fill(&closing.ranks, TRIB_F32, PUSH_N);
        fake_hold_stream(&held, closing.ranks.streams[1]);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_OK(push_sum(&closing.ranks, rank, PUSH_N, TRIB_F32));
        CHECK_OK(trib_comm_close(closing.ranks.comms[0], PUSH_PLENTY_MS));
        check_ranks(RANKS, close_or_release, &releasing);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(push_holds(&closing.ranks, rank, TRIB_F32, PUSH_N, 1));
        push_close(&closing.ranks);
    }
    push_end();
}

static void late(void)
{
    struct push_ranks ranks;
    struct fake_held held;
    push_begin("a close that is late");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        fake_hold_stream(&held, ranks.streams[1]);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_OK(push_sum(&ranks, rank, PUSH_N, TRIB_F32));
        CHECK_OK(trib_comm_close(ranks.comms[0], PUSH_LATE_MS));
        CHECK_STATUS(trib_comm_close(ranks.comms[1], PUSH_LATE_MS), TRIB_ERR_TIMEOUT);
        CHECK_OK(trib_stream_wait(ranks.devices[0], ranks.streams[0])); /* an abort ended it */
        fake_release_stream(&held);
        push_close(&ranks);
    }
    push_end();
}

/* A rank that has made as many calls may go; one that has not ends the others. */
static void leaving(void)
{
    struct push_ranks ranks;
    push_begin("a rank that leaves");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        CHECK(push_works(&ranks));
        CHECK_OK(trib_comm_close(ranks.comms[0], PUSH_PLENTY_MS));
        CHECK_OK(trib_comm_status(ranks.comms[1]));
        CHECK_STATUS(push_sum(&ranks, 1, PUSH_N, TRIB_F32), TRIB_ERR_CLOSED);
        CHECK_DETAIL("rank 0 left after call 1");
        CHECK(push_counts(&ranks, 0, 1) && push_is_done(&ranks, 1));
        push_close(&ranks);
    }
    push_end();
}

static void left(void)
{
    struct push_ranks ranks;
    push_begin("a rank that leaves while a push waits for it");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        CHECK_OK(push_sum(&ranks, 1, PUSH_N, TRIB_F32));
        CHECK_STATUS(trib_comm_close(ranks.comms[0], PUSH_PLENTY_MS), TRIB_ERR_CLOSED);
        CHECK_OK(trib_stream_wait(ranks.devices[1], ranks.streams[1]));
        CHECK_STATUS(trib_comm_status(ranks.comms[1]), TRIB_ERR_CLOSED);
        push_close(&ranks);
    }
    push_end();
}

void push_closes(void)
{
    in_order();
    late();
    leaving();
    left();
}
