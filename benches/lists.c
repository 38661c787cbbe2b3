/* Lists: allreduce of the 161 gradients of ResNet-50 (25,557,032 floats), scattered in memory, or of
 * TENSORSxFLOATS, as one trib_allreduce_list and as one trib_weighted_average, beside one flat buffer,
 * one call per tensor, and the peer's group of as many calls. The results of the two are checked
 * once, element by element, before anything is timed. The tensors are allocations of their own, or,
 * TENSORSxFLOATSinBYTES, lie in blocks of so many bytes, as a caching allocator cuts them. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/bench.h"
#include "benches/collective.h"
#include "benches/processes.h"
#include "benches/resnet50.h"

enum { MOST_TENSORS = 4096, GAP = 4096, BLOCK_GAP = 512 };

struct lists {
    trib_tensor tensors[BENCH_MAX_RANKS][MOST_TENSORS];
    void *flat[BENCH_MAX_RANKS];
    struct bench_call call[BENCH_MAX_RANKS];
    size_t n, elements;
    size_t counts[MOST_TENSORS];
    size_t block; /* bytes of the allocations that hold the tensors; 0: one for each */
    void *blocks[BENCH_MAX_RANKS][MOST_TENSORS];
    size_t nblocks;
    float *host; /* room for the elements of one rank */
};

/* Weights of the ranks are 1, 2, 3, ... */
static float weight_of(int rank)
{
    return (float)(rank + 1);
}

static float total_weight(int ranks)
{
    return (float)(ranks * (ranks + 1) / 2);
}

/* Element `i` of all tensors, averaged over the ranks by their weights. */
static float average(int ranks, size_t i)
{
    (void)ranks;
    return (float)(i % 1021);
}

/* Element `i` on `rank`: small integers, so that sums and averages are exact in every order. Rank 0
 * is above the average by as much as the others, by their weights, are below it. */
static float input(int rank, int ranks, size_t i)
{
    return average(ranks, i) + (rank == 0 ? total_weight(ranks) - 1 : -1);
}

/* Element `i` of the sum over the ranks. */
static float sum(int ranks, size_t i)
{
    return (float)ranks * average(ranks, i) + total_weight(ranks) - (float)ranks;
}

static void fill(const struct bench *bench, struct lists *lists)
{
    for (int rank = bench->first; rank < bench->end; rank++) {
        const float *next = lists->host;
        for (size_t i = 0; i < lists->elements; i++)
            lists->host[i] = input(rank, bench->ranks, i);
        for (size_t i = 0; i < lists->n; i++) {
            const trib_tensor *tensor = &lists->tensors[rank][i];
            bench_copy(bench, rank, tensor->data, next, tensor->count * sizeof(float));
            next += tensor->count;
        }
    }
}

/* "2000x1000", "2000x1000in2M". */
static void read_shape(struct lists *lists, const char *text)
{
    char *end = NULL;
    const unsigned long long n = strtoull(text, &end, 10);
    const unsigned long long count = *end == 'x' ? strtoull(end + 1, &end, 10) : 0;
    double block = 0;
    if (strncmp(end, "in", 2) == 0)
        (void)bench_numbers("block", end + 2, 1, 1e12, &block, 1);
    else if (*end != '\0')
        end = NULL;
    const size_t bytes = (size_t)count * sizeof(float) + BLOCK_GAP;
    if (end == NULL || n < 1 || n > MOST_TENSORS || count < 1 || count > UINT32_MAX ||
        (block != 0 && (size_t)block < bytes)) {
        fprintf(stderr,
                "\"%s\" is no shape: expected resnet50, or up to %d tensors, as 2000x1000 or "
                "2000x1000in2M\n",
                text, (int)MOST_TENSORS);
        exit(EXIT_FAILURE);
    }
    lists->n = (size_t)n;
    lists->block = (size_t)block;
    for (size_t i = 0; i < lists->n; i++)
        lists->counts[i] = (size_t)count;
}

static void choose_shape(struct lists *lists, const char *text)
{
    if (strcmp(text, "resnet50") == 0) {
        resnet50(lists->counts);
        lists->n = RESNET50_TENSORS;
    } else {
        read_shape(lists, text);
    }
    for (size_t i = 0; i < lists->n; i++)
        lists->elements += lists->counts[i];
}

/* Tensor `i` takes the next place: in the newest block, or a new one. `*at`: what is used of that. */
static void *place(const struct bench *bench, struct lists *lists, int rank, size_t i, size_t *at)
{
    const size_t bytes = lists->counts[i] * sizeof(float);
    const size_t whole = (bytes + BLOCK_GAP - 1) / BLOCK_GAP * BLOCK_GAP;
    const size_t block = lists->block == 0 ? bytes + GAP : lists->block;
    if (lists->block == 0 || lists->nblocks == 0 || *at + bytes > block) {
        lists->blocks[rank][lists->nblocks++] = bench_alloc(bench, rank, block);
        *at = 0;
    }
    void *data = (char *)lists->blocks[rank][lists->nblocks - 1] + *at;
    *at += whole;
    return data;
}

