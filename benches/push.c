/* Push beside NCCL: microseconds of one small call of f32, out of place, a thread for each GPU of this
 * process; `bytes` are those of its larger buffer. Bursts from the host, and as a graph; and from the host with an event after each call,
 * which is what it takes to follow a caller who changes the stream. One result of each side and size is
 * checked. */
#define _POSIX_C_SOURCE 200809L
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/burst.h"
#include "benches/collective.h"
#include "benches/cuda_device.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/conformance/cuda_peers.h"

enum {
    CALLS = 100,
    WARMUP = 5,
    SAMPLES = 200,
    SAMPLES_MAX = 10000,
    MOST = 8 << 20,
    USUAL = 2 << 20
};

static const size_t sizes[] = {1 << 10,   4 << 10, 16 << 10, 64 << 10, 256 << 10,
                               512 << 10, 1 << 20, USUAL,    4 << 20,  MOST};

static const struct kind {
    const char *name, *collective;
    enum tri_push_kind kind;
    size_t most; /* bytes */
} kinds[] = {{"allreduce", "allreduce", TRI_PUSH_ALLREDUCE, USUAL},
             {"two shot", "allreduce", TRI_PUSH_TWO_SHOT, MOST},
             {"reduce_scatter", "reduce_scatter", TRI_PUSH_REDUCE_SCATTER, MOST},
             {"allgather", "allgather", TRI_PUSH_ALLGATHER, MOST},
             {"alltoall", "alltoall", TRI_PUSH_ALLTOALL, MOST},
             {"broadcast", "broadcast", TRI_PUSH_BROADCAST, USUAL}};

struct benched {
    const struct kind *kind;
    struct tri_push call; /* but for `here`, `count` and `dtype` */
    struct bench_call buffers[TRI_PUSH_RANKS];
    struct tri_push_control *control[TRI_PUSH_RANKS];
    cudaEvent_t after[TRI_PUSH_RANKS];
    bench_body side;              /* that is checked */
    size_t wrong[TRI_PUSH_RANKS]; /* by it */
};

/* ---- the sides */

static void push(const struct bench *bench, int rank, void *argument)
{
    const struct benched *b = argument;
    const struct bench_call *buffers = &b->buffers[rank];
    const struct tri_push_rank here = {buffers->send, buffers->recv, b->control[rank], rank};
    struct tri_push call = b->call;
    call.here = &here;
    call.count = buffers->count * (tri_push_copies(call.kind) ? sizeof(float) : 1);
    call.dtype = tri_push_copies(call.kind) ? TRIB_U8 : TRIB_F32;
    bench_set_device(rank);
    BENCH_OK(tri_kernels_cuda.push(&call, bench->stream[rank]));
}

static void push_and_event(const struct bench *bench, int rank, void *argument)
{
    push(bench, rank, argument);
    CUDA_OK(cudaEventRecord(((const struct benched *)argument)->after[rank], bench->stream[rank]));
}

static void nccl(const struct bench *bench, int rank, void *argument)
{
    bench->peer->run(bench, rank, ((const struct benched *)argument)->buffers);
}

/* ---- one size */

static size_t wrong_on(const struct bench *bench, const struct bench_call *call, int rank)
{
    const size_t n = call->collective->recv_elements(call->count, bench->ranks);
    float *found = bench_must(malloc(n * sizeof *found));
    size_t wrong = 0;
    bench_copy(bench, rank, found, call->recv, n * sizeof *found);
    for (size_t i = 0; i < n; i++) {
        double expected = 0;
        (void)call->collective->expected(&expected, call, rank, bench->ranks, i);
        wrong += found[i] != (float)expected;
    }
    free(found);
    return wrong;
}

static void check(const struct bench *bench, int rank, void *argument)
{
    struct benched *b = argument;
    const struct bench_call *call = &b->buffers[rank];
    bench_set_device(rank);
    CUDA_OK(cudaMemsetAsync(call->recv, 0xff, MOST, bench->stream[rank]));
    b->side(bench, rank, b);
    bench_wait(bench, rank);
    b->wrong[rank] += wrong_on(bench, call, rank);
}

static size_t check_sides(const struct bench *bench, struct benched *b, const bench_body *sides,
                          int n)
{
    size_t wrong = 0;
    memset(b->wrong, 0, sizeof b->wrong);
    for (int side = 0; side < n; side++) {
        b->side = sides[side];
        bench_on_threads(bench, check, b);
    }
    for (int rank = 0; rank < bench->ranks; rank++)
        wrong += b->wrong[rank];
    return wrong;
}

static size_t bench_size(const struct bench *bench, struct benched *b, size_t bytes, int samples)
{
    const bench_body eager[] = {push, push_and_event, nccl}, graph[] = {push, nccl};
    struct bench_burst burst = {BENCH_EAGER, CALLS, WARMUP, samples};
    struct bench_result results[5];
    const bool blocks = tri_push_scatters(b->call.kind) || tri_push_gathers(b->call.kind);
    for (int rank = 0; rank < bench->ranks; rank++)
        b->buffers[rank].count = bytes / sizeof(float) / (blocks ? (size_t)bench->ranks : 1);
    bench_time_bursts(bench, &burst, eager, 3, b, results);
    burst.way = BENCH_GRAPH;
    bench_time_bursts(bench, &burst, graph, 2, b, results + 3);
    const size_t wrong = check_sides(bench, b, eager, 3);
    printf("%-14s %8zu", b->kind->name, bytes);
    for (int i = 0; i < 5; i++)
        printf(" %8.2f %8.2f", results[i].device.median, results[i].device.p99);
    printf(" %7zu\n", wrong);
    fflush(stdout);
    return wrong;
}

