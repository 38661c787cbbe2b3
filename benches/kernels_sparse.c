/* trib_kernels: the cuda table's sparse kernels, timed by events around each call: a state of error
 * feedback that has run for a while, so that magnitudes crowd below the threshold as they do in
 * training. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/bench.h"
#include "benches/kernels.h"
#include "benches/kernels_cuda.h"
#include "kernels/cuda/kernels_cuda.h"

enum { RUNS = 30, WARM_UP = 8 };

enum { LISTS = 4, SHIFTS = 16, SHIFT = 8192, CHUNK = 4096, PERIOD = 16777259 };

/* Everything lies on the device. */
struct timed {
    const struct tri_sparse_kernels *kernels;
    cudaStream_t stream;
    size_t n;
    uint32_t k;
    float *gradients, *buffer[2], *dense; /* gradients: n + SHIFTS * SHIFT */
    float *velocity[2];                   /* NULL without momentum */
    double momentum;
    uint16_t *half_gradients;
    uint32_t *current,
        *words; /* current: of residual and velocity; words: fallbacks, decision, outcome, counts ... */
    float *numbers; /* kth, threshold */
    struct tri_entries lists[LISTS], wire, sum, kept, dropped;
    struct tri_chunks chunks[LISTS];
    struct tri_cut *cut;
    uint32_t *histogram;
    struct tri_header *headers;
    struct tri_counters *counters, *published;
    void *scratch, *from, *to; /* the last two: of copies */
};

enum { FALLBACKS, DECISION, OUTCOME, OVERFLOW, COUNTS, WORDS = 32 };

/* -------------------------------------------------------------------------------------- memory */

static void *device(size_t bytes)
{
    void *data = cuda_alloc(bytes);
    CUDA_OK(cudaMemset(data, 0, bytes));
    return data;
}

static struct tri_entries entries(struct timed *b, int word, size_t capacity, trib_dtype dtype)
{
    return (struct tri_entries){.count = b->words + COUNTS + word,
                                .index = device(capacity * 4),
                                .value = device(capacity * 4),
                                .capacity = (uint32_t)capacity,
                                .dtype = dtype};
}

