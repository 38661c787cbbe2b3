/* The cpu table's select, with all that it does to the residual, beside memcpy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"
#include "tests/conformance/sparse_kernels/times.h"

enum { ELEMENTS = 25557032, SHIFTS = 8, SHIFT = 4096, RUNS = 12 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void times_sort(double *times)
{
    qsort(times, TIMES_RUNS, sizeof *times, by_value);
}

/* One rank's tensor. Every call takes its gradient from another place of `gradients`. */
struct tensor {
    const struct tri_sparse_kernels *kernels;
    float *gradients, *buffer[2], *values;
    uint32_t *indices, count, current, nonfinite, fallbacks;
    uint32_t k;
    void *scratch;
    double ms[RUNS], copy_ms[RUNS];
};

static void call_select(struct tensor *t, int run)
{
    const struct tri_accumulator acc = {
        .buffer = {t->buffer[0], t->buffer[1]},
        .current = &t->current,
        .gradient = t->gradients + run % SHIFTS * SHIFT,
        .gradient_dtype = TRIB_F32,
        .dtype = TRIB_F32,
        .decay = 1,
        .count = ELEMENTS,
    };
    const struct tri_selection selection = {
        .count = ELEMENTS,
        .k = t->k,
        .accumulate = true,
        .clear = true,
        .nonfinite = &t->nonfinite,
        .fallbacks = &t->fallbacks,
    };
    const struct tri_entries out = {&t->count, t->indices, t->values, t->k, TRIB_F32};
    CHECK_OK(t->kernels->select(&acc, &selection, &out, t->scratch, NULL));
    t->current ^= 1;
}

/* Six bytes read and six written: what select moves at least. */
static void call_memcpy(struct tensor *t)
{
    memcpy(t->buffer[0], t->buffer[1], (size_t)ELEMENTS * 4);
    memcpy(t->gradients, t->buffer[0], (size_t)ELEMENTS * 2);
}

static void run_rank(int rank, int size, void *argument)
{
    struct tensor *t = (struct tensor *)argument + rank;
    (void)size;
    for (int run = -4; run < RUNS; run++) {
        const double begin = check_now_ms();
        call_select(t, run + 4);
        if (run >= 0)
            t->ms[run] = check_now_ms() - begin;
    }
}

static void copy_rank(int rank, int size, void *argument)
{
    struct tensor *t = (struct tensor *)argument + rank;
    (void)size;
    for (int run = -2; run < RUNS; run++) {
        const double begin = check_now_ms();
        call_memcpy(t);
        if (run >= 0)
            t->copy_ms[run] = check_now_ms() - begin;
    }
}

static void *make(size_t bytes)
{
    void *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (data == NULL)
        abort();
    memset(data, 0, bytes);
    return data;
}

static void open_tensor(struct tensor *t, const struct tri_sparse_kernels *kernels, uint32_t k)
{
    const size_t period = 4000037; /* normal numbers take long to make */
    const size_t n = (size_t)ELEMENTS + SHIFTS * SHIFT;
    memset(t, 0, sizeof *t);
    t->kernels = kernels;
    t->k = k;
    t->gradients = make(n * sizeof(float));
    t->buffer[0] = make((size_t)ELEMENTS * sizeof(float));
    t->buffer[1] = make((size_t)ELEMENTS * sizeof(float));
    t->indices = make(k * sizeof(uint32_t));
    t->values = make(k * sizeof(float));
    t->scratch = make(kernels->scratch_bytes(ELEMENTS, k, k, TRIB_F32));
    for (size_t i = 0; i < n; i++)
        t->gradients[i] = i < period ? (float)sparse_normal() : t->gradients[i - period];
}

static void close_tensor(struct tensor *t)
{
    free(t->gradients);
    free(t->buffer[0]);
    free(t->buffer[1]);
    free(t->indices);
    free(t->values);
    free(t->scratch);
}

static void time_threads(const struct tri_sparse_kernels *kernels, int threads, double density)
{
    struct tensor tensors[2];
    for (int r = 0; r < threads; r++)
        open_tensor(&tensors[r], kernels, (uint32_t)(ELEMENTS * density));
    check_ranks(threads, run_rank, tensors);
    check_ranks(threads, copy_rank, tensors);
    for (int r = 0; r < threads; r++) {
        struct tensor *t = &tensors[r];
        qsort(t->ms, RUNS, sizeof t->ms[0], by_value);
        qsort(t->copy_ms, RUNS, sizeof t->copy_ms[0], by_value);
        printf("  %d threads, density %4.1f %%, thread %d: select %8.2f ms (most %8.2f), memcpy of "
               "12 B an element %8.2f ms: %.2f times; fallbacks %u\n",
               threads, density * 100, r, t->ms[RUNS / 2], t->ms[RUNS - 1], t->copy_ms[RUNS / 2],
               t->ms[RUNS / 2] / t->copy_ms[RUNS / 2], t->fallbacks);
        close_tensor(t);
    }
}

void sparse_kernels_cpu_times(const struct tri_sparse_kernels *kernels)
{
    static const double densities[] = {0.001, 0.01, 0.05};
    check_begin("cpu times");
    printf("select + residual of %d f32, median of %d calls of error feedback:\n", (int)ELEMENTS,
           (int)RUNS);
    for (size_t d = 0; d < 3; d++)
        for (int threads = 1; threads <= 2; threads++)
            time_threads(kernels, threads, densities[d]);
    check_end();
}
