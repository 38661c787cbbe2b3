/* The scenarios that need CUDA itself: captures, graphs, a device that fails, the caller's current
 * device. */
#include <cuda_runtime_api.h>
#include <stdatomic.h>

#include "tests/nccl/graphs.h"
#include "tests/scenarios/scenario.h"

enum { SOON_MS = 3000, SETTLE_MS = 50, WARM = SCENARIO_WARM_MS, COLD = SCENARIO_COLD_MS };

static const char two_graphs[] = "2 live CUDA graphs that captured its calls, for ";

static long used_kb(int device)
{
    size_t unused = 0, all = 0;
    int current = 0;
    CHECK(cudaGetDevice(&current) == cudaSuccess && cudaSetDevice(device) == cudaSuccess);
    CHECK(cudaMemGetInfo(&unused, &all) == cudaSuccess);
    CHECK(cudaSetDevice(current) == cudaSuccess);
    return (long)((all - unused) >> 10);
}

/* ----------------------------------------------------------------------------- graphs that live */

static double abort_graphs(struct graphs *graphs)
{
    const double raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(graphs->handle, "with graphs"));
    return raised_at;
}

static void freed(struct graphs *graphs, const struct faults *faults, double raised_at)
{
    for (int rank = 0; rank < GRAPH_RANKS; rank++)
        team_wait(&graphs->team, rank, faults->bound_ms);
    faults_returned(faults, check_now_ms() - raised_at);
    faults_all_aborted(&graphs->team, "with graphs");
}

static void destroy_graphs(struct graphs *graphs, const struct faults *faults)
{
    for (int rank = 0; rank < GRAPH_RANKS; rank++)
        graphs_destroy_one(graphs, rank);
    graphs_become(graphs, TRIB_COMM_RECLAIMED, "", faults->bound_ms);
}

/* Parked: the communicator waits for its graphs, nobody else does. */
static void live_graphs(const struct faults *faults)
{
    struct graphs graphs;
    check_begin("nccl: abort with live graphs");
    if (graphs_make(&graphs)) {
        freed(&graphs, faults, abort_graphs(&graphs));
        graphs_become(&graphs, TRIB_COMM_PARKED, two_graphs, SOON_MS);
        team_close(&graphs.team);
        destroy_graphs(&graphs, faults);
        graphs_end(&graphs);
    }
    check_end();
}

/* Rank 0 replays alone. */
static void stuck_replay(const struct faults *faults)
{
    struct graphs graphs;
    int32_t done = 1;
    check_begin("nccl: a stuck replay of a graph");
    if (graphs_make(&graphs)) {
        const struct team *team = &graphs.team;
        CHECK(cudaSetDevice(0) == cudaSuccess);
        CHECK(cudaGraphLaunch(graphs.graphs[0], team->streams[0]) == cudaSuccess);
        check_sleep_ms(SETTLE_MS);
        CHECK_OK(trib_stream_query(&done, team->devices[0], team->streams[0]));
        CHECK(!done);
        freed(&graphs, faults, abort_graphs(&graphs));
        graphs_become(&graphs, TRIB_COMM_PARKED, two_graphs, SOON_MS);
        team_close(&graphs.team);
        destroy_graphs(&graphs, faults);
        graphs_end(&graphs);
    }
    check_end();
}

