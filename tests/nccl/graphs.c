/* Ranks with CUDA graphs of their calls. */
#include "tests/nccl/graphs.h"

#include <string.h>

enum { TEXT = 128 };

float graphs_value(struct graphs *graphs, int rank)
{
    float first = 0;
    CHECK_OK(trib_device_copy(graphs->team.devices[rank], &first, graphs->data[rank], sizeof first,
                              graphs->team.streams[rank]));
    CHECK_OK(trib_stream_wait(graphs->team.devices[rank], graphs->team.streams[rank]));
    return first;
}

trib_status graphs_sum(struct graphs *graphs, int rank)
{
    return trib_allreduce(graphs->team.comms[rank], graphs->data[rank], graphs->data[rank],
                          GRAPH_ELEMENTS, TRIB_F32, TRIB_SUM, graphs->team.streams[rank]);
}

/* A graph of two sums, of which only the executable one stays, and one launch of it. */
static void capture_rank(int rank, int size, void *argument)
{
    static const float one = 1;
    struct graphs *graphs = argument;
    const struct team *team = &graphs->team;
    cudaStream_t stream = team->streams[rank];
    cudaGraph_t graph = NULL;
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    CHECK_OK(trib_device_alloc(&graphs->data[rank], team->devices[rank],
                               GRAPH_ELEMENTS * sizeof(float)));
    CHECK(cudaMemsetAsync(graphs->data[rank], 0, GRAPH_ELEMENTS * sizeof(float), stream) ==
          cudaSuccess);
    CHECK_OK(graphs_sum(graphs, rank)); /* connects */
    CHECK_OK(trib_device_copy(team->devices[rank], graphs->data[rank], &one, sizeof one, stream));
    CHECK_OK(trib_stream_wait(team->devices[rank], stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK_OK(graphs_sum(graphs, rank));
    CHECK_OK(graphs_sum(graphs, rank));
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&graphs->graphs[rank], graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    team_barrier(&graphs->captured, size);
    CHECK(cudaGraphLaunch(graphs->graphs[rank], stream) == cudaSuccess);
    CHECK(graphs_value(graphs, rank) == (float)(GRAPH_RANKS * GRAPH_RANKS));
}

bool graphs_make(struct graphs *graphs)
{
    *graphs = (struct graphs){.handle = NULL};
    if (!team_create(&graphs->team, "nccl", GRAPH_RANKS, NULL) ||
        !CHECK_OK(trib_comm_abort_handle(&graphs->handle, graphs->team.comms[0])))
        return false;
    check_ranks(GRAPH_RANKS, capture_rank, graphs);
    return true;
}

void graphs_destroy_one(struct graphs *graphs, int rank)
{
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(graphs->graphs[rank]) == cudaSuccess);
}

void graphs_end(struct graphs *graphs)
{
    for (int rank = 0; rank < GRAPH_RANKS; rank++)
        CHECK_OK(trib_device_free(graphs->team.devices[rank], graphs->data[rank]));
    trib_abort_release(graphs->handle);
    team_destroy(&graphs->team);
}

void graphs_become(const struct graphs *graphs, trib_comm_state wanted, const char *begin, int ms)
{
    char text[TEXT] = "";
    trib_comm_state state = -1;
    const double limit = check_now_ms() + ms;
    do {
        check_sleep_ms(1);
        CHECK_OK(trib_abort_state(&state, text, sizeof text, graphs->handle));
    } while ((state != wanted || strncmp(text, begin, strlen(begin)) != 0) &&
             check_now_ms() < limit);
    CHECK_MSG(state == wanted && strncmp(text, begin, strlen(begin)) == 0,
              "after %d ms the state is %d (\"%s\"), expected %d (\"%s\")", ms, (int)state, text,
              (int)wanted, begin);
}