static void make(const struct bench *bench, struct lists *lists)
{
    const size_t bytes = lists->elements * sizeof(float);
    lists->host = bench_must(calloc(lists->elements, sizeof(float)));
    for (int rank = bench->first; rank < bench->end; rank++) {
        size_t at = lists->nblocks = 0;
        for (size_t i = 0; i < lists->n; i++)
            lists->tensors[rank][i] =
                (trib_tensor){place(bench, lists, rank, i, &at), lists->counts[i], TRIB_F32, 0};
        lists->flat[rank] = bench_alloc(bench, rank, bytes);
        bench_copy(bench, rank, lists->flat[rank], lists->host, bytes);
        lists->call[rank] = bench_flat_call(lists->flat[rank], lists->elements);
    }
}

static void drop(const struct bench *bench, struct lists *lists)
{
    for (int rank = bench->first; rank < bench->end; rank++) {
        for (size_t i = 0; i < lists->nblocks; i++)
            bench_free(bench, rank, lists->blocks[rank][i]);
        bench_free(bench, rank, lists->flat[rank]);
    }
    free(lists->host);
}

/* Of the check: an average of 1/3 would be exact on no backend. */
static void run_sum(const struct bench *bench, int rank, void *argument)
{
    struct lists *lists = argument;
    BENCH_OK(trib_allreduce_list(bench->comm[rank], lists->tensors[rank], lists->n, TRIB_SUM,
                                 bench->stream[rank]));
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
                                   weight_of(rank), NULL, NULL, bench->stream[rank]));
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
    bench->peer->run(bench, rank, ((struct lists *)argument)->call);
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

/* The rank's tensors, one after the other, in lists->host. */
static void fetch(const struct bench *bench, int rank, struct lists *lists)
{
    float *next = lists->host;
    for (size_t i = 0; i < lists->n; i++) {
        const trib_tensor *tensor = &lists->tensors[rank][i];
        bench_copy(bench, rank, next, tensor->data, tensor->count * sizeof(float));
        next += tensor->count;
    }
}

/* Elements, over all ranks, that are not what `expected` says after a call, and after another one of the same list. */
static size_t wrong_after(const struct bench *bench, struct lists *lists,
                          void (*run)(const struct bench *bench, int rank, void *argument),
                          float (*expected)(int ranks, size_t i))
{
    size_t wrong = 0;
    for (int call = 0; call < 2; call++) {
        fill(bench, lists);
        (void)bench_time(bench, run, lists, 0, 1);
        for (int rank = bench->first; rank < bench->end; rank++) {
            fetch(bench, rank, lists);
            for (size_t i = 0; i < lists->elements; i++)
                wrong += lists->host[i] != expected(bench->ranks, i);
        }
    }
    return bench_sum(bench, wrong);
}

static size_t count_wrong(const struct bench *bench, struct lists *lists)
{
    return wrong_after(bench, lists, run_sum, sum) +
           wrong_after(bench, lists, run_average, average);
}

static const struct {
    const char *name;
    bench_body body;
    bool list_of_peer;
} rows[] = {
    {"trib_allreduce_list", run_list, false},
    {"trib_weighted_average", run_average, false},
    {"trib_allreduce, flat buffer", run_flat, false},
    {"trib_allreduce in a batch", run_batch, false},
    {"trib_allreduce, one per tensor", run_each, false},
    {"peer, flat buffer", run_peer_flat, false},
    {"peer, one group", run_peer_group, true},
    {"peer, one call per tensor", run_peer_each, true},
};

static void measure(const struct bench *bench, struct lists *lists, int iterations)
{
    printf("%-34s %10s %10s %10s\n", "", "median", "p99", "queue");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].list_of_peer && bench->peer->run_list == NULL)
            continue;
        const struct bench_result result =
            bench_time(bench, rows[i].body, lists, iterations < 5 ? iterations : 5, iterations);
        printf("%-34s %10.1f %10.1f %10.1f\n", rows[i].name, result.device.median,
               result.device.p99, result.host);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static struct lists lists;
    struct bench bench;
    bench_unnamed(argc, argv, 5, "[backend [ranks [iterations [shape [unchecked|processes]]]]]");
    int ranks = argc > 2 ? bench_integer("ranks", argv[2], 1, BENCH_MAX_RANKS) : 0;
    const int iterations = argc > 3 ? bench_integer("iterations", argv[3], 1, INT_MAX) : 40;
    choose_shape(&lists, argc > 4 ? argv[4] : "resnet50");
    const bool unchecked = argc > 5 && strcmp(argv[5], "unchecked") == 0;
    const bool processes = argc > 5 && strcmp(argv[5], "processes") == 0;
    if (argc > 5 && !unchecked && !processes) {
        fprintf(stderr, "\"%s\": expected \"unchecked\", \"processes\" or nothing\n", argv[5]);
        return EXIT_FAILURE;
    }
    if (processes)
        ranks = bench_fork(argv[1], ranks);
    bench_open(&bench, argc > 1 ? argv[1] : NULL, ranks, 0, unchecked ? TRIB_UNCHECKED : 0);
    make(&bench, &lists);
    bench_print_setting(&bench);
    const size_t wrong = count_wrong(&bench, &lists);
    printf("# %zu tensors in %zu allocations, %zu floats, %zu wrong elements\n", lists.n,
           lists.nblocks, lists.elements, wrong);
    measure(&bench, &lists, iterations);
    drop(&bench, &lists);
    bench_close(&bench);
    return bench_status(wrong == 0);
}
