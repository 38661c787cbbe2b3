/* trib_kernels: the cpu table's select, with all that it does to the residual, beside memcpy. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/bench.h"
#include "benches/kernels.h"
#include "kernels/cpu/kernels_cpu.h"

enum { SHIFTS = 8, SHIFT = 4096, RUNS = 12, WARM_UP = 4, THREADS = 2 };

/* One rank's tensor. Every call takes its gradient from another place of `gradients`. */
struct tensor {
    const struct tri_sparse_kernels *kernels;
    float *gradients, *buffer[2], *velocity[2], *values;
    uint32_t *indices, count, current, fallbacks;
    struct tri_header header;
    size_t n;
    uint32_t k;
    double momentum; /* 0: there are no velocities */
    void *scratch;
    double us[RUNS], copy_us[RUNS];
};

static void call_select(struct tensor *t, int run)
{
    struct tri_accumulator acc = {
        .buffer = {t->buffer[0], t->buffer[1]},
        .current = &t->current,
        .gradient = t->gradients + run % SHIFTS * SHIFT,
        .gradient_dtype = TRIB_F32,
        .dtype = TRIB_F32,
        .decay = 1,
        .count = t->n,
    };
    const struct tri_selection selection = {
        .count = t->n,
        .k = t->k,
        .accumulate = true,
        .clear = true,
        .signing = {.header = &t->header},
        .fallbacks = &t->fallbacks,
    };
    const struct tri_entries out = {.count = &t->count,
                                    .index = t->indices,
                                    .value = t->values,
                                    .capacity = t->k,
                                    .dtype = TRIB_F32};
    if (t->momentum != 0) {
        acc.velocity[0] = t->velocity[0];
        acc.velocity[1] = t->velocity[1];
        acc.velocity_current = &t->current;
        acc.makes_velocity = true;
        acc.momentum = t->momentum;
    }
    BENCH_OK(t->kernels->select(&acc, &selection, &out, t->scratch, NULL));
    t->current ^= 1;
}

/* Six bytes read and six written for an element, or with momentum ten: what select moves at
 * least. */
static void call_memcpy(struct tensor *t, int run)
{
    (void)run;
    memcpy(t->buffer[0], t->buffer[1], t->n * 4);
    memcpy(t->gradients, t->buffer[0], t->n * 2);
    if (t->momentum != 0)
        memcpy(t->velocity[0], t->velocity[1], t->n * 4);
}

/* Time every run but those of the warm-up. */
static void time_runs(struct tensor *t, void (*call)(struct tensor *t, int run), double *us)
{
    for (int run = -WARM_UP; run < RUNS; run++) {
        const double begin = bench_now_us();
        call(t, run + WARM_UP);
        if (run >= 0)
            us[run] = bench_now_us() - begin;
    }
}

static void *run_rank(void *argument)
{
    struct tensor *t = argument;
    time_runs(t, call_select, t->us);
    return NULL;
}

static void *copy_rank(void *argument)
{
    struct tensor *t = argument;
    time_runs(t, call_memcpy, t->copy_us);
    return NULL;
}

/* body(tensor) in a thread for each. */
static void run_threads(int threads, void *(*body)(void *tensor), struct tensor *tensors)
{
    pthread_t thread[THREADS];
    for (int r = 0; r < threads; r++)
        if (pthread_create(&thread[r], NULL, body, &tensors[r]) != 0)
            abort();
    for (int r = 0; r < threads; r++)
        (void)pthread_join(thread[r], NULL);
}

static void *make(size_t bytes)
{
    void *data = bench_must(aligned_alloc(256, (bytes + 255) / 256 * 256));
    memset(data, 0, bytes);
    return data;
}

static void open_tensor(struct tensor *t, size_t count, uint32_t k, double momentum)
{
    const size_t period = 4000037; /* normal numbers take long to make */
    const size_t n = count + (size_t)SHIFTS * SHIFT;
    memset(t, 0, sizeof *t);
    t->kernels = tri_kernels_cpu.sparse;
    t->n = count;
    t->k = k;
    t->gradients = make(n * sizeof(float));
    t->buffer[0] = make(count * sizeof(float));
    t->buffer[1] = make(count * sizeof(float));
    t->momentum = momentum;
    for (int i = 0; i < 2 && momentum != 0; i++)
        t->velocity[i] = make(count * sizeof(float));
    t->indices = make(k * sizeof(uint32_t));
    t->values = make(k * sizeof(float));
    t->scratch = make(t->kernels->scratch_bytes(count, k, k, TRIB_F32));
    for (size_t i = 0; i < n; i++)
        t->gradients[i] = i < period ? (float)kernels_normal() : t->gradients[i - period];
}

static void close_tensor(struct tensor *t)
{
    free(t->gradients);
    free(t->buffer[0]);
    free(t->buffer[1]);
    free(t->velocity[0]);
    free(t->velocity[1]);
    free(t->indices);
    free(t->values);
    free(t->scratch);
}

static void time_threads(size_t count, int threads, double density, double momentum)
{
    struct tensor tensors[THREADS];
    for (int r = 0; r < threads; r++)
        open_tensor(&tensors[r], count, (uint32_t)((double)count * density), momentum);
    run_threads(threads, run_rank, tensors);
    run_threads(threads, copy_rank, tensors);
    for (int r = 0; r < threads; r++) {
        struct tensor *t = &tensors[r];
        (void)bench_stats(t->us, RUNS); /* sorts */
        (void)bench_stats(t->copy_us, RUNS);
        printf("  %d threads, density %4.1f %%, momentum %g, thread %d: select %8.2f ms (most "
               "%8.2f), memcpy of %d B per element %8.2f ms: %.2f times; fallbacks %u\n",
               threads, density * 100, momentum, r, t->us[RUNS / 2] / 1e3, t->us[RUNS - 1] / 1e3,
               momentum == 0 ? 12 : 20, t->copy_us[RUNS / 2] / 1e3,
               t->us[RUNS / 2] / t->copy_us[RUNS / 2], t->fallbacks);
        close_tensor(t);
    }
}

void kernels_time_cpu(const struct kernels_options *options)
{
    for (int c = 0; c < options->ncounts; c++) {
        printf("select + residual of %zu f32, median of %d calls of error feedback:\n",
               options->counts[c], (int)RUNS);
        for (int d = 0; d < options->ndensities; d++)
            for (int threads = 1; threads <= THREADS; threads++) {
                time_threads(options->counts[c], threads, options->densities[d], 0);
                if (options->momentum != 0)
                    time_threads(options->counts[c], threads, options->densities[d],
                                 options->momentum);
            }
    }
}