/* Everything but the graphs is gone before them. */
static void graph_after_all(const struct faults *faults)
{
    struct graphs graphs;
    check_begin("nccl: a graph destroyed after its communicator");
    if (graphs_make(&graphs)) {
        freed(&graphs, faults, abort_graphs(&graphs));
        team_close(&graphs.team);
        CHECK_STATUS(trib_quiesce(SETTLE_MS), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("2 live CUDA graphs");
        destroy_graphs(&graphs, faults);
        CHECK_OK(trib_quiesce((uint32_t)faults->bound_ms));
        graphs_end(&graphs);
    }
    check_end();
}

/* ----------------------------------------------------------------------------- during a capture */

struct capture {
    struct team team;
    const struct faults *faults;
    trib_abort *handle;
    struct fault_data data[TEAM_MAX];
    _Atomic int captured, raised;
    double raised_at;
};

static trib_status capture_sum(struct capture *capture, int rank)
{
    void *data = fault_data_at(&capture->data[rank]);
    return trib_allreduce(capture->team.comms[rank], data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_SUM,
                          capture->team.streams[rank]);
}

/* One call in the capture before the abort, one after it, which is refused. The capture ends, well
 * or not, and its stream works. */
static void capture_rank(struct capture *capture, int rank)
{
    const struct team *team = &capture->team;
    cudaGraph_t graph = NULL;
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(team->streams[rank], cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
    CHECK_OK(capture_sum(capture, rank));
    atomic_fetch_add(&capture->captured, 1);
    while (!atomic_load(&capture->raised))
        check_sleep_ms(0);
    CHECK_STATUS(capture_sum(capture, rank), TRIB_ERR_ABORTED);
    CHECK_DETAIL("during a capture");
    const cudaError_t ended = cudaStreamEndCapture(team->streams[rank], &graph);
    faults_returned(capture->faults, check_now_ms() - capture->raised_at);
    CHECK(ended == cudaSuccess || ended == cudaErrorStreamCaptureInvalidated);
    if (graph != NULL)
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    (void)cudaGetLastError();
    CHECK(fault_data_is(&capture->data[rank], team, rank, false, "what no graph has run on"));
}

static void capture_member(int index, int size, void *argument)
{
    struct capture *capture = argument;
    if (index < size - 1) {
        capture_rank(capture, index);
        return;
    }
    while (atomic_load(&capture->captured) < size - 1)
        check_sleep_ms(0);
    capture->raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(capture->handle, "during a capture"));
    atomic_store(&capture->raised, 1);
}

static void during_capture(const struct faults *faults)
{
    struct capture capture = {.faults = faults};
    check_begin("nccl: abort during stream capture");
    if (faults_team(&capture.team, faults, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&capture.handle, capture.team.comms[0]))) {
        for (int rank = 0; rank < faults->size; rank++)
            if (fault_data_create(&capture.data[rank], &capture.team, rank))
                fault_data_put(&capture.data[rank], &capture.team, rank);
        check_ranks(faults->size + 1, capture_member, &capture);
        for (int rank = 0; rank < faults->size; rank++)
            fault_data_destroy(&capture.data[rank]);
        trib_abort_release(capture.handle);
    }
    team_destroy(&capture.team);
    CHECK_OK(trib_quiesce((uint32_t)faults->bound_ms));
    check_end();
}

/* -------------------------------------------------------------------------- a device that fails */

struct failing {
    struct team team;
    const struct faults *faults;
    struct fault_data data[TEAM_MAX];
    _Atomic int raised;
    double raised_at;
};

/* Until the stream is free, or has failed with its device: NCCL's kernels write to each other's
 * buffers, so the fault of one may reach others. */
static void wait_for_end(const struct team *team, int rank, int ms)
{
    const double end = check_now_ms() + ms;
    int32_t done = 0;
    while (done == 0 && CHECK_MSG(check_now_ms() < end, "rank %d is not free", rank)) {
        const trib_status status =
            trib_stream_query(&done, team->devices[rank], team->streams[rank]);
        if (status != TRIB_OK) {
            CHECK_STATUS(status, TRIB_ERR_CUDA);
            scenario_says("rank %d: %.150s", rank, trib_last_detail());
            return;
        }
        check_sleep_ms(1);
    }
}

/* Rank 0 passes an address at which nothing is: the kernel that reads it faults, for good. It sees
 * the error where it waits, and aborts for the others. */
static void failing_rank(int rank, int size, void *argument)
{
    struct failing *failing = argument;
    const struct team *team = &failing->team;
    const uintptr_t nowhere = 0x1000;
    void *data = rank == 0 ? (void *)nowhere : fault_data_at(&failing->data[rank]);
    (void)size;
    CHECK_OK(trib_allreduce(team->comms[rank], data, data, FAULT_ELEMENTS, TRIB_F32, TRIB_SUM,
                            team->streams[rank]));
    if (rank == 0) {
        CHECK_STATUS(trib_stream_wait(team->devices[0], team->streams[0]), TRIB_ERR_CUDA);
        failing->raised_at = check_now_ms();
        atomic_store(&failing->raised, 1);
        faults_abort(team, "the device has failed");
        return;
    }
    wait_for_end(team, rank, failing->faults->bound_ms);
    const double free_at = check_now_ms();
    while (!atomic_load(&failing->raised)) /* the library may have noticed first */
        check_sleep_ms(1);
    faults_returned(failing->faults,
                    free_at > failing->raised_at ? free_at - failing->raised_at : 0);
    const trib_status status = trib_comm_status(team->comms[rank]);
    CHECK_MSG(status == TRIB_ERR_ABORTED || status == TRIB_ERR_CUDA, "rank %d is %s: %s", rank,
              trib_status_name(status), trib_last_detail());
}