/* Normal numbers again and again; each call takes its gradient from another place among them. */
static void fill_gradients(struct timed *b)
{
    const size_t total = b->n + (size_t)SHIFTS * SHIFT;
    const size_t first = total < PERIOD ? total : PERIOD;
    float *host = malloc(first * sizeof *host);
    uint16_t *halves = malloc(first * sizeof *halves);
    if (host == NULL || halves == NULL)
        abort();
    for (size_t i = 0; i < first; i++) {
        host[i] = (float)kernels_normal();
        uint32_t bits;
        memcpy(&bits, &host[i], sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
    for (size_t i = 0; i < total; i += first) {
        const size_t step = total - i < first ? total - i : first;
        CUDA_OK(cudaMemcpy(b->gradients + i, host, step * sizeof *host, cudaMemcpyDefault));
        CUDA_OK(
            cudaMemcpy(b->half_gradients + i, halves, step * sizeof *halves, cudaMemcpyDefault));
    }
    free(host);
    free(halves);
}

static void open_timed(struct timed *b, cudaStream_t stream, size_t n, double momentum)
{
    const size_t most = n / 20, slots = (n + CHUNK - 1) / CHUNK * (CHUNK / 20);
    memset(b, 0, sizeof *b);
    b->kernels = tri_kernels_cuda.sparse;
    b->stream = stream;
    b->n = n;
    b->gradients = device((n + (size_t)SHIFTS * SHIFT) * 4);
    b->half_gradients = device((n + (size_t)SHIFTS * SHIFT) * 2);
    b->buffer[0] = device(n * 4);
    b->buffer[1] = device(n * 4);
    b->momentum = momentum;
    for (int i = 0; i < 2 && momentum != 0; i++)
        b->velocity[i] = device(n * 4);
    b->dense = device(n * 4);
    b->current = device(4);
    b->words = device(WORDS * 4);
    b->numbers = device(64);
    for (int l = 0; l < LISTS; l++) {
        b->lists[l] = entries(b, l, most, TRIB_F32);
        b->chunks[l] =
            (struct tri_chunks){device(slots * 2), device(slots * 4), TRIB_F32, CHUNK, 0};
    }
    b->wire = entries(b, 4, most, TRIB_BF16);
    b->sum = entries(b, 5, LISTS * most, TRIB_F32);
    b->kept = entries(b, 6, LISTS * most, TRIB_F32);
    b->dropped = entries(b, 7, LISTS * most, TRIB_F32);
    b->cut = device(sizeof *b->cut);
    b->histogram = device(TRI_CUT_DIGITS * 4);
    b->headers = device(LISTS * sizeof *b->headers);
    b->counters = device(sizeof *b->counters);
    CUDA_OK(cudaHostAlloc((void **)&b->published, sizeof *b->published,
                          cudaHostAllocPortable | cudaHostAllocMapped));
    b->scratch = device(b->kernels->scratch_bytes(n, (uint32_t)most, LISTS * most, TRIB_F32));
    fill_gradients(b);
}

static void free_entries(struct tri_entries *list)
{
    CUDA_OK(cudaFree(list->index));
    CUDA_OK(cudaFree(list->value));
}

static void close_timed(struct timed *b)
{
    void *const blocks[] = {b->gradients, b->half_gradients, b->buffer[0], b->buffer[1],
                            b->dense,     b->current,        b->words,     b->numbers,
                            b->cut,       b->histogram,      b->headers,   b->scratch};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        CUDA_OK(cudaFree(blocks[i]));
    for (int l = 0; l < LISTS; l++) {
        free_entries(&b->lists[l]);
        CUDA_OK(cudaFree(b->chunks[l].index));
        CUDA_OK(cudaFree(b->chunks[l].value));
    }
    CUDA_OK(cudaFree(b->velocity[0]));
    CUDA_OK(cudaFree(b->velocity[1]));
    free_entries(&b->wire);
    free_entries(&b->sum);
    free_entries(&b->kept);
    free_entries(&b->dropped);
    CUDA_OK(cudaFree(b->counters));
    CUDA_OK(cudaFreeHost(b->published));
}

/* --------------------------------------------------------------------------------------- calls */

static struct tri_accumulator separate(struct timed *b, int run, trib_dtype gradient)
{
    const size_t shift = (size_t)(run & (SHIFTS - 1)) * SHIFT;
    return (struct tri_accumulator){.buffer = {b->buffer[0], b->buffer[1]},
                                    .current = b->current,
                                    .gradient = gradient == TRIB_F32
                                                    ? (void *)(b->gradients + shift)
                                                    : (void *)(b->half_gradients + shift),
                                    .gradient_dtype = gradient,
                                    .dtype = TRIB_F32,
                                    .decay = 1,
                                    .count = b->n};
}

static struct tri_accumulator in_place(struct timed *b)
{
    return (struct tri_accumulator){
        .buffer = {b->buffer[0], NULL}, .dtype = TRIB_F32, .decay = 1, .count = b->n};
}

static struct tri_signing signing(struct timed *b)
{
    return (struct tri_signing){.header = b->headers};
}

static void choose(struct timed *b, const struct tri_accumulator *acc, bool makes,
                   const struct tri_entries *out)
{
    const struct tri_selection selection = {.count = b->n,
                                            .k = b->k,
                                            .accumulate = makes,
                                            .clear = makes,
                                            .signing = signing(b),
                                            .kth = b->numbers,
                                            .fallbacks = b->words + FALLBACKS};
    BENCH_OK(b->kernels->select(acc, &selection, out, b->scratch, b->stream));
}

static void select_separate(struct timed *b, int run)
{
    const struct tri_accumulator acc = separate(b, run, TRIB_F32);
    choose(b, &acc, true, &b->lists[run & (LISTS - 1)]);
}

/* The velocity is made in the same pass. */
static struct tri_accumulator with_momentum(struct timed *b, int run)
{
    struct tri_accumulator acc = separate(b, run, TRIB_F32);
    acc.velocity[0] = b->velocity[0];
    acc.velocity[1] = b->velocity[1];
    acc.velocity_current = b->current;
    acc.makes_velocity = true;
    acc.momentum = b->momentum;
    return acc;
}

static void select_momentum(struct timed *b, int run)
{
    const struct tri_accumulator acc = with_momentum(b, run);
    choose(b, &acc, true, &b->lists[0]);
}

static void select_half(struct timed *b, int run)
{
    const struct tri_accumulator acc = separate(b, run, TRIB_BF16);
    choose(b, &acc, true, &b->lists[run & (LISTS - 1)]);
}

static void select_wire(struct timed *b, int run)
{
    const struct tri_accumulator acc = separate(b, run, TRIB_F32);
    choose(b, &acc, true, &b->wire);
}

static void select_in_place(struct timed *b, int run)
{
    const struct tri_accumulator acc = in_place(b);
    choose(b, &acc, false, &b->lists[run & (LISTS - 1)]);
}

static void accumulate(struct timed *b, int run)
{
    const struct tri_accumulator acc = separate(b, run, TRIB_F32);
    BENCH_OK(b->kernels->accumulate(&acc, signing(b), b->stream));
}

static void accumulate_momentum(struct timed *b, int run)
{
    const struct tri_accumulator acc = with_momentum(b, run);
    BENCH_OK(b->kernels->accumulate(&acc, signing(b), b->stream));
}

/* Of what select_momentum has selected; after decide. */
static void mask(struct timed *b, int run)
{
    const struct tri_accumulator velocity = {.buffer = {b->velocity[0], b->velocity[1]},
                                             .current = b->current,
                                             .dtype = TRIB_F32,
                                             .decay = b->momentum,
                                             .count = b->n};
    (void)run;
    BENCH_OK(b->kernels->residual_update(&velocity, &b->lists[0], TRI_UPDATE_CLEAR, NULL,
                                         b->words + DECISION, NULL, b->stream));
}

static void chunk_separate(struct timed *b, int run)
{
    const struct tri_accumulator acc = separate(b, run, TRIB_F32);
    BENCH_OK(b->kernels->chunk_select(&acc, true, true, &b->chunks[run & (LISTS - 1)], signing(b),
                                      b->scratch, b->stream));
}

static void chunk_in_place(struct timed *b, int run)
{
    const struct tri_accumulator acc = in_place(b);
    BENCH_OK(b->kernels->chunk_select(&acc, false, false, &b->chunks[run & (LISTS - 1)], signing(b),
                                      b->scratch, b->stream));
}

static struct tri_merge merge_of(const struct timed *b)
{
    return (struct tri_merge){
        .lists = b->lists, .n = LISTS, .count = b->n, .abort_flag = b->words + WORDS - 1};
}

static void merge_dense(struct timed *b, int run)
{
    (void)run;
    const struct tri_result out = {b->dense, TRIB_F32, LISTS, b->words + OVERFLOW};
    const struct tri_merge all = merge_of(b);
    BENCH_OK(b->kernels->merge_dense(&all, &out, b->scratch, b->stream));
}

static void chunk_merge(struct timed *b, int run)
{
    (void)run;
    const struct tri_result out = {b->dense, TRIB_F32, LISTS, b->words + OVERFLOW};
    BENCH_OK(b->kernels->chunk_merge(b->chunks, LISTS, b->n, &out, b->stream));
}

static void merge(struct timed *b, int run)
{
    (void)run;
    const struct tri_merge all = merge_of(b);
    BENCH_OK(b->kernels->merge(&all, &b->sum, b->scratch, b->stream));
}

/* One run subtracts the entries, the next adds them back. */
static void subtract(struct timed *b, int run)
{
    const struct tri_accumulator acc = in_place(b);
    BENCH_OK(b->kernels->residual_update(&acc, &b->lists[0],
                                         run & 1 ? TRI_UPDATE_ADD : TRI_UPDATE_SUBTRACT, NULL,
                                         b->words + DECISION, NULL, b->stream));
}

static void clear(struct timed *b, int run)
{
    const struct tri_accumulator acc = in_place(b);
    (void)run;
    BENCH_OK(b->kernels->residual_update(&acc, &b->lists[0], TRI_UPDATE_CLEAR, NULL,
                                         b->words + DECISION, NULL, b->stream));
}

static void subtract_among(struct timed *b, int run)
{
    const struct tri_accumulator acc = in_place(b);
    BENCH_OK(b->kernels->residual_update(&acc, &b->lists[0],
                                         run & 1 ? TRI_UPDATE_ADD : TRI_UPDATE_SUBTRACT, &b->sum,
                                         b->words + DECISION, b->words + COUNTS + 8, b->stream));
}

static void cut(struct timed *b, int run)
{
    const trib_stream stream = b->stream;
    (void)run;
    BENCH_OK(b->kernels->radix_init(b->cut, b->k, NULL, TRIB_F32, stream));
    for (int round = 0; round < tri_cut_rounds(TRIB_F32); round++) {
        BENCH_OK(b->kernels->radix_histogram(&b->sum, b->cut, round, b->histogram, stream));
        BENCH_OK(b->kernels->radix_refine(b->cut, round, b->histogram, TRIB_F32, stream));
    }
    BENCH_OK(
        b->kernels->radix_partition(&b->sum, b->cut, &b->kept, &b->dropped, b->scratch, stream));
}

static void gauss(struct timed *b, int run)
{
    const struct tri_accumulator acc = in_place(b);
    (void)run;
    BENCH_OK(b->kernels->gauss(&acc, 2.3263478740408408, b->numbers + 1, b->scratch, b->stream));
}

static void fit(struct timed *b, int run)
{
    const struct tri_accumulator acc = in_place(b);
    const struct tri_fit steps = {.below = 2 * (b->k / 3),
                                  .above = 4 * (b->k / 3),
                                  .lower = 1.02,
                                  .raise = 1.02,
                                  .lower_steps = 20,
                                  .raise_steps = 20};
    (void)run;
    BENCH_OK(b->kernels->fit(&acc, &steps, b->numbers + 1, b->numbers + 2, b->scratch, b->stream));
}

static void norm(struct timed *b, int run)
{
    const struct tri_accumulator acc = in_place(b);
    (void)run;
    BENCH_OK(b->kernels->norm(&acc, (double *)(void *)(b->numbers + 4), b->scratch, b->stream));
}

/* All of the words of the call are 0 but DECISION, which decide writes. */
static void decide(struct timed *b, int run)
{
    const struct tri_decide job = {.abort_flag = b->words + WORDS - 1,
                                   .headers = b->headers,
                                   .stride = sizeof *b->headers,
                                   .n = LISTS,
                                   .current = b->current,
                                   .decision = b->words + DECISION,
                                   .outcome = b->words + OUTCOME,
                                   .overflow = b->words + OVERFLOW};
    (void)run;
    BENCH_OK(b->kernels->decide(&job, b->stream));
}

static void decide_record(struct timed *b, int run)
{
    const struct tri_record record = {.counters = b->counters,
                                      .published = b->published,
                                      .result = {.dense = b->dense, .bytes = b->n * 4},
                                      .decision = b->words + DECISION,
                                      .outcome = b->words + OUTCOME,
                                      .selected = b->words + COUNTS,
                                      .applied = b->words + COUNTS,
                                      .fallbacks = b->words + FALLBACKS};
    decide(b, run);
    BENCH_OK(b->kernels->record(&record, b->stream));
}

static void copy_4(struct timed *b, int run)
{
    (void)run;
    CUDA_OK(cudaMemcpyAsync(b->to, b->from, b->n * 2, cudaMemcpyDeviceToDevice, b->stream));
}

static void copy_20(struct timed *b, int run)
{
    (void)run;
    CUDA_OK(cudaMemcpyAsync(b->to, b->from, b->n * 10, cudaMemcpyDeviceToDevice, b->stream));
}

static void copy_12(struct timed *b, int run)
{
    (void)run;
    CUDA_OK(cudaMemcpyAsync(b->to, b->from, b->n * 6, cudaMemcpyDeviceToDevice, b->stream));
}

/* --------------------------------------------------------------------------------------- times */

/* `after` each run, out of the timing, comes what follows it in training; NULL: nothing. */
static void time_row(struct timed *b, const char *name, void (*body)(struct timed *b, int run),
                     double bytes, void (*after)(struct timed *b, int run))
{
    double us[RUNS];
    cudaEvent_t begin, end;
    float ms = 0;
    CUDA_OK(cudaEventCreate(&begin));
    CUDA_OK(cudaEventCreate(&end));
    for (int run = -WARM_UP; run < RUNS; run++) {
        CUDA_OK(cudaEventRecord(begin, b->stream));
        body(b, run + WARM_UP);
        CUDA_OK(cudaEventRecord(end, b->stream));
        if (after != NULL)
            after(b, run);
        CUDA_OK(cudaStreamSynchronize(b->stream));
        CUDA_OK(cudaEventElapsedTime(&ms, begin, end));
        if (run >= 0)
            us[run] = (double)ms * 1e3;
    }
    (void)bench_stats(us, RUNS); /* sorts */
    printf("  %-34s %9.1f us %9.1f us p99 %7.0f GB/s\n", name, us[RUNS / 2], us[RUNS - 1],
           bytes / us[RUNS / 2] / 1e3);
    CUDA_OK(cudaEventDestroy(begin));
    CUDA_OK(cudaEventDestroy(end));
}

static uint32_t fallbacks(const struct timed *b)
{
    uint32_t count = 0;
    CUDA_OK(cudaMemcpy(&count, b->words + FALLBACKS, sizeof count, cudaMemcpyDefault));
    return count;
}

/* In place, buffer 0 is an accumulator whose largest entries are still in it. */
static void acc_to_first(struct timed *b)
{
    uint32_t current = 0;
    accumulate(b, 5);
    CUDA_OK(cudaStreamSynchronize(b->stream));
    CUDA_OK(cudaMemcpy(&current, b->current, sizeof current, cudaMemcpyDefault));
    if (current == 0) /* acc is in buffer 1 */
        CUDA_OK(cudaMemcpy(b->buffer[0], b->buffer[1], b->n * 4, cudaMemcpyDefault));
}

static void decide_and_mask(struct timed *b, int run)
{
    decide(b, run);
    mask(b, run);
}

static void clear_residuals(struct timed *b)
{
    for (int i = 0; i < 2; i++) {
        CUDA_OK(cudaMemset(b->buffer[i], 0, b->n * 4));
        if (b->momentum != 0)
            CUDA_OK(cudaMemset(b->velocity[i], 0, b->n * 4));
    }
}

/* From residuals and velocities of 0 until they are as they stay; afterwards 0 again. */
static void time_momentum(struct timed *b)
{
    const double n = (double)b->n, k = b->k;
    if (b->momentum == 0)
        return;
    for (int run = 0; run < SHIFTS; run++) {
        select_momentum(b, run);
        decide_and_mask(b, run);
    }
    time_row(b, "select, clearing, momentum", select_momentum, 20 * n + 8 * k, decide_and_mask);
    time_row(b, "masking", mask, 8 * k, NULL);
    time_row(b, "accumulate, momentum", accumulate_momentum, 20 * n, NULL);
    clear_residuals(b);
}

static void time_density(struct timed *b, double density)
{
    const double n = (double)b->n;
    b->k = (uint32_t)((double)b->n * density);
    const uint32_t chunk_k = (uint32_t)(CHUNK * density);
    const double k = b->k, slots = n / CHUNK * chunk_k;
    const uint32_t before = fallbacks(b);
    for (int l = 0; l < LISTS; l++)
        b->chunks[l].k = chunk_k;
    printf("%zu elements, density %.1f %%: median, p99, bytes at least moved\n", b->n,
           density * 100);
    time_momentum(b);
    for (int run = 0; run < SHIFTS; run++) { /* until the residual is as it stays */
        select_separate(b, run);
        decide(b, run);
    }
    time_row(b, "select, clearing", select_separate, 12 * n + 8 * k, decide);
    time_row(b, "select, clearing, bf16 wire", select_wire, 12 * n + 6 * k, decide);
    time_row(b, "select, clearing, bf16 gradient", select_half, 10 * n + 8 * k, decide);
    for (int run = 0; run < LISTS; run++) /* four lists as of four ranks */
        select_separate(b, run);
    time_row(b, "accumulate", accumulate, 12 * n, NULL);
    acc_to_first(b);
    time_row(b, "select, in place", select_in_place, 4 * n + 8 * k, NULL);
    for (int run = 0; run < LISTS; run++)
        select_separate(b, run);
    time_row(b, "merge_dense of 4", merge_dense, 4 * n + LISTS * 8 * k, NULL);
    time_row(b, "merge of 4", merge, LISTS * 8 * k * 2, NULL);
    time_row(b, "cut of their union", cut, LISTS * (3 * 4 + 16) * k, NULL);
    time_row(b, "residual_update", subtract, 16 * k, NULL);
    time_row(b, "residual_update, clearing", clear, 8 * k, NULL);
    time_row(b, "residual_update, among the union", subtract_among, 16 * k, NULL);
    time_row(b, "gauss", gauss, 4 * n, NULL);
    time_row(b, "fit", fit, 4 * n, NULL);
    time_row(b, "norm", norm, 4 * n, NULL);
    time_row(b, "decide and record", decide_record, 0, NULL);
    time_row(b, "chunk_select, clearing", chunk_separate, 12 * n + 6 * slots, decide);
    time_row(b, "chunk_select, in place", chunk_in_place, 4 * n + 6 * slots, NULL);
    time_row(b, "chunk_merge of 4", chunk_merge, 4 * n + LISTS * 6 * slots, NULL);
    printf("  fallbacks: %u\n", fallbacks(b) - before);
}

void kernels_time_sparse(const struct kernels_options *options, cudaStream_t stream)
{
    struct timed b;
    for (int c = 0; c < options->ncounts; c++) {
        const size_t count = options->counts[c];
        open_timed(&b, stream, count, options->momentum);
        b.from = device(count * 10);
        b.to = device(count * 10);
        printf("%zu elements\n", count);
        time_row(&b, "copy, 20 B per element in all", copy_20, 20.0 * (double)count, NULL);
        time_row(&b, "copy, 12 B per element in all", copy_12, 12.0 * (double)count, NULL);
        time_row(&b, "copy, 4 B per element in all", copy_4, 4.0 * (double)count, NULL);
        CUDA_OK(cudaFree(b.from));
        CUDA_OK(cudaFree(b.to));
        for (int d = 0; d < options->ndensities; d++) {
            clear_residuals(&b);
            time_density(&b, options->densities[d]);
        }
        close_timed(&b);
    }
}
