/* Sparse allreduce: every algorithm beside the dense allreduce of the peer, fp32 and bf16, in the
 * same run; and the selection alone, which is a call of one rank.
 *
 * Gradients are bell-shaped random numbers, other ones on each rank and the same in every call, so
 * residuals grow and are sent as in training. In place, the gradient is added by nobody: before
 * each call, untimed, the accumulator, or with momentum the velocity, becomes the gradient again; so
 * bursts (--graph, --eager) have no rows in place.
 * Before anything of a row is timed, one call is made and its result compared between the ranks, bit
 * for bit. */
#include "benches/sparse.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/bench.h"
#include "benches/burst.h"
#include "benches/collective.h"

/* Shared by all rows of one count. */
struct data {
    size_t count;
    void *gradient[BENCH_MAX_RANKS];    /* f32 */
    void *accumulator[BENCH_MAX_RANKS]; /* f32, in place; and the dense peer's buffer */
    void *result[BENCH_MAX_RANKS];      /* f32 */
    float *host[2];
};

/* One measurement. */
struct row {
    const char *what, *mode;
    double density;
    struct data *data;
    trib_sparse *sparse[BENCH_MAX_RANKS];
    bool in_place;
    void *index[BENCH_MAX_RANKS], *entries[BENCH_MAX_RANKS]; /* of select */
    struct bench_call dense[BENCH_MAX_RANKS];
};

/* Traffic of one call. `bytes`: all that a rank sent, or received, whichever is more; the maximum
 * over the ranks. `words`: the words of entries that a rank received. */
struct moved {
    uint64_t bytes, words;
};

struct output {
    FILE *csv;
    double dense_us; /* median of the fp32 row, for the ratio */
};

/* A bell: the sum of three uniform numbers of 21 bits, from splitmix64 (Steele et al. 2014). */
static float bell(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const uint64_t mask = (1u << 21) - 1;
    const int64_t sum = (int64_t)((z & mask) + (z >> 21 & mask) + (z >> 42 & mask));
    return (float)(sum - 3 * (int64_t)(mask / 2)) * 0x1p-20f;
}

static void make_data(const struct bench *bench, struct data *data, size_t count)
{
    const size_t bytes = count * sizeof(float);
    data->count = count;
    for (int i = 0; i < 2; i++)
        data->host[i] = bench_must(malloc(bytes));
    for (int rank = 0; rank < bench->ranks; rank++) {
        uint64_t state = (uint64_t)rank << 40;
        for (size_t i = 0; i < count; i++)
            data->host[0][i] = bell(&state);
        data->gradient[rank] = bench_alloc(bench, rank, bytes);
        data->accumulator[rank] = bench_alloc(bench, rank, bytes);
        data->result[rank] = bench_alloc(bench, rank, bytes);
        bench_copy(bench, rank, data->gradient[rank], data->host[0], bytes);
        bench_copy(bench, rank, data->accumulator[rank], data->host[0], bytes);
    }
}

static void drop_data(const struct bench *bench, struct data *data)
{
    for (int rank = 0; rank < bench->ranks; rank++) {
        bench_free(bench, rank, data->gradient[rank]);
        bench_free(bench, rank, data->accumulator[rank]);
        bench_free(bench, rank, data->result[rank]);
    }
    for (int i = 0; i < 2; i++)
        free(data->host[i]);
}

/* -------------------------------------------------------------------------------- the bodies */

static void run_dense(const struct bench *bench, int rank, void *argument)
{
    bench->peer->run(bench, rank, ((struct row *)argument)->dense);
}

static void run_sparse(const struct bench *bench, int rank, void *argument)
{
    const struct row *row = argument;
    const struct data *data = row->data;
    void *gradient = row->in_place ? data->accumulator[rank] : data->gradient[rank];
    BENCH_OK(trib_sparse_allreduce(row->sparse[rank], gradient, data->result[rank],
                                   bench->stream[rank]));
}

static void run_select(const struct bench *bench, int rank, void *argument)
{
    const struct row *row = argument;
    const struct data *data = row->data;
    void *gradient = row->in_place ? data->accumulator[rank] : data->gradient[rank];
    BENCH_OK(trib_sparse_allreduce_entries(row->sparse[rank], gradient, row->index[rank],
                                           row->entries[rank], data->result[rank],
                                           bench->stream[rank]));
}

