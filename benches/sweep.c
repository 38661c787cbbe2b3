/* Sweep: collectives over sizes, types and reductions, in the manner of nccl-tests, with the peer
 * (plain NCCL, or memcpy on host) measured in the same run beside every row. */
#include <stdlib.h>

#include "benches/arguments.h"
#include "benches/sweep.h"

struct sweep {
    struct bench bench;
    struct options options;
    FILE *json; /* NULL: none */
    size_t rows, wrong;
};

static void sweep_sizes(struct sweep *sweep, struct row row)
{
    const struct bench_collective *c = row.collective;
    const int ranks = sweep->bench.ranks;
    const size_t size = trib_dtype_size(row.dtype);
    const size_t send = c->send_elements(1, ranks), recv = c->recv_elements(1, ranks);
    const size_t blocks = send > recv ? send : recv;
    size_t previous = 0;
    for (size_t bytes = sweep->options.begin; bytes <= sweep->options.end;
         bytes *= (size_t)sweep->options.factor) {
        row.count = bytes / size / blocks;
        row.bytes = row.count * blocks * size;
        if (row.count == 0 || row.bytes == previous)
            continue;
        previous = row.bytes;
        struct options options = sweep->options;
        if (row.bytes > (size_t)4 << 20 && options.iterations > 20)
            options.iterations = 20;
        sweep_measure(&sweep->bench, &row, &options);
        sweep_print(&row, &sweep->bench);
        if (sweep->json != NULL)
            sweep_write_json(sweep->json, &row, &sweep->bench, sweep->rows == 0);
        sweep->rows++;
        sweep->wrong += row.wrong;
    }
}

static void sweep_collective(struct sweep *sweep, const struct bench_collective *c)
{
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++) {
        if (!bench_in_list(sweep->options.dtype, trib_dtype_name(dtype)))
            continue;
        for (trib_op op = TRIB_SUM; op <= (c->reduces ? TRIB_AVG : TRIB_SUM); op++) {
            if (c->reduces && !bench_in_list(sweep->options.op, trib_op_name(op)))
                continue;
            for (int in_place = 0; in_place <= (c->in_place_offset != NULL ? 1 : 0); in_place++)
                sweep_sizes(sweep, (struct row){.collective = c,
                                                .dtype = dtype,
                                                .op = op,
                                                .in_place = in_place != 0});
        }
    }
}

/* One thread can drive all ranks of only those collectives that have a call for all ranks. */
static void refuse_without_group(const struct options *options)
{
    for (const struct bench_collective *c = bench_collectives; c->name != NULL; c++) {
        if (options->threads != 1 || c->run_group != NULL ||
            !bench_in_list(options->collective, c->name))
            continue;
        fprintf(stderr, "--threads 1: %s has no call for all ranks; allreduce and broadcast have\n",
                c->name);
        exit(EXIT_FAILURE);
    }
}

static void open_sweep(struct sweep *sweep)
{
    const struct options *options = &sweep->options;
    refuse_without_group(options);
    sweep->json = bench_file(options->json);
    bench_open(&sweep->bench, options->backend, options->ranks, options->threads,
               options->unchecked ? TRIB_UNCHECKED : 0);
    if (options->root >= sweep->bench.ranks) {
        fprintf(stderr, "--root %d: there are %d ranks, numbered from 0\n", options->root,
                sweep->bench.ranks);
        exit(EXIT_FAILURE);
    }
}

int main(int argc, char **argv)
{
    struct sweep sweep = {.options = sweep_options(argc, argv)};
    open_sweep(&sweep);
    bench_print_setting(&sweep.bench);
    sweep_print_heading(&sweep.bench);
    if (sweep.json != NULL)
        fputc('[', sweep.json);
    for (const struct bench_collective *c = bench_collectives; c->name != NULL; c++)
        if (bench_in_list(sweep.options.collective, c->name))
            sweep_collective(&sweep, c);
    bool written = true;
    if (sweep.json != NULL && (fputs("\n]\n", sweep.json) < 0 || fclose(sweep.json) != 0)) {
        perror(sweep.options.json);
        written = false;
    }
    bench_close(&sweep.bench);
    printf("# %zu rows, %zu wrong elements\n", sweep.rows, sweep.wrong);
    return sweep.rows > 0 && sweep.wrong == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}
