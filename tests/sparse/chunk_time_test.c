/* chunk_select on the cpu takes about as long whatever the values and the chunks are: not many
 * times as long on values that are equal or sorted, or in chunks of one element, as on random ones
 * in chunks of 4,096. By the time of this thread alone, the best of a few runs, so that other work
 * on the machine is no part of it. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/sparse_cpu.h"
#include "tests/check.h"

enum { COUNT = 1 << 18, RUNS = 7 };

enum values { RANDOM, EQUAL, RISING, FALLING, TENT, VALUES };
static const char *const names[VALUES] = {"random", "equal", "rising", "falling",
                                          "rising and falling"};

struct bench {
    float *values, *chosen;
    uint16_t *index;
    void *scratch;
};

static float value(enum values values, size_t i, uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1;
    switch (values) {
    case RANDOM:
        return (float)(int32_t)(*random >> 32);
    case RISING:
        return 1 + (float)i;
    case FALLING:
        return (float)(COUNT - i);
    case TENT:
        return 1 + (float)(i % 4096 < 2048 ? i % 4096 : 4095 - i % 4096);
    default:
        return 1.5f;
    }
}

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static double best_ms(const struct bench *bench, enum values values, uint32_t chunk, uint32_t k)
{
    const struct tri_accumulator acc = {
        .buffer = {bench->values}, .dtype = TRIB_F32, .decay = 1, .count = COUNT};
    const struct tri_chunks out = {bench->index, bench->chosen, TRIB_F32, chunk, k};
    uint64_t random = 7;
    struct tri_header header = {0};
    const struct tri_signing signing = {.header = &header};
    double best = 0;
    for (size_t i = 0; i < COUNT; i++)
        bench->values[i] = value(values, i, &random);
    for (int run = 0; run < RUNS; run++) {
        const double start = now_ms();
        CHECK_OK(
            tri_cpu_sparse_chunk_select(&acc, false, false, &out, signing, bench->scratch, NULL));
        const double ms = now_ms() - start;
        best = run == 0 || ms < best ? ms : best;
    }
    return best;
}

static void compare(const struct bench *bench, double usual, enum values values, uint32_t chunk,
                    uint32_t k, double most)
{
    check_begin("%u of each %u, %s", k, chunk, names[values]);
    const double ms = best_ms(bench, values, chunk, k);
    CHECK_MSG(ms <= most * usual, "%.2f ms, %.1f times the %.2f ms of 41 random ones of each 4096",
              ms, ms / usual, usual);
    check_end();
}

int main(void)
{
    const struct tri_sparse_kernels *kernels = &tri_sparse_kernels_cpu;
    struct bench bench = {malloc(COUNT * sizeof(float)), malloc(COUNT * sizeof(float)),
                          malloc(COUNT * sizeof(uint16_t)),
                          malloc(kernels->scratch_bytes(COUNT, COUNT, COUNT, TRIB_F32))};
    if (bench.values == NULL || bench.chosen == NULL || bench.index == NULL ||
        bench.scratch == NULL)
        abort();
    const double usual = best_ms(&bench, RANDOM, 4096, 41);
    for (int values = EQUAL; values < VALUES; values++)
        compare(&bench, usual, (enum values)values, 4096, 41, 6);
    compare(&bench, usual, RANDOM, 1, 1, 14);
    compare(&bench, usual, EQUAL, 1, 1, 14);
    free(bench.values);
    free(bench.chosen);
    free(bench.index);
    free(bench.scratch);
    return check_finish("chunk_time_test");
}
