/* The end of ranks that share memory: each frees its part when its own calls have ended. */
#include "csrc/base/clock.h"
#include "tests/nccl_fake/share/cases.h"
#include "tests/nccl_fake/share/fixture.h"

enum { RANKS = 3 };

/* Background jobs free it. */
static void await_mappings(int n)
{
    const double until = check_now_ms() + SHARE_PLENTY_MS;
    while (fake_mappings() != n && check_now_ms() < until)
        check_sleep_ms(1);
    CHECK_MSG(fake_mappings() == n, "%d mappings, expected %d", fake_mappings(), n);
}

static bool call_all(const struct share_ranks *ranks, int first)
{
    bool good = true;
    for (int rank = first; rank < ranks->size; rank++)
        good =
            CHECK_OK(share_call(ranks, rank, TRI_ALLREDUCE, SHARE_N, ranks->streams[rank])) && good;
    return good;
}

/* Its memory stays, for kernels of other processes store there: until the last one of them has unmapped
 * it. */
static void early(void)
{
    struct share_ranks ranks;
    share_begin("a rank that ends while calls of others run");
    share_prepare(&ranks, RANKS);
    const int before = fake_mappings();
    if (share_open(&ranks) && CHECK(share(&ranks) && share_works(&ranks, TRI_ALLREDUCE))) {
        const int each = (fake_mappings() - before) / RANKS;
        CHECK(call_all(&ranks, 1));
        share_stop(&ranks, 0);
        (void)share_finish(&ranks, 0, SHARE_PLENTY_MS);
        await_mappings(before + each * (RANKS - 1));
        for (int rank = 1; rank < RANKS; rank++) {
            CHECK(!share_is_done(&ranks, rank));
            share_stop(&ranks, rank);
            CHECK(share_wait(&ranks, rank));
            (void)share_finish(&ranks, rank, SHARE_PLENTY_MS);
            await_mappings(before + each * (RANKS - 1 - rank));
        }
    }
    share_close(&ranks);
    share_end();
}

/* The stream is held when the abort comes: the rank's part stays until it has gone on, and no other
 * one's. It is the last one, for here one thread frees all of them. */
static void held(void)
{
    struct share_ranks ranks;
    struct fake_held held;
    uint32_t graphs = 0;
    share_begin("an abort of calls that have not begun");
    share_prepare(&ranks, RANKS);
    const int before = fake_mappings();
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        const int each = (fake_mappings() - before) / RANKS;
        fake_hold_stream(&held, ranks.streams[0]);
        CHECK(call_all(&ranks, 0));
        for (int rank = RANKS - 1; rank >= 0; rank--) {
            share_stop(&ranks, rank);
            (void)share_finish(&ranks, rank, SHARE_PLENTY_MS);
            await_mappings(before + each * (rank > 0 ? rank : 1));
        }
        CHECK(tri_backend_nccl.quiesce(tri_deadline_ns(SHARE_LATE_MS), &graphs) > 0);
        CHECK(fake_mappings() == before + each);
        fake_release_stream(&held);
        await_mappings(before);
    }
    share_close(&ranks);
    share_end();
}

/* ------------------------------------------------------------------------------------- closes */

struct closing {
    struct share_ranks *ranks;
    struct fake_held held;
    _Atomic int closed;
};

/* The last thread lets the call go on. */
static void close_or_release(int which, int size, void *argument)
{
    struct closing *closing = argument;
    if (which < size - 1) {
        CHECK_OK(share_finish(closing->ranks, which, SHARE_PLENTY_MS));
        closing->closed++;
        return;
    }
    check_sleep_ms(50);
    CHECK_MSG(closing->closed == 0, "%d closes have not waited for a call", closing->closed);
    fake_release_stream(&closing->held);
}

static void in_order(void)
{
    struct share_ranks ranks;
    struct closing closing = {.ranks = &ranks};
    share_begin("a close waits for calls");
    share_prepare(&ranks, RANKS);
    const int before = fake_mappings();
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        share_fill(&ranks);
        fake_hold_stream(&closing.held, ranks.streams[0]);
        CHECK(call_all(&ranks, 0));
        check_ranks(RANKS + 1, close_or_release, &closing);
        CHECK(share_is_right(&ranks, TRI_ALLREDUCE, SHARE_N));
        await_mappings(before);
    }
    share_close(&ranks);
    share_end();
}

/* Of ranks that make no calls, and one that waits for a peer that has not made it. */
static void late(void)
{
    struct share_ranks ranks;
    share_begin("a close that is late");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        CHECK_OK(share_call(&ranks, 0, TRI_ALLREDUCE, SHARE_N, ranks.streams[0]));
        CHECK_STATUS(share_finish(&ranks, 0, SHARE_LATE_MS), TRIB_ERR_TIMEOUT);
        CHECK(share_wait(&ranks, 0)); /* an abort ended it */
        for (int rank = 1; rank < RANKS; rank++)
            CHECK_OK(share_finish(&ranks, rank, SHARE_PLENTY_MS));
    }
    share_close(&ranks);
    share_end();
}

/* The order of their ends does not matter. */
static void one_by_one(void)
{
    struct share_ranks ranks;
    share_begin("ranks that end one by one");
    share_prepare(&ranks, RANKS);
    const int before = fake_mappings();
    if (share_open(&ranks) && CHECK(share(&ranks) && share_works(&ranks, TRI_REDUCE_SCATTER))) {
        const int each = (fake_mappings() - before) / RANKS;
        for (int rank = RANKS - 1; rank >= 0; rank--) {
            CHECK_OK(share_finish(&ranks, rank, SHARE_PLENTY_MS));
            await_mappings(before + each * rank);
        }
    }
    share_close(&ranks);
    share_end();
}

void share_ends(void)
{
    early();
    held();
    in_order();
    late();
    one_by_one();
}
