/* The command line of the sweep. */
#include <limits.h>
#include <stdlib.h>

#include "benches/arguments.h"
#include "benches/sweep.h"

static const char *collective_name(int32_t index)
{
    return bench_collectives[index].name;
}

static const char *dtype_name(int32_t index)
{
    return index <= TRIB_U64 - TRIB_F16 ? trib_dtype_name(TRIB_F16 + index) : NULL;
}

static const char *op_name(int32_t index)
{
    return index <= TRIB_AVG - TRIB_SUM ? trib_op_name(TRIB_SUM + index) : NULL;
}

static const char *variant_name(int32_t index)
{
    return sweep_variants[index].name;
}

/* Checks that reading one option alone does not make. */
static void check(const struct options *options)
{
    bench_known("--collective", options->collective, collective_name);
    bench_known("--dtype", options->dtype, dtype_name);
    bench_known("--op", options->op, op_name);
    bench_known("--variant", options->variant, variant_name);
    if (options->begin > options->end) {
        fprintf(stderr, "--begin %zu is more than --end %zu\n", options->begin, options->end);
        exit(EXIT_FAILURE);
    }
    if (options->calls != 0 && !options->eager && !options->graph) {
        fprintf(stderr, "--calls %d: only --eager and --graph make bursts\n", options->calls);
        exit(EXIT_FAILURE);
    }
    if (options->processes && options->threads != 0) {
        fprintf(stderr, "--threads %d: with --processes each rank has a process of its own\n",
                options->threads);
        exit(EXIT_FAILURE);
    }
    if (options->graph && options->threads == 1) {
        fprintf(stderr, "--graph: each rank captures on a thread of its own, not --threads 1\n");
        exit(EXIT_FAILURE);
    }
}

static void usage(const char *program)
{
    printf("usage: %s [options]\n"
           "  -c, --collective LIST  allreduce,broadcast,... or all (allreduce)\n"
           "  -B, --backend NAME     nccl or host (the best that has a device)\n"
           "  -r, --ranks N          (all GPUs; 2 on host)\n"
           "  -t, --threads N        1: one thread drives all ranks (as many as ranks: one each)\n"
           "      --processes        each rank in a process of its own, as launchers start them "
           "(nccl)\n"
           "  -b, --begin BYTES      smallest size, K M G allowed (8)\n"
           "  -e, --end BYTES        largest size (64M)\n"
           "  -f, --factor N         from size to size (4)\n"
           "  -d, --dtype LIST       f16,bf16,f32,... or all (f32)\n"
           "  -o, --op LIST          sum,prod,min,max,avg or all (sum)\n"
           "      --eager            time bursts of calls, not each call\n"
           "      --graph            time bursts that CUDA graphs captured; with --eager both\n"
           "      --calls N          calls of a burst (100)\n"
           "  -n, --iterations N     timed iterations (100; above 4 MiB 20)\n"
           "  -w, --warmup N         untimed iterations (5)\n"
           "      --root N           root of broadcast, reduce, gather, scatter (0)\n"
           "      --no-check         do not compare results\n"
           "  -v, --variant LIST     default,unchecked,unrecorded,no_peers, all of these,\n"
           "                         nccl,push,one_shot,two_shot,symmetric,windows (the first)\n"
           "  -J, --json FILE        write the rows as JSON too\n",
           program);
}

struct options sweep_options(int argc, char **argv)
{
    struct options o = {.collective = "allreduce",
                        .dtype = "f32",
                        .op = "sum",
                        .variant = "default",
                        .begin = 8,
                        .end = (size_t)64 << 20,
                        .factor = 4,
                        .warmup = 5,
                        .check = true};
    const struct bench_option table[] = {
        {"collective", 'c', BENCH_TEXT, &o.collective, 0, 0},
        {"backend", 'B', BENCH_TEXT, &o.backend, 0, 0},
        {"ranks", 'r', BENCH_INTEGER, &o.ranks, 1, BENCH_MAX_RANKS},
        {"threads", 't', BENCH_INTEGER, &o.threads, 1, BENCH_MAX_RANKS},
        {"processes", 0, BENCH_SET, &o.processes, 0, 0},
        {"begin", 'b', BENCH_BYTES, &o.begin, 0, 0},
        {"end", 'e', BENCH_BYTES, &o.end, 0, 0},
        {"factor", 'f', BENCH_INTEGER, &o.factor, 2, INT_MAX},
        {"dtype", 'd', BENCH_TEXT, &o.dtype, 0, 0},
        {"op", 'o', BENCH_TEXT, &o.op, 0, 0},
        {"eager", 0, BENCH_SET, &o.eager, 0, 0},
        {"graph", 0, BENCH_SET, &o.graph, 0, 0},
        {"calls", 0, BENCH_INTEGER, &o.calls, 1, INT_MAX},
        {"iterations", 'n', BENCH_INTEGER, &o.iterations, 1, INT_MAX},
        {"warmup", 'w', BENCH_INTEGER, &o.warmup, 0, INT_MAX},
        {"json", 'J', BENCH_TEXT, &o.json, 0, 0},
        {"root", 0, BENCH_INTEGER, &o.root, 0, BENCH_MAX_RANKS - 1},
        {"no-check", 0, BENCH_CLEAR, &o.check, 0, 0},
        {"variant", 'v', BENCH_TEXT, &o.variant, 0, 0},
        {NULL, 0, BENCH_TEXT, NULL, 0, 0},
    };
    bench_options(argc, argv, table, usage);
    check(&o);
    o.calls = o.calls != 0 ? o.calls : 100;
    return o;
}
