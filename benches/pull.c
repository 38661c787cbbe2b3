/* Pull beside NCCL: microseconds of one middle or large f32 allreduce, a thread for each GPU of this
 * process, in bursts from the host and as a graph. Sums out of place; maxima in place, which stay as they
 * are from call to call. Beside them, only here, sums that every rank adds to the results of all (remote.h).
 * Every element of one result of each side and size is checked. */
#define _POSIX_C_SOURCE 200809L
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/burst.h"
#include "benches/collective.h"
#include "benches/cuda_device.h"
#include "benches/remote.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/conformance/cuda_peers.h"

enum { WARMUP = 2, RUNS = 20, RUNS_MAX = 10000, MIB_MAX = 1024 };
enum { SCRATCH = (16 << 20) - (128 << 10) }; /* as a lane of the nccl backend */
#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {MIB / 4,  MIB / 2,  MIB,      2 * MIB,   4 * MIB,   8 * MIB,
                               16 * MIB, 32 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB};

struct benched {
    struct tri_pull call;                       /* but for `here`, `count`, `op` and `way` */
    struct bench_call apart[TRI_PULL_RANKS];    /* sums */
    struct bench_call in_place[TRI_PULL_RANKS]; /* maxima */
    uint32_t *signal[TRI_PULL_RANKS];           /* an element, of a call that is a barrier */
    uint32_t *locks[TRI_PULL_RANKS];
    size_t most;                  /* bytes of a buffer */
    int side;                     /* that is checked */
    size_t wrong[TRI_PULL_RANKS]; /* by it */
};

/* ---- the sides */

static void pull(const struct bench *bench, int rank, const struct benched *b,
                 const struct bench_call *buffers, enum tri_pull_way way, bool mapped)
{
    const struct tri_pull_rank here = {
        .send = buffers->send, .recv = buffers->recv, .mapped = mapped, .rank = rank};
    struct tri_pull call = b->call;
    call.here = &here;
    call.count = buffers->count;
    call.op = buffers->op;
    call.way = way;
    bench_set_device(rank);
    BENCH_OK(tri_kernels_cuda.pull(&call, bench->stream[rank]));
}

static void one_shot(const struct bench *bench, int rank, void *argument)
{
    const struct benched *b = argument;
    pull(bench, rank, b, &b->apart[rank], TRI_PULL_ONE_SHOT, true);
}

static void two_shot(const struct bench *bench, int rank, void *argument)
{
    const struct benched *b = argument;
    pull(bench, rank, b, &b->apart[rank], TRI_PULL_TWO_SHOT, true);
}

static void two_shot_in_place(const struct bench *bench, int rank, void *argument)
{
    const struct benched *b = argument;
    pull(bench, rank, b, &b->in_place[rank], TRI_PULL_TWO_SHOT, true);
}

/* As if rank 0 had memory that nobody else maps. */
static void staged(const struct bench *bench, int rank, void *argument)
{
    const struct benched *b = argument;
    pull(bench, rank, b, &b->apart[rank], TRI_PULL_TWO_SHOT, rank != 0);
}

static void barrier(const struct bench *bench, int rank, const struct benched *b)
{
    const struct bench_call call = {
        .send = b->signal[rank], .recv = b->signal[rank], .count = 1, .op = TRIB_MAX};
    pull(bench, rank, b, &call, TRI_PULL_TWO_SHOT, true);
}

/* Into zeros, and between barriers. */
static void add_remotely(const struct bench *bench, int rank, const struct benched *b, bool locked)
{
    struct bench_remote call = {.send = b->apart[rank].send,
                                .count = b->apart[rank].count,
                                .size = bench->ranks,
                                .rank = rank,
                                .locked = locked};
    for (int r = 0; r < bench->ranks; r++) {
        call.recv[r] = b->apart[r].recv;
        call.locks[r] = b->locks[r];
    }
    bench_set_device(rank);
    CUDA_OK(cudaMemsetAsync(call.recv[rank], 0, call.count * sizeof(float), bench->stream[rank]));
    barrier(bench, rank, b);
    if (!bench_remote_add(&call, bench->stream[rank]))
        CUDA_OK(cudaGetLastError());
    barrier(bench, rank, b);
}

static void atomic(const struct bench *bench, int rank, void *argument)
{
    add_remotely(bench, rank, argument, false);
}

static void spinlock(const struct bench *bench, int rank, void *argument)
{
    add_remotely(bench, rank, argument, true);
}

