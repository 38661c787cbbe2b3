/* What is asked of the sweep on the command line. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "benches/sweep.h"

/* "64K" and the like. */
static size_t parse_bytes(const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    const char *unit = strchr("KMG", *end);
    const int shift = *end == '\0' || unit == NULL ? 0 : 10 * (int)(unit - "KMG" + 1);
    return (size_t)ldexp(value, shift);
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
    static const struct option names[] = {
        {"collective", 1, NULL, 'c'}, {"backend", 1, NULL, 'B'},    {"ranks", 1, NULL, 'r'},
        {"threads", 1, NULL, 't'},    {"begin", 1, NULL, 'b'},      {"end", 1, NULL, 'e'},
        {"factor", 1, NULL, 'f'},     {"dtype", 1, NULL, 'd'},      {"op", 1, NULL, 'o'},
        {"iterations", 1, NULL, 'n'}, {"warmup", 1, NULL, 'w'},     {"json", 1, NULL, 'J'},
        {"root", 1, NULL, ROOT},      {"no-check", 0, NULL, NO_CHECK}, {"help", 0, NULL, 'h'},
        {"unchecked", 0, NULL, UNCHECKED},
        {NULL, 0, NULL, 0}};
    struct options options = {.collective = "allreduce", .dtype = "f32", .op = "sum", .begin = 8,
                              .end = (size_t)64 << 20, .factor = 4, .iterations = 100,
                              .warmup = 5, .check = true};
    int option;
    while ((option = getopt_long(argc, argv, "c:B:r:t:b:e:f:d:o:n:w:J:h", names, NULL)) != -1) {
        switch (option) {
        case 'c': options.collective = optarg; break;
        case 'B': options.backend = optarg; break;
        case 'r': options.ranks = atoi(optarg); break;
        case 't': options.threads = atoi(optarg); break;
        case 'b': options.begin = parse_bytes(optarg); break;
        case 'e': options.end = parse_bytes(optarg); break;
        case 'f': options.factor = atoi(optarg); break;
        case 'd': options.dtype = optarg; break;
        case 'o': options.op = optarg; break;
        case 'n': options.iterations = atoi(optarg); break;
        case 'w': options.warmup = atoi(optarg); break;
        case 'J': options.json = optarg; break;
        case NO_CHECK: options.check = false; break;
        case UNCHECKED: options.unchecked = true; break;
        case ROOT: options.root = atoi(optarg); break;
        default: usage(argv[0]); exit(option == 'h' ? EXIT_SUCCESS : EXIT_FAILURE);
        }
    }
    if (options.factor < 2 || options.iterations < 1 || options.warmup < 0 || options.begin < 1) {
        usage(argv[0]);
        exit(EXIT_FAILURE);
    }
    return options;
}
