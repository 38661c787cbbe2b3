/* States beside each other, calls one behind the other, and what is still queued when a state
 * goes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/reference.h"
#include "tests/conformance/sparse/sparse.h"

enum { CALLS = 6, COUNT = 700 };

static void *need(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

/* ------------------------------------------------------------------------------ several states */

static void several(struct sparse_session *session)
{
    static const struct sparse_plan plans[] = {
        {.algorithm = "topka", .count = 300, .k = 24},
        {.algorithm = "oktopk", .count = 501, .k = 12, .flags = TRIB_SPARSE_ENTRIES},
        {.algorithm = "srs", .count = 123, .k = 12, .flags = TRIB_SPARSE_IN_PLACE},
        {.algorithm = "topka", .count = 300, .k = 24, .dtype = TRIB_BF16}};
    enum { N = sizeof plans / sizeof *plans };
    struct sparse_trial *trials = need(N, sizeof *trials);
    bool good = true;
    check_begin("%s, %d ranks: several states", session->team.backend, session->team.size);
    for (int i = 0; i < N; i++) {
        struct sparse_plan plan = plans[i];
        plan.seed = session->seed++;
        good &= sparse_trial_open(&trials[i], &session->team, &plan);
    }
    for (int step = 0; step < 6 && good; step++)
        for (int i = 0; i < N && good; i++)
            good = sparse_trial_steps(&trials[(i * (step + 1)) % N], 1);
    for (int i = 0; i < N; i++)
        sparse_trial_close(&trials[i]);
    free(trials);
    check_end();
    sparse_session_mend(session);
}

/* --------------------------------------------------------------------------- queues and streams */

/* CALLS calls of a state, one behind the other, with buffers of their own; nobody waits in
 * between. */
struct queue {
    struct sparse_session *session;
    const char *algorithm;
    int streams;  /* 1 or 2: call i goes to stream i % streams */
    bool destroy; /* the state, at once */
    bool aliased; /* the result is written over the gradient */
    bool null_stream;
    uint64_t norm;            /* norm_every */
    float *results[TEAM_MAX]; /* CALLS * COUNT */
    double norms[TEAM_MAX];
};

/* What a rank needs for its calls. */
struct line {
    trib_device *device;
    trib_stream streams[2];
    void *in, *out;
    trib_sparse *state;
};

static void line_open(struct line *line, const struct queue *queue, int rank)
{
    const struct team *team = &queue->session->team;
    const size_t bytes = CALLS * COUNT * sizeof(float);
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    float *gradients = need(CALLS * COUNT, sizeof *gradients);
    options.algorithm = queue->algorithm;
    options.density = 0.05;
    options.norm_every = (uint32_t)queue->norm;
    for (size_t i = 0; i < CALLS * COUNT; i++)
        gradients[i] =
            (float)sparse_input(SPARSE_SPREAD, 77, i / COUNT, rank, team->size, i % COUNT, COUNT);
    if (queue->streams == 2)
        CHECK_OK(trib_stream_create(&line->streams[1], line->device));
    CHECK_OK(trib_device_alloc(&line->in, line->device, bytes));
    CHECK_OK(trib_device_alloc(&line->out, line->device, bytes));
    CHECK_OK(trib_device_copy(line->device, line->in, gradients, bytes, line->streams[0]));
    CHECK_OK(trib_stream_wait(line->device, line->streams[0]));
    CHECK_OK(trib_sparse_create(&line->state, team->comms[rank], COUNT, TRIB_F32, &options));
    free(gradients);
}

/* The calls, and the end of the state: before the streams are waited for, or after. */
static void line_run(struct line *line, struct queue *queue, int rank)
{
    trib_sparse_statistics found = TRIB_SPARSE_STATISTICS_INIT;
    for (size_t i = 0; i < CALLS; i++)
        CHECK_OK(trib_sparse_allreduce(line->state, (float *)line->in + i * COUNT,
                                       (float *)(queue->aliased ? line->in : line->out) + i * COUNT,
                                       line->streams[i % (size_t)queue->streams]));
    if (queue->destroy)
        CHECK_OK(trib_sparse_destroy(line->state));
    for (int i = 0; i < queue->streams; i++)
        CHECK_OK(trib_stream_wait(line->device, line->streams[i]));
    if (!queue->destroy) {
        CHECK_OK(trib_sparse_status(line->state));
        CHECK_OK(trib_sparse_statistics_get(&found, line->state));
        CHECK(found.calls == CALLS && found.calls_applied == CALLS);
        queue->norms[rank] = found.residual_norm;
        CHECK_OK(trib_sparse_destroy(line->state));
    }
}

