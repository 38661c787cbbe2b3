/* Sweep: collectives over sizes, types and reductions, in the manner of nccl-tests, with the peer
 * (plain NCCL, or memcpy on host) measured in the same run beside every row. */
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/processes.h"
#include "benches/sweep.h"

struct sweep {
    struct bench bench[SWEEP_VARIANTS]; /* by the row of sweep_variants that opened it */
    struct options options;
    FILE *json; /* NULL: none */
    size_t rows, wrong;
};

/* "all" means those of any calls: not every backend and machine has the others. */
static bool asked_for(const struct sweep *sweep, int variant)
{
    const char *list = sweep->options.variant;
    const bool any_calls = sweep_variants[variant].variant == TRIB_VARIANT_AUTO;
    return (any_calls || strcmp(list, "all") != 0) &&
           bench_in_list(list, sweep_variants[variant].name);
}

/* The first variant that was asked for and opens its communicators like this one. */
static int opener(const struct sweep *sweep, int variant)
{
    int first = 0;
    while (!asked_for(sweep, first) ||
           sweep_variants[first].choose != sweep_variants[variant].choose)
        first++;
    return first;
}

/* Some bench; all have the same ranks and threads. */
static const struct bench *any(const struct sweep *sweep)
{
    int variant = 0;
    while (!asked_for(sweep, variant))
        variant++;
    return &sweep->bench[variant];
}

static void sweep_row(struct sweep *sweep, struct row row, const struct bench *bench)
{
    struct options options = sweep->options;
    if (options.iterations == 0)
        options.iterations = row.bytes > (size_t)4 << 20 ? 20 : 100;
    if (!sweep_measure(bench, &row, &options))
        return;
    sweep_print(&row, bench);
    if (sweep->json != NULL)
        sweep_write_json(sweep->json, &row, bench, sweep->rows == 0);
    sweep->rows++;
    sweep->wrong += row.wrong;
}

/* One row in all the ways, of all the variants. */
static void sweep_ways(struct sweep *sweep, struct row row)
{
    const struct options *o = &sweep->options;
    const bool asked[] = {
        [BENCH_EACH] = !o->eager && !o->graph, [BENCH_EAGER] = o->eager, [BENCH_GRAPH] = o->graph};
    for (row.way = BENCH_EACH; row.way <= BENCH_GRAPH; row.way++) {
        row.calls = row.way == BENCH_EACH ? 1 : o->calls;
        for (int i = 0; asked[row.way] && sweep_variants[i].name != NULL; i++) {
            row.variant = &sweep_variants[i];
            if (asked_for(sweep, i))
                sweep_row(sweep, row, &sweep->bench[opener(sweep, i)]);
        }
    }
}

static void sweep_sizes(struct sweep *sweep, struct row row)
{
    const struct bench_collective *c = row.collective;
    const int ranks = any(sweep)->ranks;
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
        sweep_ways(sweep, row);
    }
}

static void sweep_collective(struct sweep *sweep, const struct bench_collective *c)
{
    if (c->kind == BENCH_BARRIER) { /* of no size, type or reduction */
        sweep_ways(sweep, (struct row){.collective = c, .dtype = TRIB_F32, .op = TRIB_SUM});
        return;
    }
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

static void refuse(const struct options *options, const struct bench *bench,
                   const struct sweep_variant *variant)
{
    if (variant->variant != TRIB_VARIANT_AUTO && bench->group != NULL)
        bench_refuse("--variant %s: %s, a thread each", variant->name,
                     variant->symmetric ? "ranks allocate symmetric memory together"
                                        : "ranks make calls with a variant");
    if (options->root >= bench->ranks)
        bench_refuse("--root %d: there are %d ranks, numbered from 0", options->root, bench->ranks);
    if (options->graph)
        bench_need_graphs(bench);
}

static void open_sweep(struct sweep *sweep)
{
    const struct options *options = &sweep->options;
    refuse_without_group(options);
    sweep->json = bench_process() == 0 ? bench_file(options->json) : NULL;
    for (int i = 0; sweep_variants[i].name != NULL; i++) {
        trib_options with = TRIB_OPTIONS_INIT;
        if (!asked_for(sweep, i))
            continue;
        if (sweep_variants[i].choose != NULL)
            sweep_variants[i].choose(&with);
        if (opener(sweep, i) == i)
            bench_open_with(&sweep->bench[i], options->backend, options->ranks, options->threads,
                            &with);
        refuse(options, &sweep->bench[opener(sweep, i)], &sweep_variants[i]);
    }
}

static void close_sweep(struct sweep *sweep)
{
    for (int i = 0; sweep_variants[i].name != NULL; i++)
        if (asked_for(sweep, i) && opener(sweep, i) == i)
            bench_close(&sweep->bench[i]);
}

static bool close_json(struct sweep *sweep)
{
    if (sweep->json == NULL || (fputs("\n]\n", sweep->json) >= 0 && fclose(sweep->json) == 0))
        return true;
    perror(sweep->options.json);
    return false;
}

int main(int argc, char **argv)
{
    struct sweep sweep = {.options = sweep_options(argc, argv)};
    if (sweep.options.processes)
        sweep.options.ranks = bench_fork(sweep.options.backend, sweep.options.ranks);
    open_sweep(&sweep);
    bench_print_setting(any(&sweep));
    sweep_print_heading(any(&sweep), &sweep.options);
    if (sweep.json != NULL)
        fputc('[', sweep.json);
    for (const struct bench_collective *c = bench_collectives; c->name != NULL; c++)
        if (bench_in_list(sweep.options.collective, c->name))
            sweep_collective(&sweep, c);
    const bool written = close_json(&sweep);
    close_sweep(&sweep);
    printf("# %zu rows, %zu wrong elements\n", sweep.rows, sweep.wrong);
    return bench_status(sweep.rows > 0 && sweep.wrong == 0 && written);
}
