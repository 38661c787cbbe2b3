/* What a profiler is told: one range around each call that is handed to the backend, on the thread
 * that does it; names of communicators; nothing where nobody asks or nobody listens. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "csrc/core/issue.h"
#include "csrc/tracer.h"
#include "tests/team.h"

enum { N = 64, TEXT = 128, NAMES = 32, BOUND_MS = 20000, TIMEOUT_S = 60 };

/* -------------------------------------------------------------------------------- a profiler */

static bool listens = true;
static _Atomic int begins, pushes, pops, names;
static char named[NAMES][TEXT]; /* guarded by the order of creation: one thread makes them */
static uint32_t categories[NAMES];
/* This thread's. */
static _Thread_local int depth;
static _Thread_local char text[TEXT];
static _Thread_local uint32_t category;
static _Thread_local uint64_t payload;

static bool begin(void)
{
    atomic_fetch_add(&begins, 1);
    return listens;
}

static void name(uint32_t number, const char *words)
{
    const int n = atomic_fetch_add(&names, 1);
    if (!CHECK(n < NAMES))
        return;
    (void)snprintf(named[n], TEXT, "%s", words);
    categories[n] = number;
}

static void push(const char *words, uint32_t number, uint64_t bytes)
{
    atomic_fetch_add(&pushes, 1);
    CHECK_MSG(++depth == 1, "\"%s\" begins inside \"%s\"", words, text);
    (void)snprintf(text, sizeof text, "%s", words);
    category = number;
    payload = bytes;
}

static void pop(void)
{
    atomic_fetch_add(&pops, 1);
    CHECK(--depth == 0);
}

static const struct tri_tracer tracer = {.begin = begin, .name = name, .push = push, .pop = pop};
const struct tri_tracer *const tri_tracer = &tracer; /* in place of nvtx's */

/* ------------------------------------------------------------------------------------- calls */

/* How many ranges there had been. Only the main thread's, while no other makes calls. */
static int before;

static void look(void)
{
    before = atomic_load(&pushes);
}

/* `n` ranges have been since the last look; this thread's last one was this, and all are over. */
#define SAW(n, words, bytes) saw(n, words, bytes, __LINE__)

static void saw(int n, const char *words, uint64_t bytes, int line)
{
    const int now = atomic_load(&pushes);
    CHECK_MSG(now - before == n && depth == 0 && atomic_load(&pops) == now,
              "line %d: %d begun, %d ended, %d deep", line, now - before, atomic_load(&pops),
              depth);
    CHECK_MSG(words == NULL || (strcmp(text, words) == 0 && payload == bytes),
              "line %d: \"%s\", %" PRIu64 " bytes", line, text, payload);
    look();
}

static float data[2][N];
static double doubles[2][N];

/* The names of the two ranks, of which this thread made the communicators. */
static void check_names(const struct team *team)
{
    char expected[TEXT];
    const int n = atomic_load(&names);
    if (!CHECK(n >= 2))
        return;
    for (int rank = 0; rank < 2; rank++) {
        (void)snprintf(expected, sizeof expected,
                       "rank %d of 2 of communicator %016" PRIx64 ", device %d of host", rank,
                       team->comms[rank]->identity, rank);
        CHECK_MSG(strcmp(named[n - 2 + rank], expected) == 0, "\"%s\"", named[n - 2 + rank]);
        CHECK(categories[n - 2 + rank] != 0);
    }
    CHECK(categories[n - 2] != categories[n - 1]);
}

static void dense(struct team *team)
{
    for (int rank = 0; rank < 2; rank++) {
        trib_comm *comm = team->comms[rank];
        trib_stream stream = team->streams[rank];
        CHECK_OK(trib_allreduce(comm, data[rank], data[rank], 10, TRIB_F32, TRIB_SUM, stream));
        SAW(1, "trib_allreduce 10 f32", 40);
        CHECK(category == categories[atomic_load(&names) - 2 + rank]);
        CHECK_OK(trib_broadcast(comm, doubles[rank], doubles[rank], 3, TRIB_F64, 1, stream));
        SAW(1, "trib_broadcast 3 f64", 24);
        /* Composed of many. */
        CHECK_OK(trib_alltoall(comm, data[rank], data[rank], 5, TRIB_F32, stream));
        SAW(1, "trib_alltoall 5 f32", 20);
        const trib_tensor list[2] = {{data[rank], 4, TRIB_F32, 0}, {doubles[rank], 4, TRIB_F64, 0}};
        CHECK_OK(trib_allreduce_list(comm, list, 2, TRIB_SUM, stream));
        SAW(1, "trib_allreduce_list 2", 0);
        CHECK_OK(trib_batch_begin(comm));
        for (int i = 0; i < 3; i++)
            CHECK_OK(trib_allreduce(comm, data[rank], data[rank], 10, TRIB_F32, TRIB_SUM, stream));
        SAW(0, NULL, 0);
        CHECK_OK(trib_batch_end(comm));
        SAW(1, "trib_batch_end 3", 0);
        /* What is not handed to the backend is no range. */
        CHECK_OK(trib_allreduce(comm, data[rank], data[rank], 0, TRIB_F32, TRIB_SUM, stream));
        CHECK_STATUS(trib_allreduce(comm, data[rank], NULL, 1, TRIB_F32, TRIB_SUM, stream),
                     TRIB_ERR_INVALID_BUFFER);
        SAW(0, NULL, 0);
    }
    CHECK(team_wait(team, 0, BOUND_MS) && team_wait(team, 1, BOUND_MS));
}

