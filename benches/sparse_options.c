/* What is asked of trib_sparse on the command line. */
#include "benches/sparse.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/bench.h"

/* "1M,25557032": numbers with an optional unit, powers of two. */
static int numbers(const char *text, double *out)
{
    int n = 0;
    while (*text != '\0' && n < SPARSE_MAX_LIST) {
        char *end;
        double value = strtod(text, &end);
        const char *unit = *end == '\0' ? NULL : strchr("KMG", *end);
        if (unit != NULL) {
            value = ldexp(value, 10 * (int)(unit - "KMG" + 1));
            end++;
        }
        if (end == text || (*end != ',' && *end != '\0'))
            return 0;
        out[n++] = value;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

static void usage(const char *program)
{
    printf("usage: %s [options]\n"
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
    const char *counts = "1M,25557032,256M", *densities = "0.001,0.01,0.05", *modes = "all";
    int option;
    while ((option = getopt_long(argc, argv, "B:r:a:c:d:m:n:w:o:h", names, NULL)) != -1) {
        switch (option) {
        case 'B': options.backend = optarg; break;
        case 'r': options.ranks = atoi(optarg); break;
        case 'a': options.algorithms = optarg; break;
        case 'c': counts = optarg; break;
        case 'd': densities = optarg; break;
        case 'm': modes = optarg; break;
        case 'n': options.iterations = atoi(optarg); break;
        case 'w': options.warmup = atoi(optarg); break;
        case 'o': options.csv = optarg; break;
        default: usage(argv[0]); exit(option == 'h' ? EXIT_SUCCESS : EXIT_FAILURE);
        }
    }
    double values[SPARSE_MAX_LIST];
    options.ncounts = numbers(counts, values);
    for (int i = 0; i < options.ncounts; i++)
        options.counts[i] = (size_t)values[i];
    options.ndensities = numbers(densities, options.densities);
    set_modes(&options, modes);
    if (options.ncounts == 0 || options.ndensities == 0 || options.iterations < 1 ||
        options.warmup < 0) {
        usage(argv[0]);
        exit(EXIT_FAILURE);
    }
    return options;
}
