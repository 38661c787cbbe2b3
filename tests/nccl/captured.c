/* Calls that CUDA graphs capture. One thread a rank. */
#include "tests/nccl/captured.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/team.h"

enum { N = 1000, CUT = 300, REPLAYS = 1000, PERIOD = 97, TEXT = 128, PLENTY_MS = 20000 };

struct captured;

/* What one call, or several, do to the tensors. */
struct kind {
    const char *name;
    void (*make)(struct captured *self); /* may be NULL */
    trib_status (*queue)(struct captured *self, const trib_tensor *tensors, trib_stream stream);
    double (*expected)(const struct captured *self, size_t round, size_t i);
    uint64_t lists; /* that it queues */
    bool scaled;    /* with a factor, which the fake does not know */
    bool not_eager; /* of a reducer: none on other tensors */
};

/* One rank. */
struct captured {
    const struct kind *kind;
    const struct team *team;
    int rank, size;
    trib_device *device;
    trib_comm *comm;
    trib_stream stream, beside;
    float *data, *other, *word; /* device: N, N, and one */
    trib_tensor tensors[2], others[2];
    float *host;
    trib_reducer *reducer;
    trib_event fork;
    cudaGraphExec_t replay;
};

struct cast {
    const struct kind *kind;
    struct team team;
    _Atomic int met[8];
};

/* -------------------------------------------------------------------------------------- fixture */

static float input(int rank, size_t round, size_t i)
{
    return (float)(1 + round % 7 + 2 * (size_t)rank + i % 5);
}

static float weight_of(int rank)
{
    return (float)(rank + 1);
}

static void move(struct captured *self, void *to, const void *from, size_t floats)
{
    CHECK_OK(trib_device_copy(self->device, to, from, floats * sizeof(float), self->stream));
}

static void settle(struct captured *self)
{
    CHECK_OK(trib_stream_wait(self->device, self->stream));
}

static void put(struct captured *self, const trib_tensor *tensors, size_t round)
{
    for (size_t i = 0; i < N; i++)
        self->host[i] = input(self->rank, round, i);
    move(self, tensors[0].data, self->host, CUT);
    move(self, tensors[1].data, self->host + CUT, N - CUT);
}

static bool holds(struct captured *self, const trib_tensor *tensors, size_t round, const char *how,
                  double (*expected)(const struct captured *self, size_t round, size_t i))
{
    move(self, self->host, tensors[0].data, CUT);
    move(self, self->host + CUT, tensors[1].data, N - CUT);
    settle(self);
    for (size_t i = 0; i < N; i++) {
        const double wanted = expected(self, round, i);
        if (!(fabs((double)self->host[i] - wanted) <= 1e-5 * fabs(wanted)))
            return CHECK_MSG(false, "%s, rank %d, round %zu, element %zu: %g, not %g", how,
                             self->rank, round, i, (double)self->host[i], wanted);
    }
    return true;
}

static double untouched(const struct captured *self, size_t round, size_t i)
{
    return (double)input(self->rank, round, i);
}

static float *allocate(struct captured *self, size_t floats)
{
    void *data = NULL;
    CHECK_OK(trib_device_alloc(&data, self->device, floats * sizeof(float)));
    return data;
}

static void open_rank(struct captured *self, const struct cast *cast, int rank)
{
    *self = (struct captured){.kind = cast->kind,
                              .team = &cast->team,
                              .rank = rank,
                              .size = cast->team.size,
                              .device = cast->team.devices[rank],
                              .comm = cast->team.comms[rank],
                              .stream = cast->team.streams[rank],
                              .host = calloc(N, sizeof(float))};
    const float weight = weight_of(rank);
    if (self->host == NULL)
        abort();
    CHECK(cudaSetDevice(trib_device_ordinal(self->device)) == cudaSuccess);
    CHECK_OK(trib_stream_create(&self->beside, self->device));
    CHECK_OK(trib_event_create(&self->fork, self->device));
    self->data = allocate(self, N);
    self->other = allocate(self, N);
    self->word = allocate(self, 1);
    move(self, self->word, &weight, 1);
    settle(self);
    float *const of[2] = {self->data, self->other};
    for (int i = 0; i < 2; i++) {
        trib_tensor *tensors = i == 0 ? self->tensors : self->others;
        tensors[0] = (trib_tensor){of[i], CUT, TRIB_F32, 0};
        tensors[1] = (trib_tensor){of[i] + CUT, N - CUT, TRIB_F32, 0};
    }
    if (self->kind != NULL && self->kind->make != NULL)
        self->kind->make(self);
}

