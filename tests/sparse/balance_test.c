/* Bounds that balance regions: for tensors as large as there may be, which no other test could
 * hold. How entries travel between them is tested with the algorithms. */
#include <string.h>

#include "csrc/sparse/algorithms/balance.h"
#include "tests/check.h"

enum { BINS = 4096 };

static uint64_t state = 1;

static uint64_t any(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static bool ascending(const uint64_t *bounds, int size, size_t count)
{
    bool good = bounds[0] == 0 && bounds[size] == count;
    for (int b = 0; b < size; b++)
        good = good && bounds[b] <= bounds[b + 1];
    return good;
}

/* What lies between the bins of two bounds, and what lies there with them. A bound at the first
 * element of a bin may have been rounded down to it. */
static void count_between(const uint32_t *bins, uint64_t width, uint64_t begin, uint64_t end,
                          uint64_t *least, uint64_t *most)
{
    *least = *most = 0;
    for (uint64_t b = 0; b < BINS; b++) {
        if (b * width > begin && (b + 1) * width <= end)
            *least += bins[b];
        if (b * width <= end && (b + 1) * width > begin)
            *most += bins[b];
    }
}

/* Every region's share is within what the bins know of it. */
static bool even(const uint32_t *bins, uint32_t width, const uint64_t *bounds, int size)
{
    uint64_t total = 0;
    for (int b = 0; b < BINS; b++)
        total += bins[b];
    for (int r = 0; r < size; r++) {
        uint64_t least, most;
        count_between(bins, width, bounds[r], bounds[r + 1], &least, &most);
        if (least > total / (uint64_t)size + 1 || most < total / (uint64_t)size)
            return false;
    }
    return true;
}

static void check_bounds(const uint32_t *bins, size_t count, int size)
{
    const uint32_t width = (uint32_t)((count + BINS - 1) / BINS);
    uint64_t bounds[TRI_MAX_LISTS + 1];
    tri_balance_bounds(bounds, size, count, bins, BINS, width);
    CHECK_MSG(ascending(bounds, size, count), "%d regions of %zu", size, count);
    CHECK_MSG(even(bins, width, bounds, size), "%d regions of %zu are not even", size, count);
}

static const size_t counts[] = {1, 2, 63, 4095, 4096, 4097, 100003, 1 << 28, UINT32_MAX};

/* Each bin may hold as many as `size` ranks have there at most. */
static void fill(uint32_t *bins, size_t count, int size, uint64_t sparsity)
{
    const size_t width = (count + BINS - 1) / BINS;
    for (size_t b = 0; b < BINS; b++) {
        const size_t here = b * width >= count ? 0 : count - b * width;
        const uint64_t most = (uint64_t)size * (here < width ? here : width);
        bins[b] = any(sparsity) == 0 ? (uint32_t)any(most + 1) : 0;
    }
}

static void histograms(void)
{
    static uint32_t bins[BINS];
    check_begin("bounds from a histogram");
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int size = 1; size <= TRI_MAX_LISTS; size += 1 + size / 8)
            for (uint64_t sparsity = 1; sparsity < 100000; sparsity *= 7) {
                fill(bins, counts[c], size, sparsity);
                check_bounds(bins, counts[c], size);
            }
    check_end();
}

static void one_bin(void)
{
    static uint32_t bins[BINS];
    uint64_t bounds[TRI_MAX_LISTS + 1];
    check_begin("everything in one bin, and nothing at all");
    bins[1000] = 64000;
    tri_balance_bounds(bounds, 64, (size_t)BINS * 128, bins, BINS, 128);
    CHECK(ascending(bounds, 64, (size_t)BINS * 128));
    for (uint64_t b = 1; b < 64; b++)
        CHECK(bounds[b] == 128000 + 2 * b);
    bins[1000] = 0;
    tri_balance_bounds(bounds, 7, UINT32_MAX, bins, BINS, 1 << 20);
    CHECK(ascending(bounds, 7, UINT32_MAX));
    for (int r = 0; r < 7; r++)
        CHECK(bounds[r + 1] - bounds[r] - UINT32_MAX / 7 <= 1);
    check_end();
}

/* The sum of 64 boundaries near 2^32 does not fit 32 bits. */
static void means(void)
{
    static uint32_t own[TRI_MAX_LISTS * TRI_MAX_LISTS];
    uint64_t bounds[TRI_MAX_LISTS + 1];
    struct tri_sparse_params params = {.size = 64, .count = UINT32_MAX};
    const struct tri_run run = {.params = &params};
    check_begin("bounds that are means");
    for (uint32_t r = 0; r < 64; r++)
        for (uint32_t b = 0; b < 64; b++)
            own[r * 64 + b] = UINT32_MAX - 1000 + b * 8 + r % 2;
    CHECK_OK(tri_balance_mean(&run, bounds, own));
    CHECK(ascending(bounds, 64, UINT32_MAX));
    for (uint32_t b = 1; b < 64; b++)
        CHECK(bounds[b] == UINT32_MAX - 1000 + b * 8); /* and a half */
    params = (struct tri_sparse_params){.size = 1, .count = 5};
    CHECK_OK(tri_balance_mean(&run, bounds, own));
    CHECK(ascending(bounds, 1, 5));
    check_end();
}

/* What a rank proposes that does not ascend, or lies beyond the tensor, changes no bound. */
static void wrong_proposals(void)
{
    static const uint32_t proposals[][4] = {
        {9, 5, 4, 7}, {9, 5, 6, 5}, {9, 5, 6, 101}, {9, 101, 101, 101}};
    const struct tri_sparse_params params = {.size = 4, .count = 100};
    const struct tri_run run = {.params = &params};
    uint64_t bounds[5] = {1, 2, 3, 4, 5};
    check_begin("proposals that do not ascend up to the count");
    for (size_t i = 0; i < 4; i++)
        for (int rank = 0; rank < 4; rank++) {
            uint32_t own[16] = {0, 0, 50, 100, 0, 0, 50, 100, 0, 0, 50, 100, 0, 0, 50, 100};
            memcpy(own + 4 * rank, proposals[i], sizeof proposals[i]);
            CHECK_STATUS(tri_balance_mean(&run, bounds, own), TRIB_ERR_MISMATCH);
            for (uint64_t b = 0; b < 5; b++)
                CHECK(bounds[b] == b + 1);
        }
    CHECK_DETAIL("rank 3 sent 101 as a bound of regions, expected 0 to 100");
    check_end();
}

int main(void)
{
    histograms();
    one_bin();
    means();
    wrong_proposals();
    return check_finish("balance_test");
}