static void refill(const struct bench *bench, int rank, void *argument)
{
    const struct data *data = ((struct row *)argument)->data;
    BENCH_OK(trib_device_copy(bench->device[rank], data->accumulator[rank], data->gradient[rank],
                              data->count * sizeof(float), bench->stream[rank]));
}

/* A sparse state is made by all ranks together. */
struct making {
    struct row *row;
    const trib_sparse_options *options;
    trib_comm *const *comm;
};

static void make_sparse(const struct bench *bench, int rank, void *argument)
{
    const struct making *making = argument;
    (void)bench;
    BENCH_OK(trib_sparse_create(&making->row->sparse[rank], making->comm[rank],
                                making->row->data->count, TRIB_F32, making->options));
}

static void drop_sparse(const struct bench *bench, int rank, void *argument)
{
    (void)bench;
    BENCH_OK(trib_sparse_destroy(((struct row *)argument)->sparse[rank]));
}

/* ---------------------------------------------------------------------------------- the rows */

enum { BURST_CALLS = 20 };

/* Every body of a row has run before. */
static struct bench_result time_row(const struct bench *bench, bench_body prepare, bench_body body,
                                    struct row *row, const struct sparse_options *options)
{
    const struct bench_burst burst = {options->way, BURST_CALLS, options->warmup,
                                      options->iterations};
    struct bench_result result;
    if (options->way == BENCH_EACH)
        return bench_time_prepared(bench, prepare, body, row, options->warmup, options->iterations);
    bench_time_bursts(bench, &burst, &body, 1, row, &result);
    return result;
}

static void print_heading(FILE *csv)
{
    printf("%-16s %-17s %10s %8s | %10s %10s %10s | %12s %12s %9s %9s\n", "algorithm", "mode",
           "count", "density", "median us", "p99", "queue", "bytes/call", "words/call", "of dense",
           "fallbacks");
    if (csv != NULL)
        fprintf(csv, "algorithm,mode,count,density,median_us,p99_us,queue_us,bytes_per_call,"
                     "words_per_call,of_dense_f32,fallbacks,wrong\n");
}

static void print_row(const struct row *row, const struct bench_result *result, struct moved moved,
                      uint64_t fallbacks, size_t wrong, struct output *output)
{
    const double median = result->device.median, p99 = result->device.p99;
    const double ratio = output->dense_us > 0 ? median / output->dense_us : 0;
    printf("%-16s %-17s %10zu %8g | %10.1f %10.1f %10.1f | %12llu %12llu %9.3f %9llu%s\n",
           row->what, row->mode, row->data->count, row->density, median, p99, result->host,
           (unsigned long long)moved.bytes, (unsigned long long)moved.words, ratio,
           (unsigned long long)fallbacks, wrong == 0 ? "" : "  WRONG");
    fflush(stdout);
    if (output->csv != NULL)
        fprintf(output->csv, "%s,%s,%zu,%g,%.2f,%.2f,%.2f,%llu,%llu,%.4f,%llu,%zu\n", row->what,
                row->mode, row->data->count, row->density, median, p99, result->host,
                (unsigned long long)moved.bytes, (unsigned long long)moved.words, ratio,
                (unsigned long long)fallbacks, wrong);
}

/* Ranks whose result is not rank 0's, and calls that have not applied. */
static size_t count_wrong(const struct bench *bench, struct row *row)
{
    const size_t bytes = row->data->count * sizeof(float);
    size_t wrong = 0;
    for (int rank = 0; rank < bench->ranks; rank++) {
        float *host = row->data->host[rank > 0];
        wrong += trib_sparse_status(row->sparse[rank]) != TRIB_OK;
        bench_copy(bench, rank, host, row->data->result[rank], bytes);
        wrong += memcmp(host, row->data->host[0], bytes) != 0;
    }
    return wrong;
}