/* ---- one kind */

static void fill_rank(const struct bench *bench, int rank, const struct bench_call *call)
{
    float *input = bench_must(malloc(MOST));
    for (size_t i = 0; i < MOST / sizeof *input; i++)
        input[i] = (float)bench_input(call, rank, i);
    bench_copy(bench, rank, call->send, input, MOST);
    free(input);
}

static size_t bench_kind(const struct bench *bench, struct benched *b, size_t kind, int samples)
{
    size_t wrong = 0;
    b->kind = &kinds[kind];
    b->call.kind = kinds[kind].kind;
    for (int rank = 0; rank < bench->ranks; rank++) {
        b->buffers[rank].collective = bench_collective_find(kinds[kind].collective);
        fill_rank(bench, rank, &b->buffers[rank]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= kinds[kind].most; i++)
        wrong += bench_size(bench, b, sizes[i], samples);
    return wrong;
}

/* ---- all ranks */

static void open_rank(const struct bench *bench, struct benched *b, int rank)
{
    const size_t scratch = tri_push_scratch_bytes(bench->ranks, b->call.capacity);
    const struct bench_call call = {.send = bench_alloc(bench, rank, MOST),
                                    .recv = bench_alloc(bench, rank, MOST),
                                    .dtype = TRIB_F32,
                                    .op = TRIB_SUM};
    b->buffers[rank] = call;
    bench_set_device(rank);
    tri_kernels_cuda.preload();
    CUDA_OK(cudaEventCreateWithFlags(&b->after[rank], cudaEventDisableTiming));
    CUDA_OK(cudaMalloc((void **)&b->control[rank], sizeof *b->control[rank]));
    CUDA_OK(cudaMalloc(&b->call.scratch[rank], scratch));
    CUDA_OK(cudaMemset(b->control[rank], 0, sizeof *b->control[rank]));
    CUDA_OK(cudaMemset(b->call.scratch[rank], TRI_PUSH_EMPTY_BYTE, scratch));
    CUDA_OK(cudaDeviceSynchronize());
}

static void close_rank(const struct bench *bench, struct benched *b, int rank)
{
    bench_free(bench, rank, b->buffers[rank].send);
    bench_free(bench, rank, b->buffers[rank].recv);
    bench_set_device(rank);
    CUDA_OK(cudaEventDestroy(b->after[rank]));
    CUDA_OK(cudaFree(b->control[rank]));
    CUDA_OK(cudaFree(b->call.scratch[rank]));
}

static void open_all(struct bench *bench, struct benched *b, int size)
{
    bench_open(bench, "nccl", size, 0, 0);
    if (!cuda_map_peers(size))
        CUDA_OK(cudaErrorPeerAccessUnsupported);
    b->call = (struct tri_push){.n = 1,
                                .size = size,
                                .capacity = tri_push_chunks(MOST, TRIB_U8),
                                .op = TRIB_SUM,
                                .patience_ns = UINT64_C(10000000000)}; /* then results are wrong */
    CUDA_OK(cudaHostAlloc((void **)&b->call.abort_flag, sizeof(uint32_t),
                          cudaHostAllocPortable | cudaHostAllocMapped));
    *b->call.abort_flag = 0;
    for (int rank = 0; rank < size; rank++)
        open_rank(bench, b, rank);
}

static void close_all(struct bench *bench, struct benched *b)
{
    for (int rank = 0; rank < bench->ranks; rank++)
        close_rank(bench, b, rank);
    CUDA_OK(cudaFreeHost(b->call.abort_flag));
    bench_close(bench);
}

static void print_heading(int size)
{
    struct cudaDeviceProp properties;
    uint32_t version = 0;
    CUDA_OK(cudaGetDeviceProperties(&properties, 0));
    BENCH_OK(trib_backend_version(&version, "nccl"));
    printf("%d x %s, NCCL %u: f32, us a call in bursts of %d, slowest rank: median and p99\n", size,
           properties.name, version, (int)CALLS);
    printf("%-14s %8s %17s %17s %17s %17s %17s %7s\n", "collective", "bytes", "eager push",
           "and an event", "eager NCCL", "graph push", "graph NCCL", "wrong");
}

int main(int argc, char **argv)
{
    static struct benched b;
    struct bench bench;
    size_t wrong = 0;
    int size = 0;
    bench_unnamed(argc, argv, 1, "[SAMPLES]: push beside NCCL on all GPUs of this machine");
    const int samples = argc > 1 ? bench_integer("SAMPLES", argv[1], 1, SAMPLES_MAX) : (int)SAMPLES;
    if (cudaGetDeviceCount(&size) != cudaSuccess || size < 2) {
        fprintf(stderr, "%s: there are not two GPUs\n", argv[0]);
        return EXIT_FAILURE;
    }
    open_all(&bench, &b, size < TRI_PUSH_RANKS ? size : TRI_PUSH_RANKS);
    print_heading(bench.ranks);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        wrong += bench_kind(&bench, &b, kind, samples);
    close_all(&bench, &b);
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