static void close_rank(struct captured *self)
{
    CHECK_OK(trib_reducer_destroy(self->reducer));
    CHECK_OK(trib_device_free(self->device, self->data));
    CHECK_OK(trib_device_free(self->device, self->other));
    CHECK_OK(trib_device_free(self->device, self->word));
    CHECK_OK(trib_event_destroy(self->device, self->fork));
    CHECK_OK(trib_stream_destroy(self->device, self->beside));
    free(self->host);
}

static void begin_capture(trib_stream stream)
{
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
}

/* Ends a good capture, of which only the executable graph stays. */
static cudaGraphExec_t end_capture(trib_stream stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t replay = NULL;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    if (!CHECK(graph != NULL))
        return NULL;
    CHECK(cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    return replay;
}

static bool launch(struct captured *self)
{
    return CHECK(self->replay != NULL) &&
           CHECK(cudaGraphLaunch(self->replay, self->stream) == cudaSuccess);
}

static void drop_replay(struct captured *self)
{
    if (self->replay != NULL)
        CHECK(cudaGraphExecDestroy(self->replay) == cudaSuccess);
    self->replay = NULL;
}

static uint64_t workspace_bytes(struct captured *self)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&memory, self->comm));
    return memory.workspace_bytes;
}

static uint64_t lists_committed(struct captured *self)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, self->comm));
    return counters.lists_committed;
}

/* CUDA tells of the graph's end on a thread of its own. */
static void check_freed(struct captured *self, uint64_t before)
{
    const double limit = check_now_ms() + PLENTY_MS;
    while (workspace_bytes(self) != before && check_now_ms() < limit)
        check_sleep_ms(1);
    CHECK_MSG(workspace_bytes(self) == before, "%llu bytes of workspace, not %llu",
              (unsigned long long)workspace_bytes(self), (unsigned long long)before);
}

/* ---------------------------------------------------------------------------------------- kinds */

static double sum_of(const struct captured *self, size_t round, size_t i)
{
    double sum = 0;
    for (int rank = 0; rank < self->size; rank++)
        sum += (double)input(rank, round, i);
    return sum;
}

static double average_of(const struct captured *self, size_t round, size_t i)
{
    return sum_of(self, round, i) / self->size;
}

static double weighted_of(const struct captured *self, size_t round, size_t i)
{
    double sum = 0, weights = 0;
    for (int rank = 0; rank < self->size; rank++) {
        sum += (double)weight_of(rank) * (double)input(rank, round, i);
        weights += (double)weight_of(rank);
    }
    return sum / weights;
}

static double scaled_of(const struct captured *self, size_t round, size_t i)
{
    double sum = 0;
    for (int rank = 0; rank < self->size; rank++)
        sum += (double)weight_of(rank) * (double)input(rank, round, i);
    return sum;
}

static double last_of(const struct captured *self, size_t round, size_t i)
{
    return (double)input(self->size - 1, round, i);
}

static double exchanged_of(const struct captured *self, size_t round, size_t i)
{
    const size_t block = N / (size_t)self->size;
    return (double)input((int)(i / block), round, (size_t)self->rank * block + i % block);
}

/* Two sums of sums are multiplied by the number of ranks. */
static double sum_in_sum_of(const struct captured *self, size_t round, size_t i)
{
    return self->size * sum_of(self, round, i);
}

static trib_status queue_sum(struct captured *self, const trib_tensor *tensors, trib_stream stream)
{
    return trib_allreduce(self->comm, tensors[0].data, tensors[0].data, N, TRIB_F32, TRIB_SUM,
                          stream);
}

static trib_status queue_list(struct captured *self, const trib_tensor *tensors, trib_stream stream)
{
    return trib_allreduce_list(self->comm, tensors, 2, TRIB_SUM, stream);
}

static trib_status queue_scaled(struct captured *self, const trib_tensor *tensors,
                                trib_stream stream)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = TRIB_CALL_FACTOR;
    options.device_factor = self->word;
    return trib_allreduce_list_with(self->comm, tensors, 2, TRIB_SUM, &options, stream);
}

