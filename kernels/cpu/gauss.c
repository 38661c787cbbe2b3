/* gauss: a threshold from mean and deviation. norm: of the residual.
 *
 * Sums are made in f64 in an order that is part of the meaning:
 *  1. A tile is 4,096 elements, the last one fewer. In a tile there are 256 partial sums, each
 *     begins with 0, and partial t takes the elements t, t + 256, t + 512, ... of the tile, in that
 *     order.
 *  2. Partials are added in pairs: for w = 128, 64, ..., 1: partial t += partial t + w, for all
 *     t < w. Partial 0 is the tile's sum.
 *  3. There are 1,024 partial sums over tiles, each begins with 0, and partial t takes the tiles t,
 *     t + 1,024, ..., in that order. They are added in pairs from w = 512 on. Partial 0 is the sum.
 * An element of f32 becomes f64 first. Its square is rounded to f64, then added. With s and q the
 * sums of elements and of squares, and n their number, every operation rounded to f64:
 *     mean = s / n
 *     variance = q / n - mean * mean, 0 unless above 0
 *     threshold = mean + z * sqrt(variance), 0 unless above 0 (so for a NaN), rounded to acc's type
 * Of no elements the threshold is 0. */
#include <math.h>

#include "kernels/cpu/sparse_cpu.h"

enum { TILE = 4096, IN_TILE = 256, TILES = 1024 };

struct sums {
    double plain, squares;
};

/* Steps 2 and 3: partials in pairs; `n` is a power of two. */
static struct sums add_pairs(struct sums *partial, uint32_t n)
{
    for (uint32_t w = n / 2; w > 0; w /= 2)
        for (uint32_t t = 0; t < w; t++) {
            partial[t].plain += partial[t + w].plain;
            partial[t].squares += partial[t + w].squares;
        }
    return partial[0];
}

/* Step 1. Elements of f16 and bf16 become f32 first. */
static struct sums add_tile(const void *values, trib_dtype dtype, size_t first, size_t n)
{
    struct sums partial[IN_TILE] = {{0, 0}};
    for (size_t i = 0; i < n; i++) {
        const double x = dtype == TRIB_F64 ? tri_load_f64(values, dtype, first + i)
                                           : (double)tri_load_f32(values, dtype, first + i);
        partial[i % IN_TILE].plain += x;
        partial[i % IN_TILE].squares += x * x;
    }
    return add_pairs(partial, IN_TILE);
}

static struct sums add_all(const void *values, trib_dtype dtype, size_t count)
{
    struct sums partial[TILES] = {{0, 0}};
    for (size_t i = 0; i < count; i += TILE) {
        const size_t left = count - i;
        const struct sums tile = add_tile(values, dtype, i, left < TILE ? left : TILE);
        struct sums *const to = &partial[i / TILE % TILES];
        to->plain += tile.plain;
        to->squares += tile.squares;
    }
    return add_pairs(partial, TILES);
}

static double threshold_of(struct sums sums, size_t count, double z)
{
    const double n = (double)count;
    const double mean = sums.plain / n;
    const double squared = mean * mean;
    const double variance = sums.squares / n - squared;
    const double above = z * sqrt(variance > 0 ? variance : 0);
    const double threshold = mean + above;
    return count != 0 && threshold > 0 ? threshold : 0;
}

trib_status tri_cpu_sparse_gauss(const struct tri_accumulator *acc, double z, void *threshold,
                                 void *scratch, trib_stream stream)
{
    (void)scratch;
    (void)stream;
    const struct sums sums = add_all(tri_acc_of(acc), acc->dtype, acc->count);
    const double found = threshold_of(sums, acc->count, z);
    if (acc->dtype == TRIB_F64)
        *(double *)threshold = found;
    else
        *(float *)threshold = (float)found;
    return TRIB_OK;
}

double tri_cpu_sparse_squares(const void *values, trib_dtype dtype, size_t count)
{
    return add_all(values, dtype, count).squares;
}

trib_status tri_cpu_sparse_norm(const struct tri_accumulator *acc, double *norm, void *scratch,
                                trib_stream stream)
{
    (void)scratch;
    (void)stream;
    *norm = sqrt(tri_cpu_sparse_squares(tri_residual_of(acc), acc->dtype, acc->count));
    return TRIB_OK;
}
