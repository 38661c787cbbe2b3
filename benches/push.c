/* Push beside NCCL: microseconds of one small f32 allreduce, out of place, a thread for each GPU of
 * this process. Back to back from the host, and as a graph; and from the host with an event after each
 * call, which is what it takes to follow a caller who changes the stream. A sample is the mean of a row
 * of calls on the slowest rank. One result of each side and size is checked. */
#define _POSIX_C_SOURCE 200809L
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/bench.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/conformance/cuda_must.h"

enum { ROW = 100, WARMUP = 5, SAMPLES = 200, SAMPLES_MAX = 10000, MOST = 1 << 20 };
enum { PUSH, PUSH_EVENT, NCCL, SIDES };
enum { EAGER, GRAPH, WAYS };

static const size_t sizes[] = {1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, MOST};

/* One GPU's. */
struct rank {
    struct benched *all;
    pthread_t thread;
    int rank;
    cudaStream_t stream;
    cudaEvent_t begin, end, after;
    ncclComm_t comm;
    float *send, *recv;
    struct tri_push_control *control;
    double *us; /* of each sample */
};

struct benched {
    int size, samples;
    pthread_barrier_t barrier;
    struct rank ranks[TRI_PUSH_RANKS];
    struct tri_push call; /* but for `here` and `count` */
    size_t wrong;
};

static void nccl_must(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, ncclGetErrorString(result));
    exit(EXIT_FAILURE);
}
#define NCCL_MUST(call) nccl_must((call), #call)

/* ---- one rank */

static void queue_call(struct rank *r, int side, size_t count)
{
    if (side == NCCL) {
        NCCL_MUST(ncclAllReduce(r->send, r->recv, count, ncclFloat32, ncclSum, r->comm, r->stream));
        return;
    }
    const struct tri_push_rank here = {r->send, r->recv, r->control, r->rank};
    struct tri_push call = r->all->call;
    call.here = &here;
    call.count = count;
    BENCH_OK(tri_kernels_cuda.push(&call, (trib_stream)r->stream));
    if (side == PUSH_EVENT)
        MUST(cudaEventRecord(r->after, r->stream));
}

static cudaGraphExec_t capture(struct rank *r, int side, size_t count)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    MUST(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < ROW; i++)
        queue_call(r, side, count);
    MUST(cudaStreamEndCapture(r->stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphUpload(executable, r->stream));
    MUST(cudaStreamSynchronize(r->stream));
    MUST(cudaGraphDestroy(graph));
    return executable;
}

/* One row of calls; of `graph`, unless it is NULL. */
static double time_row(struct rank *r, int side, size_t count, cudaGraphExec_t graph)
{
    float ms = 0;
    pthread_barrier_wait(&r->all->barrier);
    MUST(cudaEventRecord(r->begin, r->stream));
    if (graph != NULL)
        MUST(cudaGraphLaunch(graph, r->stream));
    for (int i = 0; graph == NULL && i < ROW; i++)
        queue_call(r, side, count);
    MUST(cudaEventRecord(r->end, r->stream));
    MUST(cudaStreamSynchronize(r->stream));
    MUST(cudaEventElapsedTime(&ms, r->begin, r->end));
    return (double)ms * 1e3 / ROW;
}

/* Ranks have small integers; a result of either side is their sum. */
static float input_of(int rank, size_t i)
{
    return (float)((i + 3 * (size_t)rank) % 17);
}

static size_t count_wrong(struct rank *r, int side, size_t count)
{
    float *found = bench_must(malloc(count * sizeof *found));
    size_t wrong = 0;
    MUST(cudaMemsetAsync(r->recv, 0xff, count * sizeof *found, r->stream));
    queue_call(r, side, count);
    MUST(cudaMemcpyAsync(found, r->recv, count * sizeof *found, cudaMemcpyDeviceToHost, r->stream));
    MUST(cudaStreamSynchronize(r->stream));
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int p = 0; p < r->all->size; p++)
            sum += input_of(p, i);
        wrong += found[i] != sum;
    }
    free(found);
    return wrong;
}

/* The median and the 99th percentile over the samples, each that of the slowest rank. By one thread,
 * while the others wait. */
static void print_cell(struct benched *b)
{
    double *us = b->ranks[0].us;
    for (int i = 0; i < b->samples; i++)
        for (int r = 1; r < b->size; r++)
            us[i] = b->ranks[r].us[i] > us[i] ? b->ranks[r].us[i] : us[i];
    const struct bench_stats stats = bench_stats(us, (size_t)b->samples);
    printf(" %8.2f %8.2f", stats.median, stats.p99);
}

static void time_cell(struct rank *r, int side, int way, size_t count)
{
    struct benched *b = r->all;
    cudaGraphExec_t graph = way == GRAPH ? capture(r, side, count) : NULL;
    for (int i = -WARMUP; i < b->samples; i++) {
        const double us = time_row(r, side, count, graph);
        if (i >= 0)
            r->us[i] = us;
    }
    pthread_barrier_wait(&b->barrier);
    if (r->rank == 0)
        print_cell(b);
    pthread_barrier_wait(&b->barrier);
    if (graph != NULL)
        MUST(cudaGraphExecDestroy(graph));
}

static void *rank_main(void *argument)
{
    struct rank *r = argument;
    MUST(cudaSetDevice(r->rank));
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t count = sizes[s] / sizeof(float);
        if (r->rank == 0)
            printf("%8zu", sizes[s]);
        for (int way = 0; way < WAYS; way++)
            for (int side = 0; side < SIDES; side++)
                if (way == EAGER || side != PUSH_EVENT)
                    time_cell(r, side, way, count);
        size_t wrong = 0;
        for (int side = 0; side < SIDES; side++)
            wrong += count_wrong(r, side, count);
        __atomic_fetch_add(&r->all->wrong, wrong, __ATOMIC_RELAXED);
        pthread_barrier_wait(&r->all->barrier);
        if (r->rank == 0)
            printf(" %7zu\n", r->all->wrong);
    }
    return NULL;
}

