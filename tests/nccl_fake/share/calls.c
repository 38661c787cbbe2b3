/* Ranks that share memory: push serves their small calls, and NCCL the large ones. */
#include "tests/nccl_fake/share/cases.h"
#include "tests/nccl_fake/share/fixture.h"

static const enum tri_kind kinds[] = {TRI_ALLREDUCE, TRI_REDUCE_SCATTER, TRI_ALLGATHER,
                                      TRI_BROADCAST};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool serve_all(struct share_ranks *ranks)
{
    bool good = true;
    for (int round = 0; round < 3; round++)
        for (int kind = 0; kind < KINDS; kind++)
            good = share_works(ranks, kinds[kind]) && share_counts(ranks, 0, 1) && good;
    return good;
}

static void served(int size, bool threads)
{
    struct share_ranks ranks;
    share_begin(threads ? "small calls, a thread each" : "small calls");
    share_prepare(&ranks, size);
    ranks.threads = threads;
    if (share_open(&ranks)) {
        CHECK(share_has_memory(&ranks, false));
        CHECK(share_take_up_to(&ranks, SHARE_TRY) && share_has_memory(&ranks, false));
        CHECK(share_take(&ranks, SHARE_USE) && share_has_memory(&ranks, true));
        (void)share_counts(&ranks, -1, -1);
        CHECK(serve_all(&ranks));
        share_call_nccl(&ranks, SHARE_LARGE);
        CHECK(share_counts(&ranks, size, 0));
        CHECK(serve_all(&ranks));
    }
    share_close(&ranks);
    share_end();
}

/* A rank calls on one stream, then on another: in that order, and no peer waits for the second one's
 * first. */
static void streams(void)
{
    struct share_ranks ranks;
    struct fake_held held;
    trib_stream other = NULL;
    share_begin("two streams of a rank");
    share_prepare(&ranks, 2);
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        CHECK_OK(devices()->stream_create(0, &other));
        (void)share_counts(&ranks, -1, -1);
        share_fill(&ranks);
        fake_hold_stream(&held, ranks.streams[0]);
        CHECK_OK(share_call(&ranks, 0, TRI_ALLREDUCE, SHARE_N, ranks.streams[0]));
        CHECK_OK(share_call(&ranks, 0, TRI_BROADCAST, SHARE_N, other));
        for (int call = 0; call < 2; call++)
            CHECK_OK(share_call(&ranks, 1, call == 0 ? TRI_ALLREDUCE : TRI_BROADCAST, SHARE_N,
                                ranks.streams[1]));
        CHECK(share_counts(&ranks, 0, 0) && !share_is_done(&ranks, 1));
        fake_release_stream(&held);
        CHECK_OK(devices()->stream_wait(0, other));
        CHECK(share_wait(&ranks, 1) && share_is_right(&ranks, TRI_BROADCAST, SHARE_N));
        CHECK(share_counts(&ranks, 0, 2));
        CHECK_OK(devices()->stream_destroy(0, other));
    }
    share_close(&ranks);
    share_end();
}

/* Which rank serves a call follows from what all have offered: the least memory counts. */
static void least(uint64_t peer_bytes, size_t fits)
{
    struct share_ranks ranks;
    share_begin("the least memory of all ranks");
    share_prepare(&ranks, 3);
    ranks.configs[1].peer_bytes = peer_bytes;
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        for (int rank = 0; rank < ranks.size; rank++) {
            const uint64_t bytes = transports()->peer_bytes(ranks.of[rank]);
            CHECK(bytes >= peer_bytes && bytes < peer_bytes + FAKE_GRANULARITY);
        }
        (void)share_counts(&ranks, -1, -1);
        CHECK(share_works(&ranks, TRI_ALLREDUCE) && share_counts(&ranks, 0, 1));
        share_call_nccl(&ranks, fits + 1);
        CHECK(share_counts(&ranks, ranks.size, 0));
    }
    share_close(&ranks);
    share_end();
}

/* Another communicator of the same processes has memory of its own. */
static void two(void)
{
    struct share_ranks ranks, others;
    share_begin("two communicators");
    share_prepare(&ranks, 3);
    share_prepare(&others, 3);
    if (share_open(&ranks) && share_open(&others)) {
        CHECK(share(&ranks) && share_works(&ranks, TRI_ALLREDUCE));
        CHECK(share(&others) && share_works(&others, TRI_ALLREDUCE));
        share_fill(&ranks);
        for (int rank = 0; rank < ranks.size - 1; rank++)
            CHECK_OK(share_call(&ranks, rank, TRI_ALLREDUCE, SHARE_N, ranks.streams[rank]));
        CHECK(share_works(&others, TRI_ALLREDUCE) && !share_is_done(&ranks, 0));
        CHECK_OK(share_call(&ranks, 2, TRI_ALLREDUCE, SHARE_N, ranks.streams[2]));
        for (int rank = 0; rank < ranks.size; rank++)
            CHECK(share_wait(&ranks, rank));
        CHECK(share_is_right(&ranks, TRI_ALLREDUCE, SHARE_N));
    }
    share_close(&ranks);
    CHECK(share_works(&others, TRI_ALLGATHER));
    share_close(&others);
    share_end();
}

/* Another thread of the process captures a graph, in global mode, while ranks take their steps. */
static void capturing(bool fails)
{
    struct share_ranks ranks;
    share_begin(fails ? "a drop beside a capture" : "steps beside a capture");
    share_prepare(&ranks, 2);
    if (share_open(&ranks)) {
        fake_capture(true);
        if (fails)
            fake_allow_events(0);
        CHECK(share(&ranks) != fails);
        fake_capture(false);
    }
    share_close(&ranks);
    share_end();
}

/* ------------------------------------------------------------------------------------- a split */

struct splitting {
    struct share_ranks *parent, *child;
};

static void split_rank(int rank, int size, void *argument)
{
    const struct splitting *splitting = argument;
    (void)size;
    CHECK_OK(transports()->split(&splitting->child->of[rank], splitting->parent->of[rank], 0, rank,
                                 &splitting->child->configs[rank], SHARE_PLENTY_MS));
}

/* Its streams and buffers are the parent's. */
static void child(void)
{
    struct share_ranks ranks, children;
    struct splitting splitting = {&ranks, &children};
    share_begin("a child shares anew");
    share_prepare(&ranks, 3);
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        share_prepare(&children, 3);
        check_ranks(3, split_rank, &splitting);
        for (int rank = 0; rank < 3; rank++) {
            children.streams[rank] = ranks.streams[rank];
            children.data[rank] = ranks.data[rank];
        }
        CHECK(share_has_memory(&children, false) && share(&children));
        (void)share_counts(&children, -1, -1);
        CHECK(share_works(&children, TRI_ALLREDUCE) && share_works(&ranks, TRI_ALLREDUCE));
        CHECK(share_works(&children, TRI_ALLGATHER) && share_counts(&children, 0, 3));
        share_call_nccl(&children, SHARE_LARGE); /* NCCL's first call connects them */
        for (int rank = 0; rank < 3; rank++)
            CHECK_OK(share_finish(&children, rank, SHARE_PLENTY_MS));
    }
    share_close(&ranks);
    share_end();
}

void share_calls(void)
{
    served(2, false);
    served(3, false);
    served(8, false);
    served(3, true);
    served(8, true);
    streams();
    least((uint64_t)2 * FAKE_GRANULARITY, (size_t)2 * FAKE_GRANULARITY / 64 / 2 / 2 * 3 * 4);
    two();
    capturing(false);
    capturing(true);
    child();
}
