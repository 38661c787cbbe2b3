/* The command line of trib_sparse. */
#include "benches/sparse.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "benches/arguments.h"
#include "benches/bench.h"

static const char *const modes[] = {"separate", "in_place", "select", "bf16", NULL};

static const char *mode_name(int32_t index)
{
    return modes[index];
}

static void usage(const char *program)
{
    printf(
        "usage: %s [options]\n"
        "  -B, --backend NAME     nccl or host (the best that has a device)\n"
        "  -r, --ranks N          (all GPUs; 2 on host)\n"
        "  -a, --algorithm LIST   topka,srs,... or all (all)\n"
        "  -c, --count LIST       elements, K M G allowed (1M,25557032,256M)\n"
        "  -d, --density LIST     (0.001,0.01,0.05)\n"
        "  -m, --mode LIST        separate,in_place,select,bf16 or all (all): with a gradient,\n"
        "                         with an accumulator, the selection of one rank alone, bf16 on\n"
        "                         the wire\n"
        "  -u, --momentum M       beside each row one with momentum M (0: none)\n"
        "  -H, --per-host N       hier: N ranks a host, in their order (0: the hosts they run on)\n"
        "  -e, --eager            time bursts of 20 calls, not each call\n"
        "  -g, --graph            time bursts that CUDA graphs captured (algorithms of fixed "
        "size)\n"
        "  -n, --iterations N     timed calls, or bursts (50)\n"
        "  -w, --warmup N         untimed calls (10)\n"
        "  -o, --csv FILE         write the rows as CSV too\n",
        program);
}

static void set_modes(struct sparse_options *options, const char *list)
{
    bench_known("--mode", list, mode_name);
    options->separate = bench_in_list(list, "separate");
    options->in_place = bench_in_list(list, "in_place");
    options->select = bench_in_list(list, "select");
    options->bf16 = bench_in_list(list, "bf16");
}

static void set_lists(struct sparse_options *options, const char *counts, const char *densities)
{
    options->ncounts = bench_counts("--count", counts, 1, options->counts);
    options->ndensities =
        bench_numbers("--density", densities, 1e-12, 1, options->densities, BENCH_MAX_LIST);
}

static void set_way(struct sparse_options *options, bool eager, bool graph)
{
    if (eager && graph) {
        fprintf(stderr, "--eager --graph: one of them\n");
        exit(EXIT_FAILURE);
    }
    options->way = eager ? BENCH_EAGER : graph ? BENCH_GRAPH : BENCH_EACH;
}

struct sparse_options sparse_options(int argc, char **argv)
{
    struct sparse_options o = {.algorithms = "all", .iterations = 50, .warmup = 10};
    const char *counts = "1M,25557032,256M", *densities = "0.001,0.01,0.05", *mode = "all";
    const char *momentum = "0";
    bool eager = false, graph = false;
    const struct bench_option table[] = {
        {"backend", 'B', BENCH_TEXT, &o.backend, 0, 0},
        {"ranks", 'r', BENCH_INTEGER, &o.ranks, 1, BENCH_MAX_RANKS},
        {"algorithm", 'a', BENCH_TEXT, &o.algorithms, 0, 0},
        {"count", 'c', BENCH_TEXT, &counts, 0, 0},
        {"density", 'd', BENCH_TEXT, &densities, 0, 0},
        {"mode", 'm', BENCH_TEXT, &mode, 0, 0},
        {"momentum", 'u', BENCH_TEXT, &momentum, 0, 0},
        {"per-host", 'H', BENCH_INTEGER, &o.per_host, 0, BENCH_MAX_RANKS},
        {"eager", 'e', BENCH_SET, &eager, 0, 0},
        {"graph", 'g', BENCH_SET, &graph, 0, 0},
        {"iterations", 'n', BENCH_INTEGER, &o.iterations, 1, INT_MAX},
        {"warmup", 'w', BENCH_INTEGER, &o.warmup, 0, INT_MAX},
        {"csv", 'o', BENCH_TEXT, &o.csv, 0, 0},
        {NULL, 0, BENCH_TEXT, NULL, 0, 0},
    };
    bench_options(argc, argv, table, usage);
    set_lists(&o, counts, densities);
    (void)bench_numbers("--momentum", momentum, 0, 0.999, &o.momentum, 1);
    bench_known("--algorithm", o.algorithms, trib_sparse_algorithm_name);
    set_modes(&o, mode);
    set_way(&o, eager, graph);
    return o;
}
