/* Calls of ranks that share memory, captured in graphs. */
#include "tests/nccl_fake/share/cases.h"
#include "tests/nccl_fake/share/fixture.h"

enum { RANKS = 3 };

static cudaGraph_t capture(const struct share_ranks *ranks, int rank, enum tri_kind kind)
{
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(ranks->streams[rank], cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
    CHECK_OK(share_call(ranks, rank, kind, SHARE_N, ranks->streams[rank]));
    CHECK(cudaStreamEndCapture(ranks->streams[rank], &graph) == cudaSuccess);
    return graph;
}

static void replay_all(struct share_ranks *ranks, const cudaGraph_t *graphs, enum tri_kind kind)
{
    share_fill(ranks);
    for (int rank = 0; rank < ranks->size; rank++)
        fake_replay(graphs[rank], ranks->devices[rank], ranks->streams[rank]);
    for (int rank = 0; rank < ranks->size; rank++)
        CHECK(share_wait(ranks, rank));
    CHECK(share_is_right(ranks, kind, SHARE_N) && share_counts(ranks, 0, 1));
}

static void replays(enum tri_kind kind)
{
    struct share_ranks ranks;
    cudaGraph_t graphs[RANKS] = {NULL};
    share_begin("replays");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        (void)share_counts(&ranks, -1, -1);
        for (int rank = 0; rank < RANKS; rank++)
            graphs[rank] = capture(&ranks, rank, kind);
        CHECK(share_counts(&ranks, 0, 0));
        for (int round = 0; round < 3; round++) {
            replay_all(&ranks, graphs, kind);
            CHECK(share_works(&ranks, kind) && share_counts(&ranks, 0, 1));
        }
        for (int rank = 0; rank < RANKS; rank++)
            (void)cudaGraphDestroy(graphs[rank]);
    }
    share_close(&ranks);
    share_end();
}

/* What a graph repeats stays until it is destroyed, though its communicator has been. */
static void outlived(void)
{
    struct share_ranks ranks;
    cudaGraph_t graphs[RANKS] = {NULL};
    share_begin("graphs that outlive their communicator");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        const int mappings = fake_mappings();
        for (int rank = 0; rank < RANKS; rank++)
            graphs[rank] = capture(&ranks, rank, TRI_ALLREDUCE);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_STATUS(share_finish(&ranks, rank, SHARE_LATE_MS), TRIB_ERR_TIMEOUT);
        check_sleep_ms(20);
        CHECK(fake_mappings() == mappings);
        for (int rank = 0; rank < RANKS; rank++)
            fake_replay(graphs[rank], ranks.devices[rank], ranks.streams[rank]);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(share_wait(&ranks, rank));
        for (int rank = 0; rank < RANKS; rank++)
            (void)cudaGraphDestroy(graphs[rank]);
    }
    share_close(&ranks);
    share_end();
}

void share_graphs(void)
{
    replays(TRI_ALLREDUCE);
    replays(TRI_ALLGATHER);
    outlived();
}
