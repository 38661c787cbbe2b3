/* Lists: allreduce of the 161 gradients of ResNet-50 (25,557,032 floats), scattered in memory, as one
 * trib_allreduce_list and as one trib_weighted_average, beside one flat buffer, one call a tensor,
 * and the peer's group of 161 calls. */
#include <stdio.h>
#include <stdlib.h>

#include "benches/bench.h"
#include "benches/collective.h"

enum { MOST_TENSORS = 256, GAP = 4096 };

struct lists {
    trib_tensor tensors[BENCH_MAX_RANKS][MOST_TENSORS];
    void *flat[BENCH_MAX_RANKS];
    struct bench_call call[BENCH_MAX_RANKS];
    size_t n, elements;
};

static void add(size_t *counts, size_t *n, size_t weights, size_t channels)
{
    counts[(*n)++] = weights;
    counts[(*n)++] = channels; /* batch norm: scale, shift */
    counts[(*n)++] = channels;
}

/* The parameter tensors of ResNet-50 (He et al. 2015, table 1). */
static size_t resnet50(size_t *counts)
{
    static const size_t stages[4][3] = {{3, 64, 256}, {4, 128, 512}, {6, 256, 1024}, {3, 512, 2048}};
    size_t n = 0, in = 64;
    add(counts, &n, 7 * 7 * 3 * 64, 64);
    for (int stage = 0; stage < 4; stage++) {
        const size_t mid = stages[stage][1], out = stages[stage][2];
        for (size_t block = 0; block < stages[stage][0]; block++) {
            add(counts, &n, in * mid, mid);
            add(counts, &n, mid * mid * 9, mid);
            add(counts, &n, mid * out, out);
            if (block == 0)
                add(counts, &n, in * out, out);
            in = out;
        }
    }
    counts[n++] = 2048 * 1000;
    counts[n++] = 1000;
    return n;
}

static void make(const struct bench *bench, struct lists *lists)
{
    size_t counts[MOST_TENSORS];
    lists->n = resnet50(counts);
    lists->elements = 0;
    for (size_t i = 0; i < lists->n; i++)
        lists->elements += counts[i];
    float *zeros = calloc(lists->elements, sizeof(float));
    if (zeros == NULL)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < lists->elements; i++)
        zeros[i] = (float)(i % 1024) * 0x1p-10f;
    for (int rank = 0; rank < bench->ranks; rank++) {
        for (size_t i = 0; i < lists->n; i++) {
            float *data = bench_alloc(bench, rank, counts[i] * sizeof(float) + GAP);
            bench_copy(bench, rank, data, zeros, counts[i] * sizeof(float));
            lists->tensors[rank][i] = (trib_tensor){data, counts[i], TRIB_F32, 0};
        }
        lists->flat[rank] = bench_alloc(bench, rank, lists->elements * sizeof(float));
        bench_copy(bench, rank, lists->flat[rank], zeros, lists->elements * sizeof(float));
        lists->call[rank] = (struct bench_call){
            .collective = bench_collective_find("allreduce"), .send = lists->flat[rank],
            .recv = lists->flat[rank], .count = lists->elements, .dtype = TRIB_F32, .op = TRIB_AVG};
    }
    free(zeros);
}

static void drop(const struct bench *bench, struct lists *lists)
{
    for (int rank = 0; rank < bench->ranks; rank++) {
        for (size_t i = 0; i < lists->n; i++)
            bench_free(bench, rank, lists->tensors[rank][i].data);
        bench_free(bench, rank, lists->flat[rank]);
    }
}

static void run_list(const struct bench *bench, int rank, void *argument)
{
    struct lists *lists = argument;
    BENCH_OK(trib_allreduce_list(bench->comm[rank], lists->tensors[rank], lists->n, TRIB_AVG,
                                 bench->stream[rank]));
}

static void run_average(const struct bench *bench, int rank, void *argument)
{
    struct lists *lists = argument;
    BENCH_OK(trib_weighted_average(bench->comm[rank], lists->tensors[rank], lists->n,
                                   (float)(rank + 1), NULL, NULL, bench->stream[rank]));
}

static void run_flat(const struct bench *bench, int rank, void *argument)
{
    struct lists *lists = argument;
    BENCH_OK(trib_allreduce(bench->comm[rank], lists->flat[rank], lists->flat[rank],
                            lists->elements, TRIB_F32, TRIB_AVG, bench->stream[rank]));
}

static void run_each(const struct bench *bench, int rank, void *argument)
{
    struct lists *lists = argument;
    for (size_t i = 0; i < lists->n; i++) {
        const trib_tensor *tensor = &lists->tensors[rank][i];
        BENCH_OK(trib_allreduce(bench->comm[rank], tensor->data, tensor->data, tensor->count,
                                TRIB_F32, TRIB_AVG, bench->stream[rank]));
    }
}

static void run_batch(const struct bench *bench, int rank, void *argument)
{
    BENCH_OK(trib_batch_begin(bench->comm[rank]));
    run_each(bench, rank, argument);
    BENCH_OK(trib_batch_end(bench->comm[rank]));
}

static void run_peer_flat(const struct bench *bench, int rank, void *argument)
{
    (void)bench->peer->run(bench, rank, &((struct lists *)argument)->call[rank]);
}

static void run_peer_group(const struct bench *bench, int rank, void *argument)
{
    struct lists *lists = argument;
    bench->peer->run_list(bench, rank, lists->tensors[rank], lists->n, true);
}

static void run_peer_each(const struct bench *bench, int rank, void *argument)
{
    struct lists *lists = argument;
    bench->peer->run_list(bench, rank, lists->tensors[rank], lists->n, false);
}

int main(int argc, char **argv)
{
    static struct lists lists;
    struct bench bench;
    bench_open(&bench, argc > 1 ? argv[1] : NULL, argc > 2 ? atoi(argv[2]) : 0, 0);
    make(&bench, &lists);
    bench_print_setting(&bench);
    printf("# %zu tensors, %zu floats\n%-34s %10s %10s %10s\n", lists.n, lists.elements, "", "median",
           "p99", "queue");
    const struct {
        const char *name;
        bench_body body;
        bool list_of_peer;
    } rows[] = {
        {"trib_allreduce_list", run_list, false},
        {"trib_weighted_average", run_average, false},
        {"trib_allreduce, flat buffer", run_flat, false},
        {"trib_allreduce in a batch", run_batch, false},
        {"trib_allreduce, one a tensor", run_each, false},
        {"peer, flat buffer", run_peer_flat, false},
        {"peer, one group", run_peer_group, true},
        {"peer, one call a tensor", run_peer_each, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].list_of_peer && bench.peer->run_list == NULL)
            continue;
        const struct bench_result result = bench_time(&bench, rows[i].body, &lists, 5, 40);
        printf("%-34s %10.1f %10.1f %10.1f\n", rows[i].name, result.device.median,
               result.device.p99, result.host);
        fflush(stdout);
    }
    drop(&bench, &lists);
    bench_close(&bench);
    return EXIT_SUCCESS;
}