static void queue_rank(int rank, int size, void *argument)
{
    struct queue *queue = argument;
    const struct team *team = &queue->session->team;
    struct line line = {
        .device = team->devices[rank],
        .streams = {queue->null_stream ? NULL : team->streams[rank], NULL},
    };
    (void)size;
    line_open(&line, queue, rank);
    line_run(&line, queue, rank);
    CHECK_OK(trib_device_copy(line.device, queue->results[rank],
                              queue->aliased ? line.in : line.out, CALLS * COUNT * sizeof(float),
                              line.streams[0]));
    CHECK_OK(trib_stream_wait(line.device, line.streams[0]));
    CHECK_OK(trib_stream_destroy(line.device, line.streams[1]));
    CHECK_OK(trib_device_free(line.device, line.in));
    CHECK_OK(trib_device_free(line.device, line.out));
    CHECK_OK(trib_comm_status(team->comms[rank]));
}

static void run_queue(struct queue *queue)
{
    for (int rank = 0; rank < queue->session->team.size; rank++)
        queue->results[rank] = need(CALLS * COUNT, sizeof(float));
    check_ranks(queue->session->team.size, queue_rank, queue);
}

static void drop_queue(struct queue *queue)
{
    for (int rank = 0; rank < queue->session->team.size; rank++)
        free(queue->results[rank]);
}

/* `other` must give what `plain` gives. */
static void same_results(const struct queue *plain, struct queue *other, const char *what)
{
    const int size = plain->session->team.size;
    check_begin("%s, %d ranks: %s, %s", plain->session->team.backend, size, plain->algorithm, what);
    run_queue(other);
    for (int rank = 0; rank < size; rank++)
        CHECK_MSG(
            memcmp(plain->results[rank], other->results[rank], CALLS * COUNT * sizeof(float)) == 0,
            "rank %d has other results", rank);
    drop_queue(other);
    check_end();
    sparse_session_mend(plain->session);
}

static void queues(struct sparse_session *session)
{
    for (int i = 0; sparse_algorithms[i] != NULL; i++) {
        if (session->depth != SPARSE_WHOLE && (i + session->team.size) % 3 != 0)
            continue;
        struct queue plain = {.session = session, .algorithm = sparse_algorithms[i], .streams = 1};
        struct queue other = plain;
        check_begin("%s, %d ranks: %s, calls queued", session->team.backend, session->team.size,
                    plain.algorithm);
        run_queue(&plain);
        for (int rank = 1; rank < session->team.size; rank++)
            CHECK(memcmp(plain.results[0], plain.results[rank], CALLS * COUNT * sizeof(float)) ==
                  0);
        CHECK(plain.norms[0] == -1);
        check_end();
        sparse_session_mend(session);
        other.streams = 2;
        same_results(&plain, &other, "two streams");
        other.streams = 1;
        other.destroy = true;
        same_results(&plain, &other, "destroyed with work queued");
        other.destroy = false;
        other.aliased = true;
        same_results(&plain, &other, "the result over the gradient");
        other.null_stream = true;
        other.norm = 2;
        same_results(&plain, &other, "the default stream, with norms");
        CHECK(other.norms[0] >= 0);
        drop_queue(&plain);
    }
}

/* ---------------------------------------------------------------------------------------- auto */

struct automatic {
    struct sparse_session *session;
    size_t count;
    double density;
};

static void automatic_rank(int rank, int size, void *argument)
{
    const struct automatic *automatic = argument;
    trib_comm *comm = automatic->session->team.comms[rank];
    trib_sparse *state = NULL;
    trib_sparse_statistics found = TRIB_SPARSE_STATISTICS_INIT;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    bool known = false;
    options.density = automatic->density;
    if (!CHECK_OK(trib_sparse_create(&state, comm, automatic->count, TRIB_F32,
                                     automatic->density == 0 ? NULL : &options)))
        return;
    CHECK_OK(trib_sparse_statistics_get(&found, state));
    for (int i = 0; sparse_algorithms[i] != NULL; i++)
        known |= strcmp(found.algorithm, sparse_algorithms[i]) == 0;
    CHECK_MSG(known, "auto is \"%s\"", found.algorithm);
    CHECK(found.reason != NULL && found.reason[0] != '\0');
    const bool dense = strcmp(found.algorithm, "dense") == 0;
    if (size > 1 && automatic->density == 1)
        CHECK_MSG(dense, "all elements are chosen: %s", found.reason);
    CHECK(found.calls == 0 && found.residual_norm == -1);
    CHECK_OK(trib_sparse_status(state));
    CHECK_OK(trib_sparse_destroy(state));
}

static void automatics(struct sparse_session *session)
{
    static const struct automatic cases[] = {{NULL, 0, 0},         {NULL, 100, 0},
                                             {NULL, 100000, 0.01}, {NULL, 2000000, 0.001},
                                             {NULL, 2000000, 0.5}, {NULL, 5000, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct automatic automatic = cases[i];
        automatic.session = session;
        check_begin("%s, %d ranks: auto, %zu, density %g", session->team.backend,
                    session->team.size, automatic.count, automatic.density);
        check_ranks(session->team.size, automatic_rank, &automatic);
        check_end();
    }
}

void sparse_sharing(struct sparse_session *session)
{
    several(session);
    queues(session);
    automatics(session);
}
