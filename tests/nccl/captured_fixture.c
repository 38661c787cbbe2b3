/* One rank whose calls graphs capture. */
#include "tests/nccl/captured_fixture.h"

#include <math.h>
#include <stdlib.h>

float captured_input(int rank, size_t round, size_t i)
{
    return (float)(1 + round % 7 + 2 * (size_t)rank + i % 17);
}

float captured_weight(int rank)
{
    return (float)(rank + 1);
}

void captured_move(struct captured *self, void *to, const void *from, size_t floats)
{
    CHECK_OK(trib_device_copy(self->device, to, from, floats * sizeof(float), self->stream));
}

void captured_settle(struct captured *self)
{
    CHECK_OK(trib_stream_wait(self->device, self->stream));
}

void captured_put(struct captured *self, const trib_tensor *tensors, size_t round)
{
    for (size_t i = 0; i < N; i++)
        self->host[i] = captured_input(self->rank, round, i);
    captured_move(self, tensors[0].data, self->host, CUT);
    captured_move(self, tensors[1].data, self->host + CUT, N - CUT);
}

bool captured_holds(struct captured *self, const trib_tensor *tensors, size_t round,
                    const char *how,
                    double (*expected)(const struct captured *self, size_t round, size_t i))
{
    captured_move(self, self->host, tensors[0].data, CUT);
    captured_move(self, self->host + CUT, tensors[1].data, N - CUT);
    captured_settle(self);
    /* All are small integers, or halves of them, but what is divided by a sum of weights. */
    const double slack = expected == captured_weighted ? 1e-5 : 0;
    for (size_t i = 0; i < N; i++) {
        const double wanted = expected(self, round, i);
        if (!(fabs((double)self->host[i] - wanted) <= slack * fabs(wanted)))
            return CHECK_MSG(false, "%s, rank %d, round %zu, element %zu: %g, not %g", how,
                             self->rank, round, i, (double)self->host[i], wanted);
    }
    return true;
}

double captured_untouched(const struct captured *self, size_t round, size_t i)
{
    return (double)captured_input(self->rank, round, i);
}

static float *allocate(struct captured *self, size_t floats)
{
    void *data = NULL;
    CHECK_OK(trib_device_alloc(&data, self->device, floats * sizeof(float)));
    return data;
}

void captured_open(struct captured *self, const struct cast *cast, int rank)
{
    *self = (struct captured){.kind = cast->kind,
                              .team = &cast->team,
                              .rank = rank,
                              .size = cast->team.size,
                              .device = cast->team.devices[rank],
                              .comm = cast->team.comms[rank],
                              .stream = cast->team.streams[rank],
                              .host = calloc(N, sizeof(float))};
    const float weight = captured_weight(rank);
    if (self->host == NULL)
        abort();
    CHECK(cudaSetDevice(trib_device_ordinal(self->device)) == cudaSuccess);
    CHECK_OK(trib_stream_create(&self->beside, self->device));
    CHECK_OK(trib_event_create(&self->fork, self->device));
    self->data = allocate(self, N);
    self->other = allocate(self, N);
    self->word = allocate(self, 1);
    captured_move(self, self->word, &weight, 1);
    captured_settle(self);
    float *const of[2] = {self->data, self->other};
    for (int i = 0; i < 2; i++) {
        trib_tensor *tensors = i == 0 ? self->tensors : self->others;
        tensors[0] = (trib_tensor){of[i], CUT, TRIB_F32, 0};
        tensors[1] = (trib_tensor){of[i] + CUT, N - CUT, TRIB_F32, 0};
    }
    if (self->kind != NULL && self->kind->make != NULL)
        self->kind->make(self);
}

void captured_close(struct captured *self)
{
    CHECK_OK(trib_reducer_destroy(self->reducer));
    CHECK_OK(trib_comm_destroy(self->second));
    CHECK_OK(trib_device_free(self->device, self->data));
    CHECK_OK(trib_device_free(self->device, self->other));
    CHECK_OK(trib_device_free(self->device, self->word));
    CHECK_OK(trib_event_destroy(self->device, self->fork));
    CHECK_OK(trib_stream_destroy(self->device, self->beside));
    free(self->host);
}

void captured_begin(trib_stream stream)
{
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
}

cudaGraph_t captured_take(trib_stream stream)
{
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(graph != NULL);
    return graph;
}

cudaGraphExec_t captured_make(cudaGraph_t graph)
{
    cudaGraphExec_t replay = NULL;
    if (graph == NULL)
        return NULL;
    CHECK(cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    return replay;
}

cudaGraphExec_t captured_end(trib_stream stream)
{
    return captured_make(captured_take(stream));
}

bool captured_launch(struct captured *self)
{
    return CHECK(self->replay != NULL) &&
           CHECK(cudaGraphLaunch(self->replay, self->stream) == cudaSuccess);
}

void captured_drop(struct captured *self)
{
    if (self->replay != NULL)
        CHECK(cudaGraphExecDestroy(self->replay) == cudaSuccess);
    self->replay = NULL;
}

uint64_t captured_lists(struct captured *self)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, self->comm));
    return counters.lists_committed;
}

double captured_sum(const struct captured *self, size_t round, size_t i)
{
    double sum = 0;
    for (int rank = 0; rank < self->size; rank++)
        sum += (double)captured_input(rank, round, i);
    return sum;
}

double captured_last(const struct captured *self, size_t round, size_t i)
{
    return (double)captured_input(self->size - 1, round, i);
}

double captured_average(const struct captured *self, size_t round, size_t i)
{
    return captured_sum(self, round, i) / self->size;
}

double captured_weighted(const struct captured *self, size_t round, size_t i)
{
    double sum = 0, weights = 0;
    for (int rank = 0; rank < self->size; rank++) {
        sum += (double)captured_weight(rank) * (double)captured_input(rank, round, i);
        weights += (double)captured_weight(rank);
    }
    return sum / weights;
}

bool captured_call(struct captured *self, size_t round)
{
    captured_put(self, self->tensors, round);
    return CHECK_OK(self->kind->queue(self, self->tensors, self->stream)) &&
           captured_holds(self, self->tensors, round, "eager", self->kind->expected);
}

bool captured_replay(struct captured *self, size_t round)
{
    captured_put(self, self->tensors, round);
    return captured_launch(self) &&
           captured_holds(self, self->tensors, round, "replayed", self->kind->expected);
}

static void end(trib_comm *comm)
{
    trib_abort *handle = NULL;
    if (comm == NULL || !CHECK_OK(trib_comm_abort_handle(&handle, comm)))
        return;
    (void)trib_abort_raise(handle, "a test failed on one rank");
    trib_abort_release(handle);
}

void captured_give_up(struct captured *self)
{
    end(self->comm);
    end(self->second);
}

void captured_run(int size, const struct kind *kind, const char *name, uint32_t flags,
                  void (*body)(int rank, int size, void *argument))
{
    struct cast *cast = calloc(1, sizeof *cast);
    trib_options options = TRIB_OPTIONS_INIT;
    if (cast == NULL)
        abort();
    cast->kind = kind;
    options.flags = flags;
    check_begin("%d rank%s: %s in a graph", size, size == 1 ? "" : "s", name);
    if (team_create(&cast->team, "nccl", size, &options)) {
        check_ranks(size, body, cast);
        team_destroy(&cast->team);
        CHECK_OK(trib_quiesce(PLENTY_MS));
    }
    check_end();
    free(cast);
}