/* ---- all ranks */

static void map_peers(int size)
{
    for (int r = 0; r < size; r++)
        for (int p = 0; p < size; p++) {
            if (p == r)
                continue;
            MUST(cudaSetDevice(r));
            const cudaError_t error = cudaDeviceEnablePeerAccess(p, 0);
            if (error != cudaErrorPeerAccessAlreadyEnabled)
                MUST(error);
            (void)cudaGetLastError();
        }
}

static void open_rank(struct benched *b, int rank, ncclComm_t comm)
{
    struct rank *r = &b->ranks[rank];
    const size_t scratch = tri_push_scratch_bytes(b->size, b->call.capacity);
    float *input = bench_must(malloc(MOST));
    *r = (struct rank){.all = b, .rank = rank, .comm = comm};
    MUST(cudaSetDevice(rank));
    tri_kernels_cuda.preload();
    MUST(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    MUST(cudaEventCreate(&r->begin));
    MUST(cudaEventCreate(&r->end));
    MUST(cudaEventCreateWithFlags(&r->after, cudaEventDisableTiming));
    MUST(cudaMalloc((void **)&r->send, MOST));
    MUST(cudaMalloc((void **)&r->recv, MOST));
    MUST(cudaMalloc((void **)&r->control, sizeof *r->control));
    MUST(cudaMalloc(&b->call.scratch[rank], scratch));
    for (size_t i = 0; i < MOST / sizeof *input; i++)
        input[i] = input_of(rank, i);
    MUST(cudaMemcpy(r->send, input, MOST, cudaMemcpyHostToDevice));
    MUST(cudaMemset(r->control, 0, sizeof *r->control));
    MUST(cudaMemset(b->call.scratch[rank], TRI_PUSH_EMPTY_BYTE, scratch));
    MUST(cudaDeviceSynchronize());
    r->us = bench_must(calloc((size_t)b->samples, sizeof *r->us));
    free(input);
}

static void close_rank(struct rank *r)
{
    MUST(cudaSetDevice(r->rank));
    NCCL_MUST(ncclCommDestroy(r->comm));
    MUST(cudaStreamDestroy(r->stream));
    MUST(cudaEventDestroy(r->begin));
    MUST(cudaEventDestroy(r->end));
    MUST(cudaEventDestroy(r->after));
    MUST(cudaFree(r->send));
    MUST(cudaFree(r->recv));
    MUST(cudaFree(r->control));
    MUST(cudaFree(r->all->call.scratch[r->rank]));
    free(r->us);
}

static void open_all(struct benched *b)
{
    ncclComm_t comms[TRI_PUSH_RANKS];
    map_peers(b->size);
    NCCL_MUST(ncclCommInitAll(comms, b->size, NULL));
    b->call = (struct tri_push){.n = 1,
                                .size = b->size,
                                .capacity = MOST / TRI_PUSH_CHUNK,
                                .dtype = TRIB_F32,
                                .op = TRIB_SUM,
                                .patience_ns = UINT64_C(10000000000)}; /* then results are wrong */
    MUST(cudaHostAlloc((void **)&b->call.abort_flag, sizeof(uint32_t),
                       cudaHostAllocPortable | cudaHostAllocMapped));
    *b->call.abort_flag = 0;
    for (int r = 0; r < b->size; r++)
        open_rank(b, r, comms[r]);
    if (pthread_barrier_init(&b->barrier, NULL, (unsigned)b->size) != 0)
        exit(EXIT_FAILURE);
}

static void print_heading(int size)
{
    struct cudaDeviceProp properties;
    int nccl = 0;
    MUST(cudaGetDeviceProperties(&properties, 0));
    NCCL_MUST(ncclGetVersion(&nccl));
    printf("%d x %s, NCCL %d: f32 sums, us a call in rows of %d, slowest rank: median and p99\n",
           size, properties.name, nccl, (int)ROW);
    printf("%8s %17s %17s %17s %17s %17s %7s\n", "bytes", "eager push", "and an event",
           "eager NCCL", "graph push", "graph NCCL", "wrong");
}

int main(int argc, char **argv)
{
    static struct benched b;
    bench_unnamed(argc, argv, 1, "[SAMPLES]: push beside NCCL on all GPUs of this machine");
    b.samples = argc > 1 ? bench_integer("SAMPLES", argv[1], 1, SAMPLES_MAX) : SAMPLES;
    if (cudaGetDeviceCount(&b.size) != cudaSuccess || b.size < 2) {
        fprintf(stderr, "%s: there are not two GPUs\n", argv[0]);
        return EXIT_FAILURE;
    }
    b.size = b.size < TRI_PUSH_RANKS ? b.size : TRI_PUSH_RANKS;
    open_all(&b);
    print_heading(b.size);
    for (int r = 0; r < b.size; r++)
        if (pthread_create(&b.ranks[r].thread, NULL, rank_main, &b.ranks[r]) != 0)
            return EXIT_FAILURE;
    for (int r = 0; r < b.size; r++)
        (void)pthread_join(b.ranks[r].thread, NULL);
    for (int r = 0; r < b.size; r++)
        close_rank(&b.ranks[r]);
    MUST(cudaFreeHost(b.call.abort_flag));
    return b.wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
