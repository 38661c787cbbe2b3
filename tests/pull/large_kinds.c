#include "tests/pull/large_kinds.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/check.h"
#include "tests/conformance/cuda_graph.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/numbers.h"

enum { RANKS = 2, PLENTY_MS = 20000, MOST = 4000003, REPLAYS = 50 };

/* What all calls of a case have, and of each rank: a part, all parts, and what the last rank has made. */
struct kinds {
    struct team *team;
    trib_variant variant;
    size_t count;
    float *part[RANKS], *all[RANKS], *swapped[RANKS], *copy[RANKS];
    float *host;
    _Atomic int ready, done; /* ranks that have their graph; that have replayed it */
};

static void open_kinds(struct kinds *k, struct team *team)
{
    *k = (struct kinds){.team = team, .host = malloc(MOST * sizeof(float))};
    for (int r = 0; r < RANKS; r++) {
        MUST(cudaSetDevice(r));
        MUST(cudaMalloc((void **)&k->part[r], MOST * sizeof(float)));
        MUST(cudaMalloc((void **)&k->all[r], RANKS * MOST * sizeof(float)));
        MUST(cudaMalloc((void **)&k->swapped[r], RANKS * MOST * sizeof(float)));
        MUST(cudaMalloc((void **)&k->copy[r], MOST * sizeof(float)));
    }
}

static void close_kinds(struct kinds *k)
{
    for (int r = 0; r < RANKS; r++) {
        MUST(cudaSetDevice(r));
        MUST(cudaFree(k->part[r]));
        MUST(cudaFree(k->all[r]));
        MUST(cudaFree(k->swapped[r]));
        MUST(cudaFree(k->copy[r]));
    }
    free(k->host);
}

/* What calls are to make. */
static void clear(const struct kinds *k, int rank, cudaStream_t stream)
{
    MUST(cudaMemsetAsync(k->all[rank], 0xff, RANKS * MOST * sizeof(float), stream));
    MUST(cudaMemsetAsync(k->swapped[rank], 0xff, RANKS * MOST * sizeof(float), stream));
    MUST(cudaMemsetAsync(k->copy[rank], 0xff, MOST * sizeof(float), stream));
}

static void fill(const struct kinds *k, int rank)
{
    for (size_t e = 0; e < k->count; e++)
        k->host[e] = numbers_of(rank, e);
    MUST(cudaSetDevice(rank));
    clear(k, rank, NULL);
    MUST(cudaMemcpy(k->part[rank], k->host, k->count * sizeof(float), cudaMemcpyDefault));
    MUST(cudaDeviceSynchronize());
}

/* All parts everywhere; of these, which are alike, each rank the sums of its own, in place; then the ranks swap
 * what they have; and the last rank's sums everywhere. */
static void queue(const struct kinds *k, int rank)
{
    trib_comm *const comm = k->team->comms[rank];
    const trib_stream stream = k->team->streams[rank];
    float *const sums = k->all[rank] + (size_t)rank * k->count;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = k->variant;
    team_go_on(
        k->team, rank,
        CHECK_OK(trib_allgather_with(comm, k->part[rank], k->all[rank], k->count, TRIB_F32,
                                     &options, stream)) &&
            CHECK_OK(trib_reduce_scatter_with(comm, k->all[rank], sums, k->count, TRIB_F32,
                                              TRIB_SUM, &options, stream)) &&
            CHECK_OK(trib_alltoall_with(comm, k->all[rank], k->swapped[rank], k->count, TRIB_F32,
                                        &options, stream)) &&
            CHECK_OK(trib_broadcast_with(comm, rank == RANKS - 1 ? sums : NULL, k->copy[rank],
                                         k->count, TRIB_F32, RANKS - 1, &options, stream)));
}

/* What is there is the input of rank `of`, `times` over. */
static void check_elements(const struct kinds *k, const char *what, int rank, const float *data,
                           int of, int times)
{
    size_t wrong = 0;
    MUST(cudaMemcpy(k->host, data, k->count * sizeof(float), cudaMemcpyDefault));
    for (size_t e = 0; e < k->count; e++)
        wrong += k->host[e] != (float)times * numbers_of(of, e);
    CHECK_MSG(wrong == 0, "rank %d: %zu of %zu %s elements are wrong", rank, wrong, k->count, what);
}