static void nccl(const struct bench *bench, int rank, void *argument)
{
    bench->peer->run(bench, rank, ((const struct benched *)argument)->apart);
}

static void nccl_in_place(const struct bench *bench, int rank, void *argument)
{
    bench->peer->run(bench, rank, ((const struct benched *)argument)->in_place);
}

enum { AT_ONCE = 3, SIDES = 8 };
static const bench_body sides[SIDES] = {one_shot, two_shot,      nccl,   two_shot_in_place,
                                        staged,   nccl_in_place, atomic, spinlock};
static const char *const names[SIDES] = {"one shot", "two shot",      "NCCL",   "two shot in place",
                                         "staged",   "NCCL in place", "atomic", "spinlock"};

/* ---- one size */

/* Ranks have small integers, so a sum is exact. */
static float input_of(int rank, size_t i)
{
    return (float)((i + 3 * (size_t)rank) % 17);
}

static float expected_of(int ranks, trib_op op, size_t i)
{
    float result = 0;
    for (int p = 0; p < ranks; p++) {
        const float x = input_of(p, i);
        result = op == TRIB_SUM ? result + x : x > result ? x : result;
    }
    return result;
}

static size_t wrong_on(const struct bench *bench, const struct bench_call *call, int rank)
{
    const size_t bytes = call->count * sizeof(float);
    float *found = bench_must(malloc(bytes));
    size_t wrong = 0;
    bench_copy(bench, rank, found, call->recv, bytes);
    for (size_t i = 0; i < call->count; i++)
        wrong += found[i] != expected_of(bench->ranks, call->op, i);
    free(found);
    return wrong;
}

static void check(const struct bench *bench, int rank, void *argument)
{
    struct benched *b = argument;
    const bool apart = sides[b->side] != two_shot_in_place && sides[b->side] != nccl_in_place;
    const struct bench_call *call = apart ? &b->apart[rank] : &b->in_place[rank];
    const size_t bytes = call->count * sizeof(float);
    bench_set_device(rank);
    if (apart)
        CUDA_OK(cudaMemsetAsync(call->recv, 0xff, bytes, bench->stream[rank]));
    else
        CUDA_OK(cudaMemcpyAsync(call->recv, b->apart[rank].send, bytes, cudaMemcpyDeviceToDevice,
                                bench->stream[rank]));
    sides[b->side](bench, rank, b);
    bench_wait(bench, rank);
    b->wrong[rank] += wrong_on(bench, call, rank);
}

static size_t check_side(const struct bench *bench, struct benched *b, int side)
{
    size_t wrong = 0;
    memset(b->wrong, 0, sizeof b->wrong);
    b->side = side;
    bench_on_threads(bench, check, b);
    for (int rank = 0; rank < bench->ranks; rank++)
        wrong += b->wrong[rank];
    return wrong;
}

static int calls_of(size_t bytes)
{
    return bytes <= 4 * MIB ? 50 : bytes <= 64 * MIB ? 20 : 5;
}

static size_t bench_size(const struct bench *bench, struct benched *b, size_t bytes, int runs)
{
    struct bench_burst burst = {BENCH_EAGER, calls_of(bytes), WARMUP, runs};
    struct bench_result eager[SIDES], graph[SIDES];
    size_t all = 0;
    for (int rank = 0; rank < bench->ranks; rank++)
        b->apart[rank].count = b->in_place[rank].count = bytes / sizeof(float);
    for (int first = 0; first < SIDES; first += AT_ONCE) {
        const int n = SIDES - first < AT_ONCE ? SIDES - first : AT_ONCE;
        burst.way = BENCH_EAGER;
        bench_time_bursts(bench, &burst, sides + first, n, b, eager + first);
        burst.way = BENCH_GRAPH;
        bench_time_bursts(bench, &burst, sides + first, n, b, graph + first);
    }
    for (int side = 0; side < SIDES; side++) {
        const size_t wrong = check_side(bench, b, side);
        printf("%5g  %-18s %9.2f %9.2f %9.2f %9.2f %8zu\n", (double)bytes / (double)MIB,
               names[side], eager[side].device.median, eager[side].device.p99,
               graph[side].device.median, graph[side].device.p99, wrong);
        all += wrong;
    }
    fflush(stdout);
    return all;
}

/* ---- all ranks */

static void *peers_alloc(int rank, size_t bytes)
{
    void *data = NULL;
    bench_set_device(rank);
    CUDA_OK(cudaMalloc(&data, bytes));
    return data;
}

