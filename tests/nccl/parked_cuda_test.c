/* Communicators that end while CUDA graphs with their calls live: nothing waits for the graphs but
 * the release of the communicator, and its state says so. Needs 2 GPUs. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "tests/check.h"
#include "tests/team.h"

enum { RANKS = 2, ELEMENTS = 1000, BOUND_MS = 15000, SOON_MS = 2000, TEXT = 128 };

struct graphs {
    struct team team;
    trib_abort *handle;
    void *data[RANKS];
    cudaGraphExec_t graphs[RANKS];
    _Atomic int captured;
};

static float value(struct graphs *graphs, int rank)
{
    float first = 0;
    CHECK_OK(trib_device_copy(graphs->team.devices[rank], &first, graphs->data[rank], sizeof first,
                              graphs->team.streams[rank]));
    CHECK_OK(trib_stream_wait(graphs->team.devices[rank], graphs->team.streams[rank]));
    return first;
}

static trib_status sum(struct graphs *graphs, int rank)
{
    return trib_allreduce(graphs->team.comms[rank], graphs->data[rank], graphs->data[rank],
                          ELEMENTS, TRIB_F32, TRIB_SUM, graphs->team.streams[rank]);
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
    CHECK_OK(trib_device_alloc(&graphs->data[rank], team->devices[rank], ELEMENTS * sizeof(float)));
    CHECK(cudaMemsetAsync(graphs->data[rank], 0, ELEMENTS * sizeof(float), stream) == cudaSuccess);
    CHECK_OK(sum(graphs, rank)); /* connects */
    CHECK_OK(trib_device_copy(team->devices[rank], graphs->data[rank], &one, sizeof one, stream));
    CHECK_OK(trib_stream_wait(team->devices[rank], stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK_OK(sum(graphs, rank));
    CHECK_OK(sum(graphs, rank));
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&graphs->graphs[rank], graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    team_barrier(&graphs->captured, size);
    CHECK(cudaGraphLaunch(graphs->graphs[rank], stream) == cudaSuccess);
    CHECK(value(graphs, rank) == (float)(RANKS * RANKS));
}

static bool make(struct graphs *graphs)
{
    *graphs = (struct graphs){.handle = NULL};
    if (!team_create(&graphs->team, "nccl", RANKS, NULL) ||
        !CHECK_OK(trib_comm_abort_handle(&graphs->handle, graphs->team.comms[0])))
        return false;
    check_ranks(RANKS, capture_rank, graphs);
    return true;
}

static void destroy_graph(struct graphs *graphs, int rank)
{
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(graphs->graphs[rank]) == cudaSuccess);
}

static void end(struct graphs *graphs)
{
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_OK(trib_device_free(graphs->team.devices[rank], graphs->data[rank]));
    trib_abort_release(graphs->handle);
    team_destroy(&graphs->team);
}

/* The state becomes `wanted`, and what it waits for begins with `begin`. */
static void becomes(const struct graphs *graphs, trib_comm_state wanted, const char *begin, int ms)
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

static void add_up(int rank, int size, void *argument)
{
    struct graphs *graphs = argument;
    (void)size;
    CHECK_OK(sum(graphs, rank));
    CHECK(value(graphs, rank) == (float)(RANKS * RANKS * RANKS));
}

/* Parked until the last graph is gone. The next communicator on the same devices does not wait. */
static void aborted(void)
{
    struct graphs graphs;
    check_begin("an abort while CUDA graphs live");
    if (make(&graphs)) {
        CHECK_OK(trib_abort_raise(graphs.handle, "with graphs"));
        becomes(&graphs, TRIB_COMM_PARKED, "2 live CUDA graphs that captured its calls, for ",
                SOON_MS);
        team_close(&graphs.team);
        CHECK_STATUS(trib_quiesce(50), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("2 live CUDA graphs");
        if (CHECK(team_open(&graphs.team, NULL)))
            check_ranks(RANKS, add_up, &graphs);
        team_close(&graphs.team);
        destroy_graph(&graphs, 1);
        becomes(&graphs, TRIB_COMM_PARKED, "1 live CUDA graph that captured its calls, for ",
                SOON_MS);
        destroy_graph(&graphs, 0);
        becomes(&graphs, TRIB_COMM_RECLAIMED, "", BOUND_MS);
        end(&graphs);
    }
    CHECK_OK(trib_quiesce(BOUND_MS));
    check_end();
}

/* A close gives up at its deadline, and says why. */
static void closed(void)
{
    struct graphs graphs;
    check_begin("a close while CUDA graphs live");
    if (make(&graphs)) {
        CHECK_OK(trib_comm_close(graphs.team.comms[0], 300));
        CHECK_STATUS(trib_comm_close(graphs.team.comms[1], 300), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("CUDA graphs that captured calls of the communicator of 2 ranks");
        becomes(&graphs, TRIB_COMM_PARKED, "2 live CUDA graphs that captured its calls, for ",
                SOON_MS);
        for (int rank = 0; rank < RANKS; rank++)
            destroy_graph(&graphs, rank);
        becomes(&graphs, TRIB_COMM_RECLAIMED, "", BOUND_MS);
        end(&graphs);
    }
    CHECK_OK(trib_quiesce(BOUND_MS));
    check_end();
}

/* Graphs that are gone do not count. */
static void in_good_order(void)
{
    struct graphs graphs;
    check_begin("a close after the CUDA graphs are destroyed");
    if (make(&graphs)) {
        for (int rank = 0; rank < RANKS; rank++)
            destroy_graph(&graphs, rank);
        team_close(&graphs.team);
        becomes(&graphs, TRIB_COMM_RECLAIMED, "", BOUND_MS);
        CHECK_OK(trib_abort_status(graphs.handle));
        end(&graphs);
    }
    check_end();
}

int main(void)
{
    if (team_limit("nccl") < RANKS) {
        check_skip("ranks with graphs need 2 GPUs: there are %d", team_limit("nccl"));
        return check_finish("parked_cuda_test");
    }
    aborted();
    closed();
    in_good_order();
    return check_finish("parked_cuda_test");
}