static trib_status queue_broadcast(struct captured *self, const trib_tensor *tensors,
                                   trib_stream stream)
{
    return trib_broadcast_list(self->comm, tensors, 2, self->size - 1, stream);
}

static trib_status queue_average(struct captured *self, const trib_tensor *tensors,
                                 trib_stream stream)
{
    return trib_weighted_average(self->comm, tensors, 2, 0, self->word, NULL, stream);
}

static trib_status queue_exchange(struct captured *self, const trib_tensor *tensors,
                                  trib_stream stream)
{
    return trib_alltoall(self->comm, tensors[0].data, tensors[0].data, N / (size_t)self->size,
                         TRIB_F32, stream);
}

static trib_status queue_batch(struct captured *self, const trib_tensor *tensors,
                               trib_stream stream)
{
    CHECK_OK(trib_batch_begin(self->comm));
    CHECK_OK(trib_barrier(self->comm, stream));
    CHECK_OK(queue_exchange(self, tensors, stream));
    CHECK_OK(trib_barrier(self->comm, stream));
    return trib_batch_end(self->comm);
}

/* Lists one after the other in one graph: each has scratch of its own. */
static trib_status queue_lists(struct captured *self, const trib_tensor *tensors,
                               trib_stream stream)
{
    CHECK_OK(queue_list(self, tensors, stream));
    CHECK_OK(trib_barrier(self->comm, stream));
    CHECK_OK(trib_allreduce_list(self->comm, tensors, 1, TRIB_SUM, stream));
    return trib_allreduce_list(self->comm, tensors + 1, 1, TRIB_SUM, stream);
}

static void make_reducer_with(struct captured *self, uint32_t flags, const float *weight)
{
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = flags;
    options.bucket_bytes = options.first_bytes = 1; /* a bucket for each gradient */
    options.device_weight = weight;
    if (!CHECK_OK(trib_reducer_create(&self->reducer, self->comm, self->tensors, 2, &options)))
        return;
    for (size_t i = 0; i < 2 && (flags & TRIB_REDUCER_VIEWS) != 0; i++)
        CHECK_OK(trib_reducer_view(&self->tensors[i].data, self->reducer, i));
}

static void make_copies(struct captured *self)
{
    make_reducer_with(self, 0, NULL);
}

static void make_sums(struct captured *self)
{
    make_reducer_with(self, TRIB_REDUCER_SUM, NULL);
}

static void make_views(struct captured *self)
{
    make_reducer_with(self, TRIB_REDUCER_VIEWS, NULL);
}

static void make_twins(struct captured *self)
{
    make_reducer_with(self, TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS, NULL);
}

static void make_weighted(struct captured *self)
{
    make_reducer_with(self, 0, self->word);
}

/* The gradients on two streams, which are one in a capture: `beside` forks off `stream`. */
static trib_status queue_step(struct captured *self, const trib_tensor *tensors, trib_stream stream)
{
    (void)tensors;
    CHECK_OK(trib_event_record(self->device, self->fork, stream));
    CHECK_OK(trib_stream_wait_event(self->device, self->fork, self->beside));
    CHECK_OK(trib_reducer_ready(self->reducer, 1, self->beside));
    CHECK_OK(trib_reducer_ready(self->reducer, 0, stream));
    return trib_reducer_finish(self->reducer, stream);
}

static const struct kind kinds[] = {
    {"an allreduce", NULL, queue_sum, sum_of, 0, false, false},
    {"a list", NULL, queue_list, sum_of, 1, false, false},
    {"a list with factors", NULL, queue_scaled, scaled_of, 1, true, false},
    {"a list that is broadcast", NULL, queue_broadcast, last_of, 1, false, false},
    {"a weighted average", NULL, queue_average, weighted_of, 1, false, false},
    {"an alltoall in place", NULL, queue_exchange, exchanged_of, 0, false, false},
    {"a batch with barriers", NULL, queue_batch, exchanged_of, 0, false, false},
    {"lists and a barrier", NULL, queue_lists, sum_in_sum_of, 3, false, false},
    {"a reducer's step", make_copies, queue_step, average_of, 0, false, true},
    {"a reducer's step, sums", make_sums, queue_step, sum_of, 0, false, true},
    {"a reducer's step, views", make_views, queue_step, average_of, 0, false, true},
    {"a reducer's step, views with twins", make_twins, queue_step, average_of, 0, false, true},
    {"a reducer's step, weighted", make_weighted, queue_step, weighted_of, 0, false, true},
};

