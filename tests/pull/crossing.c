#include "tests/pull/crossing.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/numbers.h"

enum {
    RANKS_MAX = 4,
    TEAMS = 2,
    COUNT = NUMBERS_PULLED,
    ROUNDS = 40,
    CALLS = 8, /* of a round, each of the one before's result; the last is on the second stream */
    PLENTY_MS = 20000
};

/* Of each rank of each communicator. All is allocated before the first call, for CUDA may wait for what runs
 * when it allocates, and a rank for one that allocates. */
struct crossing {
    const struct team *teams[TEAMS];
    cudaStream_t second[RANKS_MAX]; /* of the first team's ranks */
    uint32_t *input[TEAMS][RANKS_MAX], *data[TEAMS][RANKS_MAX];
    uint32_t *found[TEAMS][RANKS_MAX]; /* pinned, so that no copy waits under a lock of CUDA's */
};

static uint32_t input(int team, int rank, size_t e)
{
    return (uint32_t)(e * 2654435761u) ^ (uint32_t)(team * 4 + rank + 1) * 40503u;
}

/* After CALLS sums in place: what the first one makes is the same on all ranks. */
static uint32_t right_of(int team, int size, size_t e)
{
    uint32_t sum = 0;
    for (int r = 0; r < size; r++)
        sum += input(team, r, e);
    for (int i = 1; i < CALLS; i++)
        sum *= (uint32_t)size;
    return sum;
}

static void open_rank(struct crossing *c, int team, int rank)
{
    const size_t bytes = COUNT * sizeof(uint32_t);
    MUST(cudaSetDevice(rank));
    MUST(cudaMalloc((void **)&c->input[team][rank], bytes));
    MUST(cudaMalloc((void **)&c->data[team][rank], bytes));
    MUST(cudaHostAlloc((void **)&c->found[team][rank], bytes, cudaHostAllocPortable));
    for (size_t e = 0; e < COUNT; e++)
        c->found[team][rank][e] = input(team, rank, e);
    MUST(cudaMemcpy(c->input[team][rank], c->found[team][rank], bytes, cudaMemcpyDefault));
    if (team == 0)
        MUST(cudaStreamCreateWithFlags(&c->second[rank], cudaStreamNonBlocking));
    MUST(cudaDeviceSynchronize());
}

static void close_rank(struct crossing *c, int team, int rank)
{
    MUST(cudaSetDevice(rank));
    MUST(cudaFree(c->input[team][rank]));
    MUST(cudaFree(c->data[team][rank]));
    MUST(cudaFreeHost(c->found[team][rank]));
    if (team == 0)
        MUST(cudaStreamDestroy(c->second[rank]));
}

/* The stream of a rank's call `i`. */
static cudaStream_t stream_of(const struct crossing *c, int team, int rank, int i)
{
    return team == 0 && i % 2 != 0 ? c->second[rank] : (cudaStream_t)c->teams[team]->streams[rank];
}

static bool queue_round(const struct crossing *c, int team, int rank)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    uint32_t *const data = c->data[team][rank];
    const size_t bytes = COUNT * sizeof *data;
    options.variant = TRIB_VARIANT_TWO_SHOT;
    MUST(cudaMemcpyAsync(data, c->input[team][rank], bytes, cudaMemcpyDeviceToDevice,
                         stream_of(c, team, rank, 0)));
    for (int i = 0; i < CALLS; i++)
        if (!CHECK_OK(trib_allreduce_with(c->teams[team]->comms[rank], data, data, COUNT, TRIB_U32,
                                          TRIB_SUM, &options, stream_of(c, team, rank, i))))
            return false;
    MUST(cudaMemcpyAsync(c->found[team][rank], data, bytes, cudaMemcpyDeviceToHost,
                         stream_of(c, team, rank, CALLS - 1)));
    return true;
}

/* Bounded, as team_wait is. */
static bool wait_for(cudaStream_t stream)
{
    const double end = check_now_ms() + PLENTY_MS;
    cudaError_t found = cudaErrorNotReady;
    while (found == cudaErrorNotReady && check_now_ms() < end)
        found = cudaStreamQuery(stream);
    return CHECK_MSG(found == cudaSuccess, "a stream is not done after %d ms: %s", PLENTY_MS,
                     cudaGetErrorString(found));
}

static bool run_round(const struct crossing *c, int team, int rank, int round)
{
    const int size = c->teams[team]->size;
    size_t wrong = 0;
    if (!queue_round(c, team, rank) || !wait_for(stream_of(c, team, rank, CALLS - 1)) ||
        !CHECK_OK(trib_comm_status(c->teams[team]->comms[rank])))
        return false;
    for (size_t e = 0; e < COUNT; e++)
        wrong += c->found[team][rank][e] != right_of(team, size, e);
    return CHECK_MSG(wrong == 0, "communicator %d, rank %d, round %d: %zu elements are wrong", team,
                     rank, round, wrong);
}

/* Threads 0 to size - 1 are the ranks of the first communicator, then come those of the second. A rank that
 * fails ends its communicator, for the others would wait for it. */
static void cross(int thread, int threads, void *argument)
{
    const struct crossing *c = argument;
    const int size = threads / TEAMS, team = thread / size, rank = thread % size;
    MUST(cudaSetDevice(rank));
    for (int round = 0; round < ROUNDS; round++)
        if (!team_go_on(c->teams[team], rank, run_round(c, team, rank, round)))
            return;
}

static void cross_all(const struct team *first, const struct team *second)
{
    struct crossing c = {.teams = {first, second}};
    for (int team = 0; team < TEAMS; team++)
        for (int rank = 0; rank < first->size; rank++)
            open_rank(&c, team, rank);
    check_ranks(TEAMS * first->size, cross, &c);
    for (int team = 0; team < TEAMS; team++)
        for (int rank = 0; rank < first->size; rank++)
            close_rank(&c, team, rank);
}

void crossing(const struct team *team)
{
    static struct team second;
    check_begin("%d ranks: two communicators at once, one on two streams", team->size);
    if (team_create(&second, team->backend, team->size, NULL)) {
        cross_all(team, &second);
        team_close(&second);
        team_destroy(&second);
    }
    check_end();
}
