/* The command line of the sweep. */
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>

#include "benches/arguments.h"
#include "benches/sweep.h"

static size_t size_of(const char *option, const char *text)
{
    double bytes;
    (void)bench_numbers(option, text, 1, 0x1p40, &bytes, 1);
    return (size_t)bytes;
}

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

/* Checks that reading one option alone does not make. */
static void check(const struct options *options, int argc, char **argv)
{
    bench_known("--collective", options->collective, collective_name);
    bench_known("--dtype", options->dtype, dtype_name);
    bench_known("--op", options->op, op_name);
    if (optind < argc) {
        fprintf(stderr, "%s: every argument has a name: see --help\n", argv[optind]);
        exit(EXIT_FAILURE);
    }
    if (options->begin > options->end) {
        fprintf(stderr, "--begin %zu is more than --end %zu\n", options->begin, options->end);
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
           "  -b, --begin BYTES      smallest size, K M G allowed (8)\n"
           "  -e, --end BYTES        largest size (64M)\n"
           "  -f, --factor N         from size to size (4)\n"
           "  -d, --dtype LIST       f16,bf16,f32,... or all (f32)\n"
           "  -o, --op LIST          sum,prod,min,max,avg or all (sum)\n"
           "  -n, --iterations N     timed iterations (100, fewer above 4 MiB)\n"
           "  -w, --warmup N         untimed iterations (5)\n"
           "      --root N           root of broadcast, reduce, gather, scatter (0)\n"
           "      --no-check         do not compare results\n"
           "      --unchecked        open the communicators with TRIB_UNCHECKED\n"
           "  -J, --json FILE        write the rows as JSON too\n",
           program);
}

struct options sweep_options(int argc, char **argv)
{
    enum { NO_CHECK = 256, UNCHECKED, ROOT };
    static const struct option names[] = {{"collective", 1, NULL, 'c'},
                                          {"backend", 1, NULL, 'B'},
                                          {"ranks", 1, NULL, 'r'},
                                          {"threads", 1, NULL, 't'},
                                          {"begin", 1, NULL, 'b'},
                                          {"end", 1, NULL, 'e'},
                                          {"factor", 1, NULL, 'f'},
                                          {"dtype", 1, NULL, 'd'},
                                          {"op", 1, NULL, 'o'},
                                          {"iterations", 1, NULL, 'n'},
                                          {"warmup", 1, NULL, 'w'},
                                          {"json", 1, NULL, 'J'},
                                          {"root", 1, NULL, ROOT},
                                          {"no-check", 0, NULL, NO_CHECK},
                                          {"help", 0, NULL, 'h'},
                                          {"unchecked", 0, NULL, UNCHECKED},
                                          {NULL, 0, NULL, 0}};
    struct options options = {.collective = "allreduce",
                              .dtype = "f32",
                              .op = "sum",
                              .begin = 8,
                              .end = (size_t)64 << 20,
                              .factor = 4,
                              .iterations = 100,
                              .warmup = 5,
                              .check = true};
    int option;
    while ((option = getopt_long(argc, argv, "c:B:r:t:b:e:f:d:o:n:w:J:h", names, NULL)) != -1) {
        switch (option) {
        case 'c':
            options.collective = optarg;
            break;
        case 'B':
            options.backend = optarg;
            break;
        case 'r':
            options.ranks = bench_integer("--ranks", optarg, 1, BENCH_MAX_RANKS);
            break;
        case 't':
            options.threads = bench_integer("--threads", optarg, 1, BENCH_MAX_RANKS);
            break;
        case 'b':
            options.begin = size_of("--begin", optarg);
            break;
        case 'e':
            options.end = size_of("--end", optarg);
            break;
        case 'f':
            options.factor = bench_integer("--factor", optarg, 2, INT_MAX);
            break;
        case 'd':
            options.dtype = optarg;
            break;
        case 'o':
            options.op = optarg;
            break;
        case 'n':
            options.iterations = bench_integer("--iterations", optarg, 1, INT_MAX);
            break;
        case 'w':
            options.warmup = bench_integer("--warmup", optarg, 0, INT_MAX);
            break;
        case 'J':
            options.json = optarg;
            break;
        case NO_CHECK:
            options.check = false;
            break;
        case UNCHECKED:
            options.unchecked = true;
            break;
        case ROOT:
            options.root = bench_integer("--root", optarg, 0, BENCH_MAX_RANKS - 1);
            break;
        default:
            usage(argv[0]);
            exit(option == 'h' ? EXIT_SUCCESS : EXIT_FAILURE);
        }
    }
    check(&options, argc, argv);
    return options;
}