/* -------------------------------------------------------------------------------------- replays */

static bool call_eagerly(struct captured *self, size_t round)
{
    put(self, self->tensors, round);
    return CHECK_OK(self->kind->queue(self, self->tensors, self->stream)) &&
           holds(self, self->tensors, round, "eager", self->kind->expected);
}

static bool replay(struct captured *self, size_t round)
{
    put(self, self->tensors, round);
    return launch(self) && holds(self, self->tensors, round, "replayed", self->kind->expected);
}

/* An eager call on other tensors and another stream while the replay runs: they share nothing. */
static bool replay_beside(struct captured *self, size_t round)
{
    put(self, self->tensors, round);
    put(self, self->others, round + 1);
    settle(self);
    return launch(self) && CHECK_OK(self->kind->queue(self, self->others, self->beside)) &&
           holds(self, self->tensors, round, "replayed beside", self->kind->expected) &&
           CHECK_OK(trib_stream_wait(self->device, self->beside)) &&
           holds(self, self->others, round + 1, "eager beside", self->kind->expected);
}

static void captured_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    open_rank(&self, cast, rank);
    const struct kind *kind = self.kind;
    bool good = call_eagerly(&self, 0);
    const uint64_t bytes = workspace_bytes(&self);
    const uint64_t lists = lists_committed(&self);
    team_barrier(&cast->met[0], size);
    begin_capture(self.stream);
    good = CHECK_OK(kind->queue(&self, self.tensors, self.stream)) && good;
    self.replay = end_capture(self.stream);
    team_barrier(&cast->met[1], size);
    CHECK(lists_committed(&self) == lists);
    good = call_eagerly(&self, 1) && good;
    uint64_t eager = 1;
    for (size_t round = 2; good && round < 2 + REPLAYS; round++) {
        const bool beside = round % PERIOD == 0 && !kind->not_eager;
        good = beside ? replay_beside(&self, round) : replay(&self, round);
        eager += beside;
        if (good && round % PERIOD == PERIOD / 2) {
            good = call_eagerly(&self, round);
            eager++;
        }
    }
    good = good && call_eagerly(&self, 3);
    eager++;
    if (good)
        CHECK_MSG(lists_committed(&self) == lists + (eager + REPLAYS) * kind->lists,
                  "%llu lists committed, not %llu", (unsigned long long)lists_committed(&self),
                  (unsigned long long)(lists + (eager + REPLAYS) * kind->lists));
    if (self.reducer != NULL)
        CHECK_OK(trib_reducer_status(self.reducer));
    CHECK_OK(trib_comm_status(self.comm));
    team_barrier(&cast->met[2], size);
    drop_replay(&self);
    check_freed(&self, bytes);
    good = call_eagerly(&self, 4) && good;
    close_rank(&self);
}

/* --------------------------------------------------------------------------------- what is live */

static const struct kind list_kind = {"a list", NULL, queue_list, sum_of, 1, false, false};

struct stuck {
    struct cast cast;
    trib_abort *handle;
    struct captured ranks[2];
};

static void capture_rank(int rank, int size, void *argument)
{
    struct stuck *stuck = argument;
    struct captured *self = &stuck->ranks[rank];
    (void)size;
    open_rank(self, &stuck->cast, rank);
    CHECK(call_eagerly(self, 0));
    begin_capture(self->stream);
    CHECK_OK(queue_list(self, self->tensors, self->stream));
    self->replay = end_capture(self->stream);
    put(self, self->tensors, 1);
    settle(self);
}

/* Rank 0 replays, and rank 1 aborts instead. */
static void abort_rank(int rank, int size, void *argument)
{
    struct stuck *stuck = argument;
    struct captured *self = &stuck->ranks[rank];
    (void)size;
    CHECK(cudaSetDevice(trib_device_ordinal(self->device)) == cudaSuccess);
    if (rank == 0)
        (void)launch(self);
    check_sleep_ms(50);
    if (rank == 1)
        CHECK_OK(trib_abort_raise(stuck->handle, "while one rank replays"));
    settle(self);
    CHECK_STATUS(trib_comm_status(self->comm), TRIB_ERR_ABORTED);
    CHECK(lists_committed(self) == 1);
    (void)holds(self, self->tensors, 1, "after an abort", untouched);
}