static void open_rank(const struct bench *bench, struct benched *b, int rank)
{
    struct bench_call call = {.collective = bench_collective_find("allreduce"),
                              .send = peers_alloc(rank, b->most),
                              .recv = peers_alloc(rank, b->most),
                              .dtype = TRIB_F32,
                              .op = TRIB_SUM};
    float *input = bench_must(malloc(b->most));
    b->apart[rank] = call;
    for (size_t i = 0; i < b->most / sizeof *input; i++)
        input[i] = input_of(rank, i);
    bench_copy(bench, rank, call.send, input, b->most);
    call.send = call.recv = peers_alloc(rank, b->most);
    call.op = TRIB_MAX;
    b->in_place[rank] = call;
    bench_copy(bench, rank, call.send, input, b->most);
    free(input);
    b->call.control[rank] = peers_alloc(rank, sizeof *b->call.control[rank]);
    b->call.scratch[rank] = peers_alloc(rank, SCRATCH);
    b->signal[rank] = peers_alloc(rank, sizeof *b->signal[rank]);
    b->locks[rank] = peers_alloc(rank, BENCH_LOCKS * sizeof *b->locks[rank]);
    CUDA_OK(cudaMemset(b->call.control[rank], 0, sizeof *b->call.control[rank]));
    CUDA_OK(cudaMemset(b->locks[rank], 0, BENCH_LOCKS * sizeof *b->locks[rank]));
    CUDA_OK(cudaMemset(b->signal[rank], 0, sizeof *b->signal[rank]));
    CUDA_OK(cudaDeviceSynchronize());
    tri_kernels_cuda.preload();
}

static void close_rank(struct benched *b, int rank)
{
    bench_set_device(rank);
    CUDA_OK(cudaFree(b->apart[rank].send));
    CUDA_OK(cudaFree(b->apart[rank].recv));
    CUDA_OK(cudaFree(b->in_place[rank].send));
    CUDA_OK(cudaFree(b->call.control[rank]));
    CUDA_OK(cudaFree(b->call.scratch[rank]));
    CUDA_OK(cudaFree(b->signal[rank]));
    CUDA_OK(cudaFree(b->locks[rank]));
}

static void open_all(struct bench *bench, struct benched *b, int size, int blocks)
{
    bench_open(bench, "nccl", size, 0, 0);
    if (!cuda_map_peers(size))
        CUDA_OK(cudaErrorPeerAccessUnsupported);
    b->call = (struct tri_pull){.n = 1,
                                .scratch_bytes = SCRATCH,
                                .size = size,
                                .blocks = blocks,
                                .dtype = TRIB_F32,
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
        close_rank(b, rank);
    CUDA_OK(cudaFreeHost(b->call.abort_flag));
    bench_close(bench);
}

static void print_heading(int size, int blocks)
{
    struct cudaDeviceProp properties;
    uint32_t version = 0;
    CUDA_OK(cudaGetDeviceProperties(&properties, 0));
    BENCH_OK(trib_backend_version(&version, "nccl"));
    printf("%d x %s, NCCL %u, blocks %d (0: the default): f32, us a call in bursts, slowest rank: "
           "median and p99\n",
           size, properties.name, version, blocks);
    printf("%5s  %-18s %19s %19s %8s\n", "MiB", "", "eager", "graph", "wrong");
}

int main(int argc, char **argv)
{
    static struct benched b;
    struct bench bench;
    size_t wrong = 0;
    int size = 0;
    bench_unnamed(argc, argv, 3,
                  "[RUNS [BLOCKS [MIB]]]: pull beside NCCL on all GPUs of this machine, "
                  "up to MIB MiB");
    const int runs = argc > 1 ? bench_integer("RUNS", argv[1], 1, RUNS_MAX) : (int)RUNS;
    const int blocks = argc > 2 ? bench_integer("BLOCKS", argv[2], 0, TRI_PULL_BLOCKS) : 0;
    const int mib = argc > 3 ? bench_integer("MIB", argv[3], 2, MIB_MAX) : (int)MIB_MAX;
    if (cudaGetDeviceCount(&size) != cudaSuccess || size < 2) {
        fprintf(stderr, "%s: there are not two GPUs\n", argv[0]);
        return EXIT_FAILURE;
    }
    b.most = (size_t)mib * MIB;
    open_all(&bench, &b, size < TRI_PULL_RANKS ? size : TRI_PULL_RANKS, blocks);
    print_heading(bench.ranks, blocks);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= b.most; i++)
        wrong += bench_size(&bench, &b, sizes[i], runs);
    close_all(&bench, &b);
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
