/* The command line of trib_sparse. */
#include "benches/sparse.h"

#include <getopt.h>
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
        "  -n, --iterations N     timed calls (50)\n"
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

struct sparse_options sparse_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"backend", 1, NULL, 'B'},    {"ranks", 1, NULL, 'r'},   {"algorithm", 1, NULL, 'a'},
        {"count", 1, NULL, 'c'},      {"density", 1, NULL, 'd'}, {"mode", 1, NULL, 'm'},
        {"iterations", 1, NULL, 'n'}, {"warmup", 1, NULL, 'w'},  {"csv", 1, NULL, 'o'},
        {"help", 0, NULL, 'h'},       {NULL, 0, NULL, 0}};
    struct sparse_options options = {.algorithms = "all", .iterations = 50, .warmup = 10};
    const char *counts = "1M,25557032,256M", *densities = "0.001,0.01,0.05", *mode = "all";
    int option;
    while ((option = getopt_long(argc, argv, "B:r:a:c:d:m:n:w:o:h", names, NULL)) != -1) {
        switch (option) {
        case 'B':
            options.backend = optarg;
            break;
        case 'r':
            options.ranks = bench_integer("--ranks", optarg, 1, BENCH_MAX_RANKS);
            break;
        case 'a':
            options.algorithms = optarg;
            break;
        case 'c':
            counts = optarg;
            break;
        case 'd':
            densities = optarg;
            break;
        case 'm':
            mode = optarg;
            break;
        case 'n':
            options.iterations = bench_integer("--iterations", optarg, 1, INT_MAX);
            break;
        case 'w':
            options.warmup = bench_integer("--warmup", optarg, 0, INT_MAX);
            break;
        case 'o':
            options.csv = optarg;
            break;
        default:
            usage(argv[0]);
            exit(option == 'h' ? EXIT_SUCCESS : EXIT_FAILURE);
        }
    }
    double values[SPARSE_MAX_LIST];
    options.ncounts = bench_numbers("--count", counts, 1, UINT32_MAX, values, SPARSE_MAX_LIST);
    for (int i = 0; i < options.ncounts; i++)
        options.counts[i] = (size_t)values[i];
    options.ndensities =
        bench_numbers("--density", densities, 1e-12, 1, options.densities, SPARSE_MAX_LIST);
    bench_known("--algorithm", options.algorithms, trib_sparse_algorithm_name);
    set_modes(&options, mode);
    if (optind < argc) {
        fprintf(stderr, "%s: every argument has a name: see --help\n", argv[optind]);
        exit(EXIT_FAILURE);
    }
    return options;
}
