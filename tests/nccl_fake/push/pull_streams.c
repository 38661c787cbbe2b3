/* Large calls keep their order whatever streams they name, and those of graphs have a lane of their own. */
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { RANKS = 2 };

/* The first call cannot run yet: the second, on another stream, does not run before it. Push's calls have
 * a place in that order, too. */
static void held_back(void)
{
    struct push_ranks ranks;
    struct fake_held held;
    trib_stream other = NULL;
    push_begin("a large call behind one that is held");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        CHECK_OK(trib_stream_create(&other, ranks.devices[0]));
        push_fill(&ranks, TRIB_F32, LARGE_N);
        fake_hold_stream(&held, ranks.streams[0]);
        large_sum_on(&ranks, 0, ranks.streams[0]);
        large_sum_on(&ranks, 0, other);
        push_sum_on(&ranks, 0, ranks.streams[0]);
        for (int call = 0; call < 2; call++)
            large_sum(&ranks, 1);
        push_sum_on(&ranks, 1, ranks.streams[1]);
        CHECK(large_counts(&ranks, 0, 0, 0, 0));
        fake_release_stream(&held);
        CHECK_OK(trib_stream_wait(ranks.devices[0], ranks.streams[0]));
        CHECK_OK(trib_stream_wait(ranks.devices[1], ranks.streams[1]));
        CHECK(large_counts(&ranks, 0, 1, 2, 0));
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(push_holds(&ranks, rank, TRIB_F32, PUSH_N, RANKS * RANKS));
        CHECK_OK(trib_stream_destroy(ranks.devices[0], other));
        push_close(&ranks);
    }
    push_end();
}

static cudaGraph_t capture(const struct push_ranks *ranks, int rank)
{
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(ranks->streams[rank], cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
    large_sum(ranks, rank);
    CHECK(cudaStreamEndCapture(ranks->streams[rank], &graph) == cudaSuccess);
    return graph;
}

/* Replays, beside a call that no graph captured and that waits for a peer. */
static void check_replays(struct push_ranks *ranks, const cudaGraph_t *graphs,
                          const trib_stream *others)
{
    push_fill(ranks, TRIB_F32, LARGE_N);
    large_sum(ranks, 0);
    for (int round = 0; round < 2; round++) {
        for (int rank = 0; rank < RANKS; rank++)
            fake_replay(graphs[rank], rank, others[rank]);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_OK(trib_stream_wait(ranks->devices[rank], others[rank]));
        CHECK(large_counts(ranks, 0, 0, 1, 0) && !push_is_done(ranks, 0));
    }
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(push_holds(ranks, rank, TRIB_F32, LARGE_N, RANKS));
    large_sum(ranks, 1);
    CHECK(large_counts(ranks, 0, 0, 1, 0) && push_is_done(ranks, 0));
}

static void replays(void)
{
    struct push_ranks ranks;
    push_begin("replays of large calls beside others");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        cudaGraph_t graphs[RANKS];
        trib_stream others[RANKS];
        for (int rank = 0; rank < RANKS; rank++) {
            graphs[rank] = capture(&ranks, rank);
            CHECK_OK(trib_stream_create(&others[rank], ranks.devices[rank]));
        }
        CHECK(large_counts(&ranks, 0, 0, 0, 0));
        check_replays(&ranks, graphs, others);
        for (int rank = 0; rank < RANKS; rank++) {
            (void)cudaGraphDestroy(graphs[rank]);
            CHECK_OK(trib_stream_destroy(ranks.devices[rank], others[rank]));
        }
        CHECK(large_works(&ranks));
        push_close(&ranks);
    }
    push_end();
}

/* Both lanes of as many communicators as may have pull are at once on devices with few multiprocessors. */
static void at_once(void)
{
    struct push_ranks ranks[2];
    cudaGraph_t graphs[2];
    trib_stream others[2];
    push_begin("as many large calls at once as there may be");
    fake_set_multiprocessors(0, 20);
    fake_set_multiprocessors(1, 30);
    if (large_open(&ranks[0], RANKS, LARGE_ROOM) && large_open(&ranks[1], RANKS, LARGE_ROOM)) {
        CHECK(fake_pulls().blocks == 10);
        for (int i = 0; i < 2; i++) {
            graphs[i] = capture(&ranks[i], 0);
            CHECK_OK(trib_stream_create(&others[i], ranks[i].devices[0]));
            large_sum(&ranks[i], 0);
            fake_replay(graphs[i], 0, others[i]);
        }
        for (int i = 0; i < 2; i++) {
            cudaGraph_t graph = capture(&ranks[i], 1);
            large_sum(&ranks[i], 1);
            fake_replay(graph, 1, ranks[i].streams[1]);
            CHECK_OK(trib_stream_wait(ranks[i].devices[0], others[i]));
            CHECK(push_is_done(&ranks[i], 0));
            (void)cudaGraphDestroy(graph);
            (void)cudaGraphDestroy(graphs[i]);
            CHECK_OK(trib_stream_destroy(ranks[i].devices[0], others[i]));
            push_close(&ranks[i]);
        }
    }
    fake_set_multiprocessors(0, 0);
    fake_set_multiprocessors(1, 0);
    push_end();
}

void pull_streams(void)
{
    held_back();
    replays();
    at_once();
}