static void sparse(int rank, int size, void *argument)
{
    struct team *team = argument;
    trib_sparse *state = NULL;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    (void)size;
    options.algorithm = "topka";
    CHECK_OK(trib_allreduce(team->comms[rank], data[rank], data[rank], 10, TRIB_F32, TRIB_SUM,
                            team->streams[rank]));
    CHECK(depth == 0 && strcmp(text, "trib_allreduce 10 f32") == 0);
    CHECK_OK(trib_sparse_create(&state, team->comms[rank], N, TRIB_F32, &options));
    CHECK_OK(trib_sparse_allreduce(state, data[rank], data[rank], team->streams[rank]));
    CHECK(depth == 0 && strcmp(text, "trib_sparse_allreduce 64 f32 topka") == 0 &&
          payload == N * sizeof(float));
    CHECK(team_wait(team, rank, BOUND_MS));
    CHECK_OK(trib_sparse_destroy(state));
    CHECK(depth == 0);
}

static void aborted(struct team *team)
{
    trib_abort *handle = NULL;
    if (CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0])))
        CHECK_OK(trib_abort_raise(handle, "enough"));
    trib_abort_release(handle);
    for (int rank = 0; rank < 2; rank++)
        CHECK_STATUS(trib_allreduce(team->comms[rank], data[rank], data[rank], 10, TRIB_F32,
                                    TRIB_SUM, team->streams[rank]),
                     TRIB_ERR_ABORTED);
    /* An abort that overtakes a call after its checks. */
    const struct tri_recorded record = {.count = 10, .operation = TRI_ALLREDUCE, .peer = -1};
    const struct tri_issuing issuing = {team->comms, team->streams, 2};
    look();
    CHECK_STATUS(tri_issue_begin(&issuing, &record), TRIB_ERR_ABORTED);
    SAW(1, "trib_allreduce 10", 0);
}

static void calls(uint32_t flags)
{
    struct team team;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = flags;
    if (team_prepare(&team, "host", 2) && team_split_group(&team, &options)) {
        look();
        check_names(&team);
        if (flags != TRIB_MATCH) /* with which a call waits for the other rank */
            dense(&team);
        check_ranks(2, sparse, &team);
        CHECK(atomic_load(&pushes) == atomic_load(&pops));
        aborted(&team);
    }
    team_destroy(&team);
    CHECK(atomic_load(&begins) == 1);
}

/* One range for all ranks, which the thread hands over together. */
static void group(void)
{
    trib_group *group = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "host";
    if (!CHECK_OK(trib_group_create(&group, NULL, 2, &options)))
        return;
    const void *send[2] = {data[0], data[1]};
    void *recv[2] = {data[0], data[1]};
    const trib_tensor lists[2] = {{data[0], N, TRIB_F32, 0}, {data[1], N, TRIB_F32, 0}};
    const trib_tensor *tensors[2] = {&lists[0], &lists[1]};
    look();
    CHECK_OK(trib_group_allreduce(group, send, recv, 7, TRIB_F32, TRIB_SUM, NULL));
    SAW(1, "trib_allreduce 7 f32", 28);
    CHECK_OK(trib_group_allreduce_list(group, tensors, 1, TRIB_SUM, NULL));
    SAW(1, "trib_allreduce_list 1", 0);
    CHECK_OK(trib_group_destroy(group));
}

static void told(void)
{
    calls(0);
    calls(TRIB_UNRECORDED);
    calls(TRIB_MATCH);
    group();
}

/* -------------------------------------------------------------------------- nobody is told */

static void silent(int begun)
{
    struct team team;
    if (team_create(&team, "host", 2, NULL))
        for (int rank = 0; rank < 2; rank++)
            CHECK_OK(trib_allreduce(team.comms[rank], data[rank], data[rank], N, TRIB_F32, TRIB_SUM,
                                    team.streams[rank]));
    team_destroy(&team);
    CHECK(atomic_load(&begins) == begun && atomic_load(&names) == 0);
    CHECK(atomic_load(&pushes) == 0 && atomic_load(&pops) == 0);
}

static void not_listening(void)
{
    listens = false;
    silent(1);
}

static void not_asked(void)
{
    silent(0);
}

/* The first communicator of a process decides. */
static void in_child(const char *variable, void (*body)(void), const char *what)
{
    check_begin("%s", what);
    fflush(stdout);
    fflush(stderr);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(TIMEOUT_S);
        if (variable == NULL)
            (void)unsetenv("TRIBUTARY_NVTX");
        else
            (void)setenv("TRIBUTARY_NVTX", variable, 1);
        body();
        check_end();
        _exit(check_finish("child") == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_end();
}

int main(void)
{
    in_child("1", told, "somebody asks, and a profiler listens");
    in_child("1", not_listening, "no profiler listens");
    in_child("0", not_asked, "nobody asks: 0");
    in_child("", not_asked, "nobody asks: an empty text");
    in_child(NULL, not_asked, "nobody asks");
    return check_finish("trace_test");
}
