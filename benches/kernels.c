/* trib_kernels: the program. */
#include "benches/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"

/* xorshift64* */
static double uniform(void)
{
    static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return ((double)(state * UINT64_C(0x2545f4914f6cdd1d) >> 11) + 1) * 0x1p-53;
}

double kernels_normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static void usage(const char *program)
{
    printf("usage: %s [options]\n"
           "  -B, --backend NAME     cpu or cuda: the kernel table (cpu)\n"
           "  -c, --count LIST       elements, K M G allowed (25557032; cuda: 1M,25557032,256M)\n"
           "  -d, --density LIST     (0.001,0.01,0.05)\n"
           "  -u, --momentum M       select with momentum M, too (0: not)\n",
           program);
}

struct backend {
    const char *name, *counts; /* the default of --count */
    void (*time)(const struct kernels_options *options);
};

static const struct backend backends[] = {
    {"cpu", "25557032", kernels_time_cpu},
#ifdef TRI_BENCH_CUDA
    {"cuda", "1M,25557032,256M", kernels_time_cuda},
#endif
};

static const struct backend *find_backend(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(name, backends[i].name) == 0)
            return &backends[i];
    fprintf(stderr, "--backend: this build has no %s kernels\n", name);
    exit(EXIT_FAILURE);
}

static void set_lists(struct kernels_options *options, const char *counts, const char *densities)
{
    options->ncounts = bench_counts("--count", counts, 4096, options->counts);
    /* The rooms for entries are laid out for 5 %. */
    options->ndensities =
        bench_numbers("--density", densities, 1e-3, 0.05, options->densities, BENCH_MAX_LIST);
}

int main(int argc, char **argv)
{
    struct kernels_options options;
    const char *backend = "cpu", *counts = NULL, *densities = "0.001,0.01,0.05";
    const char *momentum = "0";
    const struct bench_option table[] = {
        {"backend", 'B', BENCH_TEXT, &backend, 0, 0},
        {"count", 'c', BENCH_TEXT, &counts, 0, 0},
        {"density", 'd', BENCH_TEXT, &densities, 0, 0},
        {"momentum", 'u', BENCH_TEXT, &momentum, 0, 0},
        {NULL, 0, BENCH_TEXT, NULL, 0, 0},
    };
    bench_options(argc, argv, table, usage);
    const struct backend *found = find_backend(backend);
    set_lists(&options, counts != NULL ? counts : found->counts, densities);
    (void)bench_numbers("--momentum", momentum, 0, 0.999, &options.momentum, 1);
    found->time(&options);
    return EXIT_SUCCESS;
}
