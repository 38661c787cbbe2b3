/* CUDA graphs: one call of each algorithm that does not wait is captured and replayed 1,000 times with other
 * gradients. Each replay must do what a call does; a call that is made afterwards, too. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/reference.h"
#include "tests/conformance/sparse/reference.h"
#include "tests/conformance/sparse/sparse.h"

enum { COUNT = 1000, CHUNK = 256, BEFORE = 2, REPLAYS = 1000, CALLS = BEFORE + REPLAYS + 1 };

struct captured {
    struct team team;
    const char *algorithm;
    bool in_place;
    double momentum;
    struct sparse_reference reference;
    double
        *velocity[TEAM_MAX]; /* with momentum: of the reference; in place as the next call has it */
    float *results[TEAM_MAX]; /* CALLS * COUNT */
    float *left[TEAM_MAX];    /* in place: accumulator or velocity after each call */
    _Atomic int arrived;
};

static void *need(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

static double gradient(int rank, int size, size_t call, size_t index)
{
    return sparse_input(SPARSE_SPREAD, 11, call, rank, size, index, COUNT);
}

/* Bring the gradient of this call to the device; in place, onto what the last one left. */
static void bring(const struct captured *captured, int rank, size_t call, float *host, void *data)
{
    for (size_t i = 0; i < COUNT; i++)
        host[i] =
            (float)gradient(rank, captured->team.size, call, i) +
            (captured->in_place && call > 0 ? captured->left[rank][(call - 1) * COUNT + i] : 0);
    CHECK(cudaMemcpyAsync(data, host, COUNT * sizeof *host, cudaMemcpyHostToDevice,
                          captured->team.streams[rank]) == cudaSuccess);
}

static void take(struct captured *captured, int rank, size_t call, const void *data,
                 const void *result)
{
    const size_t bytes = COUNT * sizeof(float);
    cudaStream_t stream = captured->team.streams[rank];
    CHECK(cudaMemcpyAsync(captured->results[rank] + call * COUNT, result, bytes,
                          cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(captured->left[rank] + call * COUNT, data, bytes, cudaMemcpyDeviceToHost,
                          stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

/* One rank's state and buffers. */
struct replayed {
    trib_device *device;
    cudaStream_t stream;
    trib_sparse *state;
    float *host;
    void *data, *result; /* device */
    cudaGraph_t graph;
    cudaGraphExec_t replay;
};

static void open_rank(struct replayed *self, struct captured *captured, int rank)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = captured->algorithm;
    options.density = 0.01;
    options.chunk = CHUNK;
    options.momentum = captured->momentum;
    options.flags = captured->in_place ? TRIB_SPARSE_IN_PLACE : 0;
    CHECK(cudaSetDevice(trib_device_ordinal(self->device)) == cudaSuccess);
    CHECK_OK(trib_device_alloc(&self->data, self->device, COUNT * sizeof(float)));
    CHECK_OK(trib_device_alloc(&self->result, self->device, COUNT * sizeof(float)));
    CHECK_OK(
        trib_sparse_create(&self->state, captured->team.comms[rank], COUNT, TRIB_F32, &options));
}

static void close_rank(struct replayed *self)
{
    if (self->replay != NULL)
        CHECK(cudaGraphExecDestroy(self->replay) == cudaSuccess);
    if (self->graph != NULL)
        CHECK(cudaGraphDestroy(self->graph) == cudaSuccess);
    CHECK_OK(trib_sparse_destroy(self->state));
    CHECK_OK(trib_device_free(self->device, self->data));
    CHECK_OK(trib_device_free(self->device, self->result));
    free(self->host);
}

static void call_directly(struct replayed *self, struct captured *captured, int rank, size_t call)
{
    bring(captured, rank, call, self->host, self->data);
    CHECK_OK(trib_sparse_allreduce(self->state, self->data, self->result, self->stream));
    take(captured, rank, call, self->data, self->result);
}

/* Captures one call, and launches it for each of REPLAYS. */
static void call_by_graph(struct replayed *self, struct captured *captured, int rank)
{
    CHECK(cudaStreamBeginCapture(self->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK_OK(trib_sparse_allreduce(self->state, self->data, self->result, self->stream));
    CHECK(cudaStreamEndCapture(self->stream, &self->graph) == cudaSuccess);
    if (CHECK(self->graph != NULL) &&
        CHECK(cudaGraphInstantiate(&self->replay, self->graph, 0) == cudaSuccess))
        for (size_t call = BEFORE; call < BEFORE + REPLAYS; call++) {
            bring(captured, rank, call, self->host, self->data);
            CHECK(cudaGraphLaunch(self->replay, self->stream) == cudaSuccess);
            take(captured, rank, call, self->data, self->result);
        }
}

static void graph_rank(int rank, int size, void *argument)
{
    struct captured *captured = argument;
    struct replayed self = {.device = captured->team.devices[rank],
                            .stream = captured->team.streams[rank],
                            .host = need(COUNT, sizeof(float))};
    trib_sparse_statistics found = TRIB_SPARSE_STATISTICS_INIT;
    open_rank(&self, captured, rank);
    for (size_t call = 0; call < BEFORE; call++)
        call_directly(&self, captured, rank, call);
    team_barrier(&captured->arrived, size);
    call_by_graph(&self, captured, rank);
    call_directly(&self, captured, rank, CALLS - 1);
    CHECK_OK(trib_sparse_status(self.state));
    CHECK_OK(trib_sparse_statistics_get(&found, self.state));
    CHECK_MSG(found.calls == CALLS && found.calls_applied == CALLS, "%llu calls, %llu applied",
              (unsigned long long)found.calls, (unsigned long long)found.calls_applied);
    close_rank(&self);
}

/* Rounded once, as a float is: both are floats. */
static double sum(double a, double b)
{
    return (double)(float)(a + b);
}

/* The gradient becomes the velocity, which is added to the residual. In place the call before has
 * multiplied the velocity. Momentum is a power of two: no product is rounded. */
static void push(struct captured *captured, int rank, size_t call)
{
    struct sparse_reference *reference = &captured->reference;
    const double factor = captured->in_place ? 1 : captured->momentum;
    double *velocity = captured->velocity[rank];
    for (size_t i = 0; i < COUNT; i++) {
        velocity[i] = sum(gradient(rank, reference->size, call, i), factor * velocity[i]);
        reference->acc[rank][i] = sum(velocity[i], reference->residual[rank][i]);
    }
}

/* Masks what was applied, unless all is. */
static void mask(struct captured *captured, int rank)
{
    const struct sparse_reference *reference = &captured->reference;
    const bool masks = strcmp(captured->algorithm, "dense") != 0;
    const double factor = captured->in_place ? captured->momentum : 1;
    for (size_t i = 0; i < COUNT; i++) {
        const bool gone = masks && reference->picked[rank][i] && reference->support[i];
        captured->velocity[rank][i] *= gone ? 0 : factor;
    }
}

static bool as_defined(const struct captured *captured, int rank, size_t call)
{
    const struct sparse_reference *reference = &captured->reference;
    const float *result = captured->results[rank] + call * COUNT,
                *left = captured->left[rank] + call * COUNT;
    const double *wanted =
        captured->momentum != 0 ? captured->velocity[rank] : reference->residual[rank];
    for (size_t i = 0; i < COUNT; i++)
        if (!CHECK_MSG(result[i] == reference->sum[i], "call %zu, rank %d, element %zu: %g, not %g",
                       call, rank, i, (double)result[i], reference->sum[i]) ||
            (captured->in_place &&
             !CHECK_MSG(left[i] == wanted[i], "call %zu, rank %d, element %zu: %g is left, not %g",
                        call, rank, i, (double)left[i], wanted[i])))
            return false;
    return true;
}

static void create_reference(struct captured *captured)
{
    struct sparse_reference *reference = &captured->reference;
    *reference = (struct sparse_reference){.algorithm = captured->algorithm,
                                           .size = captured->team.size,
                                           .count = COUNT,
                                           .k = COUNT / 100,
                                           .chunk = CHUNK,
                                           .acc_dtype = TRIB_F32,
                                           .wire = TRIB_F32};
    sparse_reference_create(reference);
    for (int rank = 0; rank < reference->size; rank++) {
        reference->acc[rank] = need(COUNT, sizeof(double));
        captured->velocity[rank] = need(COUNT, sizeof(double));
    }
}

/* The calls, one after the other, as they are defined. */
static void judge(struct captured *captured)
{
    struct sparse_reference *reference = &captured->reference;
    const bool shared = strcmp(captured->algorithm, "shared") == 0;
    bool good = true;
    create_reference(captured);
    for (size_t call = 0; good && call < CALLS; call++) {
        for (int rank = 0; rank < reference->size; rank++)
            push(captured, rank, call);
        /* A graph keeps the leader of the call that was captured; the next call is the next
         * one's. */
        if (shared && call >= BEFORE)
            reference->step = call < CALLS - 1 ? BEFORE : BEFORE + 1;
        good = CHECK(sparse_reference_step(reference));
        for (int rank = 0; good && rank < reference->size; rank++) {
            mask(captured, rank);
            good = as_defined(captured, rank, call);
        }
    }
}

static void graphs(struct team *team, const char *algorithm, bool in_place, double momentum)
{
    struct captured *captured = need(1, sizeof *captured);
    captured->team = *team;
    captured->algorithm = algorithm;
    captured->in_place = in_place;
    captured->momentum = momentum;
    for (int rank = 0; rank < team->size; rank++) {
        captured->results[rank] = need(CALLS * COUNT, sizeof(float));
        captured->left[rank] = need(CALLS * COUNT, sizeof(float));
    }
    check_begin("%d ranks: %s%s%s in a graph", team->size, algorithm, in_place ? ", in place" : "",
                momentum != 0 ? ", momentum" : "");
    check_ranks(team->size, graph_rank, captured);
    judge(captured);
    check_end();
    sparse_reference_destroy(&captured->reference);
    for (int rank = 0; rank < team->size; rank++) {
        free(captured->reference.acc[rank]);
        free(captured->velocity[rank]);
        free(captured->results[rank]);
        free(captured->left[rank]);
    }
    free(captured);
}

/* An algorithm that waits cannot be captured: the call says so, and the stream's capture goes
 * on. */
static void refused_rank(int rank, int size, void *argument)
{
    struct captured *captured = argument;
    trib_device *device = captured->team.devices[rank];
    cudaStream_t stream = captured->team.streams[rank];
    trib_sparse *state = NULL;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    cudaGraph_t graph = NULL;
    void *data = NULL, *result = NULL;
    options.algorithm = captured->algorithm;
    CHECK(cudaSetDevice(trib_device_ordinal(device)) == cudaSuccess);
    CHECK_OK(trib_device_alloc(&data, device, COUNT * sizeof(float)));
    CHECK_OK(trib_device_alloc(&result, device, COUNT * sizeof(float)));
    CHECK(cudaMemset(data, 0, COUNT * sizeof(float)) == cudaSuccess);
    CHECK_OK(trib_sparse_create(&state, captured->team.comms[rank], COUNT, TRIB_F32, &options));
    team_barrier(&captured->arrived, size);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(trib_sparse_allreduce(state, data, result, stream) != TRIB_OK);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    if (graph != NULL)
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK_OK(trib_sparse_allreduce(state, data, result, stream));
    CHECK_OK(trib_stream_wait(device, stream));
    CHECK_OK(trib_sparse_status(state));
    CHECK_OK(trib_sparse_destroy(state));
    CHECK_OK(trib_device_free(device, data));
    CHECK_OK(trib_device_free(device, result));
}

static void refusals(struct team *team, const char *algorithm)
{
    struct captured *captured = need(1, sizeof *captured);
    captured->team = *team;
    captured->algorithm = algorithm;
    check_begin("%d ranks: %s refuses to be captured", team->size, algorithm);
    check_ranks(team->size, refused_rank, captured);
    check_end();
    free(captured);
}

/* With momentum all bits of a float come into use, and NCCL adds up more than two in an order of its
 * own. */
static bool in_rank_order(const char *algorithm, int size)
{
    const bool allreduced = strcmp(algorithm, "dense") == 0 || strcmp(algorithm, "shared") == 0;
    return size <= 2 || !allreduced;
}

static void of_size(int size)
{
    static const char *const fixed[] = {"dense", "topka",  "topka2",  "gtopk",
                                        "srs",   "shared", "chunked", "hier"};
    static const char *const waiting[] = {"topkaopt",  "topksa",          "oktopk",
                                          "gaussiank", "gaussiankconcat", "gaussianksa"};
    struct team team;
    if (team_create(&team, "nccl", size, NULL)) {
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
            for (int in_place = 0; in_place < 2; in_place++) {
                graphs(&team, fixed[i], in_place == 1, 0);
                if (in_rank_order(fixed[i], size))
                    graphs(&team, fixed[i], in_place == 1, 0.5);
            }
        for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
            refusals(&team, waiting[i]);
    }
    team_destroy(&team);
}

int main(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        check_skip("there is no GPU");
        return check_finish("sparse_graph_cuda_test");
    }
    for (int size = 1; size <= devices && size <= 4; size++)
        of_size(size);
    return check_finish("sparse_graph_cuda_test");
}