static void becomes(trib_abort *handle, trib_comm_state wanted, const char *begin)
{
    char text[TEXT] = "";
    trib_comm_state state = -1;
    const double limit = check_now_ms() + PLENTY_MS;
    do {
        check_sleep_ms(1);
        CHECK_OK(trib_abort_state(&state, text, sizeof text, handle));
    } while ((state != wanted || strncmp(text, begin, strlen(begin)) != 0) &&
             check_now_ms() < limit);
    CHECK_MSG(state == wanted && strncmp(text, begin, strlen(begin)) == 0,
              "the state is %d (\"%s\"), expected %d (\"%s\")", state, text, (int)wanted, begin);
}

/* An abort while one rank waits in a replay: no list is written, and what the graphs hold is freed
 * with them, long after the communicator. */
static void aborted(void)
{
    struct stuck *stuck = calloc(1, sizeof *stuck);
    if (stuck == NULL)
        abort();
    stuck->cast.kind = &list_kind;
    check_begin("2 ranks: an abort while graphs of lists live");
    if (team_create(&stuck->cast.team, "nccl", 2, NULL)) {
        CHECK_OK(trib_comm_abort_handle(&stuck->handle, stuck->cast.team.comms[0]));
        check_ranks(2, capture_rank, stuck);
        check_ranks(2, abort_rank, stuck);
        becomes(stuck->handle, TRIB_COMM_PARKED,
                "2 live CUDA graphs that captured its calls, for ");
        team_close(&stuck->cast.team);
        for (int rank = 2; rank-- > 0;) {
            CHECK(cudaSetDevice(rank) == cudaSuccess);
            drop_replay(&stuck->ranks[rank]);
        }
        becomes(stuck->handle, TRIB_COMM_RECLAIMED, "");
        for (int rank = 0; rank < 2; rank++)
            close_rank(&stuck->ranks[rank]);
        trib_abort_release(stuck->handle);
        team_destroy(&stuck->cast.team);
        CHECK_OK(trib_quiesce(PLENTY_MS));
    }
    check_end();
    free(stuck);
}

/* One thread captures the lists of all ranks of a group. */
struct together {
    struct cast cast;
    struct captured ranks[2];
};

static void replay_together(int rank, int size, void *argument)
{
    struct captured *self = &((struct together *)argument)->ranks[rank];
    (void)size;
    CHECK(cudaSetDevice(trib_device_ordinal(self->device)) == cudaSuccess);
    for (size_t round = 0; round < REPLAYS; round++)
        if (!replay(self, round))
            break;
}

static trib_status queue_together(trib_group *group, struct together *all)
{
    const trib_tensor *const lists[2] = {all->ranks[0].tensors, all->ranks[1].tensors};
    trib_stream streams[2] = {all->ranks[0].stream, all->ranks[1].stream};
    return trib_group_allreduce_list(group, lists, 2, TRIB_SUM, streams);
}

