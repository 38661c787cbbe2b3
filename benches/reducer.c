/* The reducer: a step over the 161 gradients of ResNet-50 (25,557,032 floats), all of them ready at
 * once, in buckets of several sizes, views and copies, weighted and sparse, beside one flat buffer
 * and the peer's group of 161 calls. The results are checked once, element by element, before
 * anything is timed.
 *
 * With a fourth argument also a step whose gradients get ready one by one, as in a backward pass that
 * takes so many times as long as the step above: "exposed" is how long the caller's stream waits in
 * finish, on the rank that comes last, and "hidden" the share of the step for which it does not. The
 * GPU has nothing else to do meanwhile; what a true backward pass and the communication take from each
 * other, torch_reducer.py measures. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "benches/arguments.h"
#include "benches/bench.h"
#include "benches/busy.h"
#include "benches/collective.h"
#include "benches/resnet50.h"

enum { GAP = 4096, MIB = 1 << 20 };

/* What a row's reducers are created with. */
struct form {
    const char *name;
    uint32_t flags;
    bool weighted, sparse;
    int bucket_mib; /* 0: the default */
};

struct gradients {
    trib_tensor tensors[BENCH_MAX_RANKS][RESNET50_TENSORS];
    void *flat[BENCH_MAX_RANKS];
    float *weight[BENCH_MAX_RANKS];
    struct bench_call call[BENCH_MAX_RANKS];
    size_t elements;
    float *host; /* room for the elements of one rank */
    const struct form *form;
    double busy_us; /* before each gradient of a backward pass */
    trib_reducer *reducers[BENCH_MAX_RANKS];
};

/* Element `i` on `rank`: small integers, so that sums are exact in every order, and their average
 * over a number of ranks that is a power of two. */
static float input(int rank, size_t i)
{
    return (float)((i % 509) * 4 + (size_t)rank);
}

static float average(int ranks, size_t i)
{
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++)
        sum += input(rank, i);
    return sum / (float)ranks;
}

static void make(const struct bench *bench, struct gradients *gradients)
{
    static const float weight = 1;
    size_t counts[RESNET50_TENSORS];
    resnet50(counts);
    for (size_t i = 0; i < RESNET50_TENSORS; i++)
        gradients->elements += counts[i];
    gradients->host = bench_must(calloc(gradients->elements, sizeof(float)));
    for (int rank = 0; rank < bench->ranks; rank++) {
        for (size_t i = 0; i < RESNET50_TENSORS; i++)
            gradients->tensors[rank][i] = (trib_tensor){
                bench_alloc(bench, rank, counts[i] * sizeof(float) + GAP), counts[i], TRIB_F32, 0};
        gradients->flat[rank] = bench_alloc(bench, rank, gradients->elements * sizeof(float));
        gradients->weight[rank] = bench_alloc(bench, rank, sizeof weight);
        bench_copy(bench, rank, gradients->weight[rank], &weight, sizeof weight);
        gradients->call[rank] = bench_flat_call(gradients->flat[rank], gradients->elements);
    }
}

static void drop(const struct bench *bench, struct gradients *gradients)
{
    for (int rank = 0; rank < bench->ranks; rank++) {
        for (size_t i = 0; i < RESNET50_TENSORS; i++)
            bench_free(bench, rank, gradients->tensors[rank][i].data);
        bench_free(bench, rank, gradients->flat[rank]);
        bench_free(bench, rank, gradients->weight[rank]);
    }
    free(gradients->host);
}

/* Gradients are passed in the order in which a backward pass makes them: the last one first. */
static void create(const struct bench *bench, int rank, void *argument)
{
    struct gradients *gradients = argument;
    const struct form *form = gradients->form;
    trib_tensor reversed[RESNET50_TENSORS];
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    sparse.algorithm = "topka";
    options.flags = form->flags;
    options.bucket_bytes = (uint64_t)form->bucket_mib * MIB;
    options.device_weight = form->weighted ? gradients->weight[rank] : NULL;
    options.sparse = form->sparse ? &sparse : NULL;
    for (size_t i = 0; i < RESNET50_TENSORS; i++)
        reversed[i] = gradients->tensors[rank][RESNET50_TENSORS - 1 - i];
    BENCH_OK(trib_reducer_create(&gradients->reducers[rank], bench->comm[rank], reversed,
                                 RESNET50_TENSORS, &options));
}