static void check_rank(const struct kinds *k, int rank)
{
    if (!team_finish(k->team, rank, PLENTY_MS))
        return;
    MUST(cudaSetDevice(rank));
    for (int r = 0; r < RANKS; r++) {
        const size_t part = (size_t)r * k->count;
        const int times = r == rank ? RANKS : 1;
        check_elements(k, "summed", rank, k->all[rank] + part, r, times);
        check_elements(k, "swapped", rank, k->swapped[rank] + part, rank, times);
    }
    check_elements(k, "copied", rank, k->copy[rank], RANKS - 1, RANKS);
}

/* Of all ranks, by this thread. */
static void run_once(const struct kinds *k)
{
    for (int r = 0; r < RANKS; r++)
        fill(k, r);
    for (int r = 0; r < RANKS; r++)
        queue(k, r);
    for (int r = 0; r < RANKS; r++)
        check_rank(k, r);
}

static void sizes(struct kinds *k)
{
    /* The most that push serves; from where pull takes a broadcast, too, on; with parts that begin at units, and
     * at elements. */
    static const size_t counts[] = {262144, 262145, 262148, NUMBERS_PULLED, 2097152, MOST};
    for (size_t i = 0; i < sizeof counts / sizeof *counts && team_usable(k->team); i++) {
        k->count = counts[i];
        check_begin("2 ranks: allgather, reduce_scatter, alltoall and broadcast of %zu", k->count);
        run_once(k);
        check_end();
    }
}

static uint64_t staged_of(const struct kinds *k, int rank)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, k->team->comms[rank]));
    return counters.staged_calls;
}

/* A rank's part lies where its peer does not map it. */
static void pinned(struct kinds *k)
{
    k->count = NUMBERS_PULLED;
    for (int r = 0; r < RANKS && team_usable(k->team); r++) {
        const uint64_t before = staged_of(k, r), other = staged_of(k, 1 - r);
        float *const part = k->part[r];
        check_begin("2 ranks: allgather of pinned memory of rank %d", r);
        MUST(cudaHostAlloc((void **)&k->part[r], k->count * sizeof(float), cudaHostAllocPortable));
        run_once(k);
        CHECK(staged_of(k, r) == before + 1 && staged_of(k, 1 - r) == other);
        MUST(cudaFreeHost(k->part[r]));
        k->part[r] = part;
        check_end();
    }
}

static cudaGraphExec_t capture(const struct kinds *k, int rank)
{
    const cudaStream_t stream = k->team->streams[rank];
    MUST(cudaSetDevice(rank));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    queue(k, rank);
    return cuda_end_capture(stream);
}

/* CUDA may wait for devices when it makes an executable graph and when it destroys one, so none runs then. */
static void replay(int rank, int size, void *argument)
{
    struct kinds *k = argument;
    const cudaStream_t stream = k->team->streams[rank];
    const cudaGraphExec_t executable = capture(k, rank);
    team_barrier(&k->ready, size);
    for (int i = 0; i < REPLAYS; i++) {
        if (i == REPLAYS - 1)
            clear(k, rank, stream);
        MUST(cudaGraphLaunch(executable, stream));
        if (i % 7 == 0 && i < REPLAYS - 1)
            queue(k, rank);
    }
    team_finish(k->team, rank, PLENTY_MS);
    team_barrier(&k->done, size);
    MUST(cudaGraphExecDestroy(executable));
}

static void graph(struct kinds *k, trib_variant variant, size_t count)
{
    k->variant = variant;
    k->count = count;
    k->ready = k->done = 0;
    check_begin("2 ranks: a graph of these of %zu by %s %d times, and calls between", count,
                trib_variant_name(variant), (int)REPLAYS);
    for (int r = 0; r < RANKS; r++)
        fill(k, r);
    check_ranks(RANKS, replay, k);
    for (int r = 0; r < RANKS; r++)
        check_rank(k, r);
    check_end();
}

static void graphs(struct kinds *k)
{
    static const struct {
        trib_variant variant;
        size_t count;
    } all[] = {{TRIB_VARIANT_AUTO, NUMBERS_PULLED}, {TRIB_VARIANT_NCCL, 1003},
               {TRIB_VARIANT_PUSH, 1003},           {TRIB_VARIANT_PUSH, 65536},
               {TRIB_VARIANT_ONE_SHOT, 1003},       {TRIB_VARIANT_ONE_SHOT, NUMBERS_PULLED}};
    for (size_t i = 0; i < sizeof all / sizeof *all && team_usable(k->team); i++)
        graph(k, all[i].variant, all[i].count);
}

void large_kinds(struct team *team)
{
    struct kinds k;
    open_kinds(&k, team);
    sizes(&k);
    pinned(&k);
    graphs(&k);
    close_kinds(&k);
}
