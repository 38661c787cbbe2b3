/* Communicators that end while CUDA graphs with their calls live: nothing waits for the graphs but
 * the release of the communicator, and its state says so. Needs 2 GPUs. */
#include "tests/nccl/graphs.h"

enum { BOUND_MS = 15000, SOON_MS = 2000 };

static void add_up(int rank, int size, void *argument)
{
    struct graphs *graphs = argument;
    (void)size;
    CHECK_OK(graphs_sum(graphs, rank));
    CHECK(graphs_value(graphs, rank) == (float)(GRAPH_RANKS * GRAPH_RANKS * GRAPH_RANKS));
}

/* Parked until the last graph is gone. The next communicator on the same devices does not wait. */
static void aborted(void)
{
    struct graphs graphs;
    check_begin("an abort while CUDA graphs live");
    if (graphs_make(&graphs)) {
        CHECK_OK(trib_abort_raise(graphs.handle, "with graphs"));
        graphs_become(&graphs, TRIB_COMM_PARKED, "2 live CUDA graphs that captured its calls, for ",
                      SOON_MS);
        team_close(&graphs.team);
        CHECK_STATUS(trib_quiesce(50), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("2 live CUDA graphs");
        if (CHECK(team_open(&graphs.team, NULL)))
            check_ranks(GRAPH_RANKS, add_up, &graphs);
        team_close(&graphs.team);
        graphs_destroy_one(&graphs, 1);
        graphs_become(&graphs, TRIB_COMM_PARKED, "1 live CUDA graph that captured its calls, for ",
                      SOON_MS);
        graphs_destroy_one(&graphs, 0);
        graphs_become(&graphs, TRIB_COMM_RECLAIMED, "", BOUND_MS);
        graphs_end(&graphs);
    }
    CHECK_OK(trib_quiesce(BOUND_MS));
    check_end();
}

/* A close gives up at its deadline, and says why. */
static void closed(void)
{
    struct graphs graphs;
    check_begin("a close while CUDA graphs live");
    if (graphs_make(&graphs)) {
        CHECK_OK(trib_comm_close(graphs.team.comms[0], 300));
        CHECK_STATUS(trib_comm_close(graphs.team.comms[1], 300), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("CUDA graphs that captured calls of the communicator of 2 ranks");
        graphs_become(&graphs, TRIB_COMM_PARKED, "2 live CUDA graphs that captured its calls, for ",
                      SOON_MS);
        for (int rank = 0; rank < GRAPH_RANKS; rank++)
            graphs_destroy_one(&graphs, rank);
        graphs_become(&graphs, TRIB_COMM_RECLAIMED, "", BOUND_MS);
        graphs_end(&graphs);
    }
    CHECK_OK(trib_quiesce(BOUND_MS));
    check_end();
}

/* Graphs that are gone do not count. */
static void in_good_order(void)
{
    struct graphs graphs;
    check_begin("a close after the CUDA graphs are destroyed");
    if (graphs_make(&graphs)) {
        for (int rank = 0; rank < GRAPH_RANKS; rank++)
            graphs_destroy_one(&graphs, rank);
        team_close(&graphs.team);
        graphs_become(&graphs, TRIB_COMM_RECLAIMED, "", BOUND_MS);
        CHECK_OK(trib_abort_status(graphs.handle));
        graphs_end(&graphs);
    }
    check_end();
}

int main(void)
{
    if (team_limit("nccl") < GRAPH_RANKS) {
        check_skip("ranks with graphs need 2 GPUs: there are %d", team_limit("nccl"));
        return check_finish("parked_cuda_test");
    }
    aborted();
    closed();
    in_good_order();
    return check_finish("parked_cuda_test");
}