static void destroy(const struct bench *bench, int rank, void *argument)
{
    struct gradients *gradients = argument;
    BENCH_OK(trib_stream_wait(bench->device[rank], bench->stream[rank]));
    BENCH_OK(trib_reducer_destroy(gradients->reducers[rank]));
}

/* A backward pass makes one gradient after the other. */
static void run_backward(const struct bench *bench, int rank, void *argument)
{
    const struct gradients *gradients = argument;
    for (size_t i = 0; i < RESNET50_TENSORS; i++) {
        if (gradients->busy_us > 0)
            bench_busy(bench, rank, gradients->busy_us);
        BENCH_OK(trib_reducer_ready(gradients->reducers[rank], i, bench->stream[rank]));
    }
}

static void run_finish(const struct bench *bench, int rank, void *argument)
{
    const struct gradients *gradients = argument;
    BENCH_OK(trib_reducer_finish(gradients->reducers[rank], bench->stream[rank]));
}

static void run_step(const struct bench *bench, int rank, void *argument)
{
    run_backward(bench, rank, argument);
    run_finish(bench, rank, argument);
}

static void run_flat(const struct bench *bench, int rank, void *argument)
{
    const struct gradients *gradients = argument;
    BENCH_OK(trib_allreduce(bench->comm[rank], gradients->flat[rank], gradients->flat[rank],
                            gradients->elements, TRIB_F32, TRIB_AVG, bench->stream[rank]));
}

static void run_peer_flat(const struct bench *bench, int rank, void *argument)
{
    bench->peer->run(bench, rank, ((const struct gradients *)argument)->call);
}

static void run_peer_group(const struct bench *bench, int rank, void *argument)
{
    const struct gradients *gradients = argument;
    bench->peer->run_list(bench, rank, gradients->tensors[rank], RESNET50_TENSORS, true);
}

/* ----------------------------------------------------------------------------------- the check */

/* Gradient i, which is the reducer's RESNET50_TENSORS - 1 - i. */
static void *place(const struct gradients *gradients, int rank, size_t i)
{
    void *view = NULL;
    if ((gradients->form->flags & TRIB_REDUCER_VIEWS) == 0)
        return gradients->tensors[rank][i].data;
    BENCH_OK(trib_reducer_view(&view, gradients->reducers[rank], RESNET50_TENSORS - 1 - i));
    return view;
}

static void put(const struct bench *bench, struct gradients *gradients)
{
    for (int rank = 0; rank < bench->ranks; rank++) {
        const float *next = gradients->host;
        for (size_t i = 0; i < gradients->elements; i++)
            gradients->host[i] = input(rank, i);
        for (size_t i = 0; i < RESNET50_TENSORS; i++) {
            const size_t count = gradients->tensors[rank][i].count;
            bench_copy(bench, rank, place(gradients, rank, i), next, count * sizeof(float));
            next += count;
        }
    }
}

/* Elements, over all ranks, that are not the average after one step. */
static size_t count_wrong(const struct bench *bench, struct gradients *gradients)
{
    size_t wrong = 0;
    put(bench, gradients);
    (void)bench_time(bench, run_step, gradients, 0, 1);
    for (int rank = 0; rank < bench->ranks; rank++) {
        float *next = gradients->host;
        for (size_t i = 0; i < RESNET50_TENSORS; i++) {
            const size_t count = gradients->tensors[rank][i].count;
            bench_copy(bench, rank, next, place(gradients, rank, i), count * sizeof(float));
            next += count;
        }
        for (size_t i = 0; i < gradients->elements; i++)
            wrong += gradients->host[i] != average(bench->ranks, i);
    }
    return wrong;
}

/* ------------------------------------------------------------------------------------ the table */

static void print(const char *name, uint64_t buckets, const struct bench_result *result)
{
    printf("%-34s %8llu %10.1f %10.1f %10.1f", name, (unsigned long long)buckets,
           result->device.median, result->device.p99, result->host);
}

static void end_row(void)
{
    printf("\n");
    fflush(stdout);
}

static int warmup_of(int iterations)
{
    return iterations < 5 ? iterations : 5;
}

