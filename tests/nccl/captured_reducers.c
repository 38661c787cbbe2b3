/* Steps of reducers, as graphs capture them, and what a graph cannot capture. */
#include "tests/nccl/captured_fixture.h"

#include <string.h>

static void make_reducer_of(struct captured *self, const trib_reducer_options *options)
{
    if (!CHECK_OK(trib_reducer_create(&self->reducer, self->comm, self->tensors, 2, options)))
        return;
    for (size_t i = 0; i < 2 && (options->flags & TRIB_REDUCER_VIEWS) != 0; i++)
        CHECK_OK(trib_reducer_view(&self->tensors[i].data, self->reducer, i));
}

static void make_reducer_with(struct captured *self, uint32_t flags, const float *weight)
{
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = flags;
    options.bucket_bytes = options.first_bytes = 1; /* a bucket for each gradient */
    options.device_weight = weight;
    make_reducer_of(self, &options);
}

static void make_copies(struct captured *self)
{
    make_reducer_with(self, 0, NULL);
}

static void make_in_place(struct captured *self)
{
    static const uint64_t one_each[] = {1, 1};
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.buckets = one_each;
    options.nbuckets = 2;
    make_reducer_of(self, &options);
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
    {"a reducer's step", make_copies, queue_step, captured_average, 0, true},
    {"a reducer's step, in place", make_in_place, queue_step, captured_average, 0, true},
    {"a reducer's step, sums", make_sums, queue_step, captured_sum, 0, true},
    {"a reducer's step, views", make_views, queue_step, captured_average, 0, true},
    {"a reducer's step, views with twins", make_twins, queue_step, captured_average, 0, true},
    {"a reducer's step, weighted", make_weighted, queue_step, captured_weighted, 0, true},
};

/* ------------------------------------------------------------------------------------- refusals */