/* The process can do no more than end, and does. */
static void sticky_error(const struct faults *faults)
{
    static struct failing failing;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_UNCHECKED;
    options.close_timeout_ms = SOON_MS;
    failing.faults = faults;
    check_begin("nccl: a sticky error of one device");
    if (faults_team(&failing.team, faults, &options)) {
        for (int rank = 1; rank < faults->size; rank++)
            CHECK(fault_data_create(&failing.data[rank], &failing.team, rank));
        check_ranks(faults->size, failing_rank, &failing);
        for (int rank = 0; rank < faults->size; rank++)
            (void)trib_comm_destroy(failing.team.comms[rank]);
        (void)trib_quiesce((uint32_t)faults->bound_ms);
    }
    scenario_leave();
}

/* --------------------------------------------------------------------------- the current device */

struct visitor {
    struct team team;
    const struct faults *faults;
    _Atomic int arrived;
};

static void still_on(int device, const char *after)
{
    int current = -1;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    CHECK_MSG(current == device, "the current device is %d after %s, not %d", current, after,
              device);
}

static void visitor_rank(int rank, int size, void *argument)
{
    struct visitor *visitor = argument;
    struct team *team = &visitor->team;
    const int elsewhere = (rank + 1) % size;
    trib_comm *made = NULL;
    trib_abort *handle = NULL;
    CHECK(cudaSetDevice(elsewhere) == cudaSuccess);
    CHECK_OK(trib_comm_abort_handle(&handle, team->comms[rank]));
    team_barrier(&visitor->arrived, size);
    const double raised_at = check_now_ms();
    CHECK_OK(trib_abort_raise(handle, "from a visitor"));
    trib_abort_release(handle);
    still_on(elsewhere, "the abort");
    CHECK_STATUS(trib_barrier(team->comms[rank], team->streams[rank]), TRIB_ERR_ABORTED);
    faults_returned(visitor->faults, check_now_ms() - raised_at);
    still_on(elsewhere, "a refused call");
    CHECK_OK(
        trib_comm_shrink(&made, team->comms[rank], NULL, 0, (uint32_t)visitor->faults->bound_ms));
    still_on(elsewhere, "trib_comm_shrink");
    CHECK_OK(trib_comm_destroy(team->comms[rank]));
    team->comms[rank] = made;
    still_on(elsewhere, "trib_comm_destroy");
}

static void current_device(const struct faults *faults)
{
    struct visitor visitor = {.faults = faults};
    check_begin("nccl: the caller's current device through an abort");
    if (faults_team(&visitor.team, faults, NULL)) {
        check_ranks(faults->size, visitor_rank, &visitor);
        faults_works(&visitor.team, "after a visitor's shrink");
    }
    team_destroy(&visitor.team);
    check_end();
}

void scenarios_cuda_begin(void)
{
    scenario_device_kb = used_kb;
}

const struct scenario scenarios_cuda[] = {
    {21, "abort during stream capture", during_capture, NULL, 0, WARM, NULL, 0},
    {22, "abort with live graphs", live_graphs, NULL, 0, WARM, NULL, 0},
    {23, "stuck replay of a graph", stuck_replay, NULL, 0, WARM, NULL, 0},
    {24, "graph destroyed after its communicator", graph_after_all, NULL, 0, WARM, NULL, 0},
    {30, "sticky error of a device", sticky_error, NULL, 0, COLD, NULL, SCENARIO_LEAVES},
    {32, "current device of the caller", current_device, NULL, 0, WARM, NULL, 0},
    {0},
};