static size_t measure_dense(const struct bench *bench, struct data *data, trib_dtype dtype,
                            const struct sparse_options *options, struct output *output)
{
    struct row row = {.what = "dense", .mode = trib_dtype_name(dtype), .density = 1, .data = data};
    for (int rank = 0; rank < bench->ranks; rank++)
        row.dense[rank] = (struct bench_call){.collective = bench_collective_find("allreduce"),
                                              .send = data->accumulator[rank],
                                              .recv = data->result[rank],
                                              .count = data->count,
                                              .dtype = dtype,
                                              .op = TRIB_SUM};
    (void)bench_time(bench, run_dense, &row, 0, 1);
    const struct bench_result result = time_row(bench, NULL, run_dense, &row, options);
    if (dtype == TRIB_F32)
        output->dense_us = result.device.median;
    /* As a ring does it, which the statistics of sparse calls take for granted too. */
    const uint64_t ranks = (uint64_t)bench->ranks;
    const uint64_t bytes = 2 * data->count * trib_dtype_size(dtype) * (ranks - 1) / ranks;
    print_row(&row, &result, (struct moved){bytes, bytes / 4}, 0, 0, output);
    return 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The mean per call between `before` and now. */
static struct moved moved_since(const struct bench *bench, const struct row *row,
                                const trib_sparse_statistics *before)
{
    struct moved moved = {0, 0};
    for (int rank = 0; rank < bench->ranks; rank++) {
        trib_sparse_statistics now = TRIB_SPARSE_STATISTICS_INIT;
        BENCH_OK(trib_sparse_statistics_get(&now, row->sparse[rank]));
        const uint64_t calls = larger(now.calls_applied - before[rank].calls_applied, 1);
        const uint64_t sent = now.bytes_sent - before[rank].bytes_sent;
        const uint64_t received = now.bytes_received - before[rank].bytes_received;
        const uint64_t words = now.words_received - before[rank].words_received;
        moved.bytes = larger(moved.bytes, larger(sent, received) / calls);
        moved.words = larger(moved.words, words / calls);
    }
    return moved;
}

/* `row->sparse` is made; measure and destroy it. */
static size_t measure(const struct bench *bench, struct row *row, bench_body body, bool compare,
                      const struct sparse_options *options, struct output *output)
{
    const bench_body prepare = row->in_place ? refill : NULL;
    trib_sparse_statistics before[BENCH_MAX_RANKS], after = TRIB_SPARSE_STATISTICS_INIT;
    (void)bench_time_prepared(bench, prepare, body, row, 0, 1);
    const size_t wrong = compare ? count_wrong(bench, row) : 0;
    for (int rank = 0; rank < bench->ranks; rank++) {
        before[rank] = (trib_sparse_statistics)TRIB_SPARSE_STATISTICS_INIT;
        BENCH_OK(trib_sparse_statistics_get(&before[rank], row->sparse[rank]));
    }
    const struct bench_result result = time_row(bench, prepare, body, row, options);
    BENCH_OK(trib_sparse_statistics_get(&after, row->sparse[0]));
    print_row(row, &result, moved_since(bench, row, before), after.fallbacks - before[0].fallbacks,
              wrong, output);
    (void)bench_time(bench, drop_sparse, row, 0, 1);
    return wrong;
}

/* How an algorithm's calls are made. */
struct mode {
    const char *name;
    bool in_place;
    trib_dtype wire; /* 0: the gradient's */
    bool momentum;
};

static size_t measure_sparse(const struct bench *bench, struct data *data, const char *algorithm,
                             double density, const struct mode *mode,
                             const struct sparse_options *options, struct output *output)
{
    struct row row = {.what = algorithm,
                      .mode = mode->name,
                      .density = density,
                      .data = data,
                      .in_place = mode->in_place};
    trib_sparse_options how = TRIB_SPARSE_OPTIONS_INIT;
    int32_t hosts[BENCH_MAX_RANKS];
    for (int rank = 0; options->per_host != 0 && rank < bench->ranks; rank++)
        hosts[rank] = rank / options->per_host;
    how.hosts = options->per_host == 0 ? NULL : hosts;
    how.algorithm = algorithm;
    how.density = density;
    how.flags = mode->in_place ? TRIB_SPARSE_IN_PLACE : 0;
    how.wire = mode->wire;
    how.momentum = mode->momentum ? options->momentum : 0;
    struct making making = {&row, &how, bench->comm};
    (void)bench_time(bench, make_sparse, &making, 0, 1);
    return measure(bench, &row, run_sparse, true, options, output);
}

/* The selection alone: topka of a communicator of one rank, entries as result. `alone`: those. */
static size_t measure_select(const struct bench *bench, trib_comm *const *alone, struct data *data,
                             double density, const struct mode *mode,
                             const struct sparse_options *options, struct output *output)
{
    struct row row = {.what = "select",
                      .mode = mode->name,
                      .density = density,
                      .data = data,
                      .in_place = mode->in_place};
    trib_sparse_options how = TRIB_SPARSE_OPTIONS_INIT;
    how.algorithm = "topka";
    how.density = density;
    how.flags = TRIB_SPARSE_ENTRIES | (mode->in_place ? (uint32_t)TRIB_SPARSE_IN_PLACE : 0);
    how.momentum = mode->momentum ? options->momentum : 0;
    struct making making = {&row, &how, alone};
    (void)bench_time(bench, make_sparse, &making, 0, 1);
    for (int rank = 0; rank < bench->ranks; rank++) {
        const size_t capacity = (size_t)trib_sparse_capacity(row.sparse[rank]);
        row.index[rank] = bench_alloc(bench, rank, capacity * sizeof(uint32_t));
        row.entries[rank] = bench_alloc(bench, rank, capacity * sizeof(float));
    }
    const size_t wrong = measure(bench, &row, run_select, false, options, output);
    for (int rank = 0; rank < bench->ranks; rank++) {
        bench_free(bench, rank, row.index[rank]);
        bench_free(bench, rank, row.entries[rank]);
    }
    return wrong;
}

static const struct mode modes[] = {
    {"separate", false, 0, false},     {"momentum", false, 0, true},
    {"in_place", true, 0, false},      {"in_place_momentum", true, 0, true},
    {"bf16", false, TRIB_BF16, false}, {"bf16_momentum", false, TRIB_BF16, true}};
enum { MODES = sizeof modes / sizeof *modes };

/* Has this run such rows, whatever the modes that were asked for? */
static bool is_possible(const struct sparse_options *options, const struct mode *mode)
{
    return (!mode->momentum || options->momentum != 0) &&
           (!mode->in_place || options->way == BENCH_EACH);
}

static bool is_wanted(const struct sparse_options *options, const struct mode *mode)
{
    if (!is_possible(options, mode))
        return false;
    return mode->wire != 0 ? options->bf16 : mode->in_place ? options->in_place : options->separate;
}

static size_t measure_density(const struct bench *bench, trib_comm *const *alone, struct data *data,
                              double density, const struct sparse_options *options,
                              struct output *output)
{
    size_t wrong = 0;
    for (int mode = 0; mode < MODES && options->select; mode++)
        if (modes[mode].wire == 0 && is_possible(options, &modes[mode]))
            wrong += measure_select(bench, alone, data, density, &modes[mode], options, output);
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++) {
        const char *name = trib_sparse_algorithm_name(i);
        if (!bench_in_list(options->algorithms, name))
            continue;
        for (int mode = 0; mode < MODES; mode++)
            if (is_wanted(options, &modes[mode]))
                wrong += measure_sparse(bench, data, name, density, &modes[mode], options, output);
    }
    return wrong;
}