/* The capture goes on, and captures something in the end. */
static void matched_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    (void)size;
    captured_open(&self, cast, rank);
    captured_begin(self.stream);
    CHECK_STATUS(captured_queue_sum(&self, self.tensors, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("TRIB_MATCH");
    CHECK_STATUS(captured_queue_list(&self, self.tensors, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_STATUS(trib_barrier(self.comm, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_STATUS(trib_reducer_ready(self.reducer, 0, self.stream), TRIB_ERR_UNSUPPORTED);
    CHECK_STATUS(trib_reducer_finish(self.reducer, self.stream), TRIB_ERR_UNSUPPORTED);
    self.replay = captured_end(self.stream);
    CHECK_OK(trib_comm_status(self.comm));
    captured_put(&self, self.tensors, 5);
    CHECK(captured_launch(&self) &&
          captured_holds(&self, self.tensors, 5, "an empty graph", captured_untouched));
    captured_drop(&self);
    CHECK(captured_call(&self, 6));
    captured_close(&self);
}

static void make_learning(struct captured *self)
{
    make_reducer_with(self, TRIB_REDUCER_LEARN_ORDER, NULL);
}

/* No graph can capture this step, because `why`; the capture goes on. */
static void refuse_step(struct captured *self, const char *why)
{
    captured_begin(self->stream);
    CHECK_STATUS(trib_reducer_ready(self->reducer, 0, self->stream), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL(why);
    CHECK_STATUS(trib_reducer_finish(self->reducer, self->stream), TRIB_ERR_UNSUPPORTED);
    self->replay = captured_end(self->stream);
    captured_drop(self);
}

/* The first step waits for all ranks; a later one does not. And a step is in one capture. */
static void learning_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    (void)size;
    captured_open(&self, cast, rank);
    refuse_step(&self, "TRIB_REDUCER_LEARN_ORDER");
    CHECK(captured_call(&self, 0));
    captured_begin(self.stream);
    CHECK_OK(trib_reducer_ready(self.reducer, 0, self.stream));
    CHECK_STATUS(trib_reducer_ready(self.reducer, 1, self.beside), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("captures all calls of a step, or none");
    CHECK_STATUS(trib_reducer_finish(self.reducer, self.beside), TRIB_ERR_INVALID_USAGE);
    CHECK_OK(trib_reducer_ready(self.reducer, 1, self.stream));
    CHECK_OK(trib_reducer_finish(self.reducer, self.stream));
    CHECK_STATUS(trib_reducer_ready(self.reducer, 0, self.beside), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("end that capture first");
    CHECK_STATUS(trib_reducer_wait(self.reducer, 0), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("wait after a launch of the graph");
    self.replay = captured_end(self.stream);
    CHECK_OK(trib_reducer_wait(self.reducer, PLENTY_MS));
    CHECK(captured_replay(&self, 1) && captured_call(&self, 2) && captured_replay(&self, 3));
    captured_drop(&self);
    captured_begin(self.stream); /* the newest step before the end */
    CHECK_OK(queue_step(&self, self.tensors, self.stream));
    self.replay = captured_end(self.stream);
    CHECK(captured_replay(&self, 4));
    captured_drop(&self);
    captured_close(&self);
}

/* Nothing can end a step whose capture is over, but the reducer can go. CUDA refuses a capture that
 * leaves a stream unjoined, but not where NCCL has called in that stream: it sets what the next node
 * depends on. Then half a step is in a graph that nobody launches. */
static void left_open_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct captured self;
    cudaGraph_t graph = NULL;
    (void)size;
    captured_open(&self, cast, rank);
    captured_begin(self.stream);
    CHECK_OK(trib_reducer_ready(self.reducer, 0, self.stream));
    CHECK((cudaStreamEndCapture(self.stream, &graph) == cudaSuccess) == (graph != NULL));
    (void)cudaGetLastError();
    if (graph != NULL)
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK_STATUS(trib_reducer_ready(self.reducer, 1, self.stream), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(trib_reducer_finish(self.reducer, self.stream), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("destroy the reducer");
    CHECK_OK(trib_reducer_destroy(self.reducer));
    CHECK_OK(trib_reducer_create(&self.reducer, self.comm, self.tensors, 2, NULL));
    CHECK(captured_call(&self, 0));
    captured_close(&self);
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
    captured_open(&self, cast, rank);
    refuse_step(&self, "\"topkaopt\" waits for the stream");
    CHECK_OK(trib_comm_status(self.comm));
    captured_close(&self);
}

static const struct kind matched_kind = {"", make_copies, queue_step, captured_average, 0, true};
static const struct kind learning_kind = {"", make_learning, queue_step, captured_average, 0, true};
static const struct kind left_open_kind = {"", make_copies, queue_step, captured_average, 0, true};
static const struct kind waiting_kind = {"", make_waiting, NULL, NULL, 0, true};

/* ----------------------------------------------------------------- a sparse reducer, and a twin */

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
        captured_open(&twins->of[i], cast, rank);
        CHECK_OK(trib_reducer_create(&twins->of[i].reducer, twins->of[i].comm, twins->of[i].tensors,
                                     2, &options));
    }
}

static bool same_results(struct twins *twins, size_t round)
{
    for (int i = 0; i < 2; i++) {
        captured_move(&twins->of[i], twins->of[i].host, twins->of[i].data, N);
        captured_settle(&twins->of[i]);
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
    captured_begin(first->stream);
    CHECK_OK(queue_step(first, first->tensors, first->stream));
    first->replay = captured_end(first->stream);
    for (size_t round = 0; good && round < REPLAYS; round++) {
        for (int i = 0; i < 2; i++)
            captured_put(&twins.of[i], twins.of[i].tensors, round);
        good = (round % PERIOD == 0 ? CHECK_OK(queue_step(first, first->tensors, first->stream))
                                    : captured_launch(first)) &&
               CHECK_OK(queue_step(&twins.of[1], twins.of[1].tensors, first->stream)) &&
               same_results(&twins, round);
    }
    CHECK_OK(trib_reducer_status(first->reducer));
    captured_drop(first);
    for (int i = 0; i < 2; i++)
        captured_close(&twins.of[i]);
}

/* Captured and never replayed: on the fake, whose sparse kernels no graph captures. */
static void sparse_once_rank(int rank, int size, void *argument)
{
    struct cast *cast = argument;
    struct twins twins;
    (void)size;
    open_twins(&twins, cast, rank);
    struct captured *first = &twins.of[0];
    captured_put(first, first->tensors, 0);
    CHECK_OK(queue_step(first, first->tensors, first->stream));
    captured_begin(first->stream);
    CHECK_OK(queue_step(first, first->tensors, first->stream));
    first->replay = captured_end(first->stream);
    captured_drop(first);
    CHECK_OK(trib_comm_status(first->comm));
    for (int i = 0; i < 2; i++)
        captured_close(&twins.of[i]);
}

/* ---------------------------------------------------------------------------------------- cases */

void captured_reducers(int size, bool fake)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        captured_replays(size, &kinds[i]);
    captured_run(size, &matched_kind, "what TRIB_MATCH refuses", TRIB_MATCH, matched_rank);
    captured_run(size, &learning_kind, "the first step of a reducer that learns", 0, learning_rank);
    captured_run(size, &left_open_kind, "a reducer's step that nothing ends", 0, left_open_rank);
    captured_run(size, &waiting_kind, "a sparse step that waits", 0, waiting_rank);
    captured_run(size, NULL, "a reducer's step, sparse", 0, fake ? sparse_once_rank : sparse_rank);
}