static void measure_others(const struct bench *bench, struct gradients *gradients, int iterations,
                           int backward)
{
    const struct {
        const char *name;
        bench_body body;
    } rows[] = {{"trib_allreduce, flat buffer", run_flat},
                {"peer, flat buffer", run_peer_flat},
                {"peer, one group", bench->peer->run_list == NULL ? NULL : run_peer_group}};
    printf("%-34s %8s %10s %10s %10s", "", "buckets", "median", "p99", "queue");
    if (backward > 0)
        printf(" %10s %9s", "exposed", "hidden");
    end_row();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].body == NULL)
            continue;
        const struct bench_result result =
            bench_time(bench, rows[i].body, gradients, warmup_of(iterations), iterations);
        print(rows[i].name, 0, &result);
        end_row();
    }
}

/* A backward pass that takes `backward` times as long as a step of gradients that are all ready. */
static void measure_backward(const struct bench *bench, struct gradients *gradients, int backward,
                             double alone_us, int iterations)
{
    gradients->busy_us = backward * alone_us / RESNET50_TENSORS;
    const struct bench_result result = bench_time_prepared(
        bench, run_backward, run_finish, gradients, warmup_of(iterations), iterations);
    gradients->busy_us = 0;
    const double exposed = result.least.median;
    printf(" %10.1f %7.1f %%", exposed, 100 * (1 - exposed / alone_us));
}

/* Returns the number of wrong elements. A sparse step does not average every element, and 1/3 is
 * exact on no backend. */
static size_t measure_form(const struct bench *bench, struct gradients *gradients,
                           const struct form *form, int iterations, int backward)
{
    size_t wrong = 0;
    gradients->form = form;
    (void)bench_time(bench, create, gradients, 0, 1);
    if (!form->sparse && (bench->ranks & (bench->ranks - 1)) == 0)
        wrong = count_wrong(bench, gradients);
    const struct bench_result result =
        bench_time(bench, run_step, gradients, warmup_of(iterations), iterations);
    print(form->name, trib_reducer_buckets(gradients->reducers[0]), &result);
    if (backward > 0)
        measure_backward(bench, gradients, backward, result.device.median, iterations);
    end_row();
    (void)bench_time(bench, destroy, gradients, 0, 1);
    return wrong;
}

static const struct form forms[] = {
    {"views", TRIB_REDUCER_VIEWS, false, false, 0},
    {"views, twin buckets", TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS, false, false, 0},
    {"copies", 0, false, false, 0},
    {"copies, weighted", 0, true, false, 0},
    {"copies, topka at 1 %", 0, false, true, 0},
    {"views, buckets of 1 MiB", TRIB_REDUCER_VIEWS, false, false, 1},
    {"views, buckets of 5 MiB", TRIB_REDUCER_VIEWS, false, false, 5},
    {"views, buckets of 10 MiB", TRIB_REDUCER_VIEWS, false, false, 10},
    {"views, buckets of 50 MiB", TRIB_REDUCER_VIEWS, false, false, 50},
    {"views, buckets of 100 MiB", TRIB_REDUCER_VIEWS, false, false, 100},
    {"copies, buckets of 1 MiB", 0, false, false, 1},
    {"copies, buckets of 5 MiB", 0, false, false, 5},
    {"copies, buckets of 10 MiB", 0, false, false, 10},
    {"copies, buckets of 50 MiB", 0, false, false, 50},
    {"copies, buckets of 100 MiB", 0, false, false, 100},
};

int main(int argc, char **argv)
{
    static struct gradients gradients;
    struct bench bench;
    size_t wrong = 0;
    bench_unnamed(argc, argv, 4, "[backend [ranks [iterations [backward]]]]");
    const int ranks = argc > 2 ? bench_integer("ranks", argv[2], 1, BENCH_MAX_RANKS) : 0;
    const int iterations = argc > 3 ? bench_integer("iterations", argv[3], 1, INT_MAX) : 40;
    const int backward = argc > 4 ? bench_integer("backward", argv[4], 1, 1000) : 0;
    bench_open(&bench, argc > 1 ? argv[1] : NULL, ranks, 0, 0);
    make(&bench, &gradients);
    bench_print_setting(&bench);
    printf("# a step over %d gradients, %zu floats\n", RESNET50_TENSORS, gradients.elements);
    measure_others(&bench, &gradients, iterations, backward);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        wrong += measure_form(&bench, &gradients, &forms[i], iterations, backward);
    printf("# %zu wrong elements\n", wrong);
    drop(&bench, &gradients);
    bench_close(&bench);
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