static void capture_together(trib_group *group, struct together *all)
{
    begin_capture(all->ranks[0].stream);
    CHECK_STATUS(queue_together(group, all), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("capture the streams of all ranks of a group");
    CHECK(cudaSetDevice(1) == cudaSuccess);
    begin_capture(all->ranks[1].stream);
    CHECK_OK(queue_together(group, all));
    all->ranks[1].replay = end_capture(all->ranks[1].stream);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    all->ranks[0].replay = end_capture(all->ranks[0].stream);
}

static void groups(bool fake)
{
    struct together *all = calloc(1, sizeof *all);
    trib_group *group = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    if (all == NULL)
        abort();
    options.backend = "nccl";
    all->cast.kind = &list_kind;
    check_begin("2 ranks: a graph of each rank of a group");
    if (team_prepare(&all->cast.team, "nccl", 2) &&
        CHECK_OK(trib_group_create(&group, NULL, 2, &options))) {
        for (int rank = 0; rank < 2; rank++)
            open_rank(&all->ranks[rank], &all->cast, rank);
        CHECK(cudaSetDevice(0) == cudaSuccess);
        for (int eager = 0; eager < 2 && !fake; eager++) /* the fake wants a thread for each rank */
            CHECK_OK(queue_together(group, all));
        capture_together(group, all);
        check_ranks(2, replay_together, all);
        if (!fake)
            CHECK_OK(queue_together(group, all));
        for (int rank = 0; rank < 2; rank++) {
            CHECK(cudaSetDevice(rank) == cudaSuccess);
            settle(&all->ranks[rank]);
            drop_replay(&all->ranks[rank]);
            close_rank(&all->ranks[rank]);
            CHECK_OK(trib_stream_destroy(all->ranks[rank].device, all->ranks[rank].stream));
        }
        CHECK_OK(trib_group_destroy(group));
        CHECK_OK(trib_quiesce(PLENTY_MS));
    }
    check_end();
    free(all);
}

/* ------------------------------------------------------------------------------------- refusals */

/* The capture goes on, and captures something in the end. */
static void matched_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    (void)size;
    open_rank(&self, cast, rank);
    begin_capture(self.stream);
    CHECK_STATUS(queue_sum(&self, self.tensors, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("TRIB_MATCH");
    CHECK_STATUS(queue_list(&self, self.tensors, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_STATUS(trib_barrier(self.comm, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_STATUS(trib_reducer_ready(self.reducer, 0, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_STATUS(trib_reducer_finish(self.reducer, self.stream), TRIB_ERR_UNSUPPORTED);
    self.replay = end_capture(self.stream);
    CHECK_OK(trib_comm_status(self.comm));
    put(&self, self.tensors, 5);
    CHECK(launch(&self) && holds(&self, self.tensors, 5, "an empty graph", untouched));
    drop_replay(&self);
    CHECK(call_eagerly(&self, 6));
    close_rank(&self);
}

static void make_learning(struct captured *self)
{
    make_reducer_with(self, TRIB_REDUCER_LEARN_ORDER, NULL);
}

/* The first step waits for all ranks; a later one does not. And a step is in one capture. */
static void learning_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    (void)size;
    open_rank(&self, cast, rank);
    begin_capture(self.stream);
    CHECK_STATUS(trib_reducer_ready(self.reducer, 0, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("TRIB_REDUCER_LEARN_ORDER");
    CHECK_STATUS(trib_reducer_finish(self.reducer, self.stream), TRIB_ERR_UNSUPPORTED);
    self.replay = end_capture(self.stream);
    drop_replay(&self);
    CHECK(call_eagerly(&self, 0));
    begin_capture(self.stream);
    CHECK_OK(trib_reducer_ready(self.reducer, 0, self.stream));
    CHECK_STATUS(trib_reducer_ready(self.reducer, 1, self.beside), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("captures all calls of a step, or none");
    CHECK_STATUS(trib_reducer_finish(self.reducer, self.beside), TRIB_ERR_INVALID_USAGE);
    CHECK_OK(trib_reducer_ready(self.reducer, 1, self.stream));
    CHECK_OK(trib_reducer_finish(self.reducer, self.stream));
    CHECK_STATUS(trib_reducer_ready(self.reducer, 0, self.beside), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("end that capture first");
    self.replay = end_capture(self.stream);
    CHECK(replay(&self, 1) && call_eagerly(&self, 2) && replay(&self, 3));
    drop_replay(&self);
    begin_capture(self.stream); /* the newest step before the end */
    CHECK_OK(queue_step(&self, self.tensors, self.stream));
    self.replay = end_capture(self.stream);
    CHECK(replay(&self, 4));
    drop_replay(&self);
    close_rank(&self);
}

static void make_waiting(struct captured *self)
{
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    sparse.algorithm = "topkaopt";
    options.sparse = &sparse;
    CHECK_OK(trib_reducer_create(&self->reducer, self->comm, self->tensors, 2, &options));
}

static void waiting_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    (void)size;
    open_rank(&self, cast, rank);
    begin_capture(self.stream);
    CHECK_STATUS(trib_reducer_ready(self.reducer, 0, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("\"topkaopt\" waits for the stream");
    CHECK_STATUS(trib_reducer_finish(self.reducer, self.stream), TRIB_ERR_UNSUPPORTED);
    self.replay = end_capture(self.stream);
    drop_replay(&self);
    CHECK_OK(trib_comm_status(self.comm));
    close_rank(&self);
}

static const struct kind matched_kind = {"", make_copies, queue_step, average_of, 0, false, true};
static const struct kind learning_kind = {"", make_learning, queue_step, average_of,
                                          0,  false,         true};
static const struct kind waiting_kind = {"", make_waiting, NULL, NULL, 0, false, true};

/* ------------------------------------------------------------------- a sparse reducer, and a twin */

/* Two reducers of the same gradients: steps of the second one are eager. */
struct twins {
    struct captured of[2];
};

static void open_twins(struct twins *twins, struct cast *cast, int rank)
{
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    sparse.algorithm = "topka";
    sparse.density = 0.05;
    options.sparse = &sparse;
    options.bucket_bytes = options.first_bytes = 1;
    for (int i = 0; i < 2; i++) {
        open_rank(&twins->of[i], cast, rank);
        CHECK_OK(trib_reducer_create(&twins->of[i].reducer, twins->of[i].comm, twins->of[i].tensors,
                                     2, &options));
    }
}

static bool same_results(struct twins *twins, size_t round)
{
    for (int i = 0; i < 2; i++) {
        move(&twins->of[i], twins->of[i].host, twins->of[i].data, N);
        settle(&twins->of[i]);
    }
    for (size_t i = 0; i < N; i++)
        if (memcmp(&twins->of[0].host[i], &twins->of[1].host[i], sizeof(float)) != 0)
            return CHECK_MSG(false, "round %zu, element %zu: %g by a replay, %g by an eager step",
                             round, i, (double)twins->of[0].host[i], (double)twins->of[1].host[i]);
    return true;
}

static void sparse_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct twins twins;
    (void)size;
    open_twins(&twins, cast, rank);
    struct captured *first = &twins.of[0];
    bool good = true;
    begin_capture(first->stream);
    CHECK_OK(queue_step(first, first->tensors, first->stream));
    first->replay = end_capture(first->stream);
    for (size_t round = 0; good && round < REPLAYS; round++) {
        for (int i = 0; i < 2; i++)
            put(&twins.of[i], twins.of[i].tensors, round);
        good = (round % PERIOD == 0 ? CHECK_OK(queue_step(first, first->tensors, first->stream))
                                    : launch(first)) &&
               CHECK_OK(queue_step(&twins.of[1], twins.of[1].tensors, first->stream)) &&
               same_results(&twins, round);
    }
    CHECK_OK(trib_reducer_status(first->reducer));
    drop_replay(first);
    for (int i = 0; i < 2; i++)
        close_rank(&twins.of[i]);
}

/* Captured and never replayed: on the fake, whose sparse kernels no graph captures. */
static void sparse_once_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct twins twins;
    (void)size;
    open_twins(&twins, cast, rank);
    struct captured *first = &twins.of[0];
    put(first, first->tensors, 0);
    CHECK_OK(queue_step(first, first->tensors, first->stream));
    begin_capture(first->stream);
    CHECK_OK(queue_step(first, first->tensors, first->stream));
    first->replay = end_capture(first->stream);
    drop_replay(first);
    CHECK_OK(trib_comm_status(first->comm));
    for (int i = 0; i < 2; i++)
        close_rank(&twins.of[i]);
}

/* ---------------------------------------------------------------------------------------- cases */

static void run(int size, const struct kind *kind, const char *name, uint32_t flags,
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

void captured_cases(int ranks, bool fake)
{
    for (int size = 1; size <= ranks && size <= 2; size++) {
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (!fake || size == 1 || !kinds[i].scaled)
                run(size, &kinds[i], kinds[i].name, 0, captured_rank);
        run(size, &matched_kind, "what TRIB_MATCH refuses", TRIB_MATCH, matched_rank);
        run(size, &learning_kind, "the first step of a reducer that learns", 0, learning_rank);
        run(size, &waiting_kind, "a sparse step that waits", 0, waiting_rank);
        run(size, NULL, "a reducer's step, sparse", 0, fake ? sparse_once_rank : sparse_rank);
    }
    if (ranks < 2)
        return;
    aborted();
    groups(fake);
}