struct loner {
    trib_comm *comm[BENCH_MAX_RANKS];
};

static void open_alone(const struct bench *bench, int rank, void *argument)
{
    BENCH_OK(trib_comm_split(&((struct loner *)argument)->comm[rank], bench->comm[rank], rank, 0));
}

int main(int argc, char **argv)
{
    const struct sparse_options options = sparse_options(argc, argv);
    struct bench bench;
    static struct data data;
    static struct loner loner;
    struct output output = {NULL, 0};
    size_t wrong = 0;
    output.csv = bench_file(options.csv);
    bench_open(&bench, options.backend, options.ranks, 0, 0);
    if (options.way == BENCH_GRAPH)
        bench_need_graphs(&bench);
    (void)bench_time(&bench, open_alone, &loner, 0, 1);
    bench_print_setting(&bench);
    print_heading(output.csv);
    for (int i = 0; i < options.ncounts; i++) {
        make_data(&bench, &data, options.counts[i]);
        wrong += measure_dense(&bench, &data, TRIB_F32, &options, &output);
        wrong += measure_dense(&bench, &data, TRIB_BF16, &options, &output);
        for (int j = 0; j < options.ndensities; j++)
            wrong +=
                measure_density(&bench, loner.comm, &data, options.densities[j], &options, &output);
        drop_data(&bench, &data);
    }
    for (int rank = 0; rank < bench.ranks; rank++)
        BENCH_OK(trib_comm_destroy(loner.comm[rank]));
    bench_close(&bench);
    if (output.csv != NULL && fclose(output.csv) != 0)
        wrong++;
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
