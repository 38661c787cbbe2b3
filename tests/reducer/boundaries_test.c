/* Where gradients are cut into buckets. */
#include "csrc/reducer/boundaries.h"

#include <stdlib.h>

#include "benches/resnet50.h"
#include "csrc/reducer/buckets.h"
#include "tests/check.h"

enum { MIB = 1 << 20, FEW = 10, ROUNDS = 20000 };

static size_t sum(const size_t *bytes, size_t begin, size_t end)
{
    size_t all = 0;
    for (size_t i = begin; i < end; i++)
        all += bytes[i];
    return all;
}

static struct tri_gradient_limits limits_of(uint64_t first_bytes, uint64_t bucket_bytes)
{
    return (struct tri_gradient_limits){.first_bytes = first_bytes, .bucket_bytes = bucket_bytes};
}

/* ------------------------------------------------------------------------------------- examples */

static void cut_into(const char *what, const struct tri_gradient_limits *limits,
                     const size_t *bytes, size_t n, const size_t *expected, size_t buckets)
{
    size_t ends[RESNET50_TENSORS];
    const size_t found = tri_bucket_boundaries(ends, bytes, n, limits);
    CHECK_MSG(found == buckets, "%s: %zu buckets, not %zu", what, found, buckets);
    for (size_t b = 0; b < found && b < buckets; b++)
        CHECK_MSG(ends[b] == expected[b], "%s: bucket %zu ends at %zu, not %zu", what, b, ends[b],
                  expected[b]);
}

#define CUT(what, first, bucket, bytes, ...)                                                       \
    do {                                                                                           \
        const struct tri_gradient_limits limits = limits_of(first, bucket);                        \
        const size_t expected[] = {__VA_ARGS__};                                                   \
        cut_into(what, &limits, bytes, sizeof(bytes) / sizeof *(bytes), expected,                  \
                 sizeof expected / sizeof *expected);                                              \
    } while (0)

static void examples(void)
{
    static const size_t one[] = {7}, large[] = {90, 90}, tiny[] = {1, 1, 1},
                        tail[] = {4, 30, 30, 30, 5, 2, 1, 1}, end[] = {4, 30, 1, 50},
                        uneven[] = {2, 40, 10, 10, 40, 10, 10, 2}, huge[] = {2, 9, 300, 9, 2};
    size_t ends[1];
    const struct tri_gradient_limits some = limits_of(4, 100);
    check_begin("buckets: examples");
    CHECK(tri_bucket_boundaries(ends, NULL, 0, &some) == 0);
    CUT("one gradient", 4, 100, one, 1);
    CUT("larger than every limit", 4, 50, large, 1, 2);
    CUT("less than a first bucket", 4, 100, tiny, 3);
    CUT("less than a first and a last one", 2, 100, tiny, 2, 3);
    CUT("the last gradients that fit", 4, 100, tail, 1, 5, 8);
    CUT("a last gradient that does not", 4, 100, end, 1, 3, 4);
    CUT("two of 60, not one of 100 and one of 20", 4, 100, uneven, 1, 4, 7, 8);
    CUT("one in between that is larger", 4, 100, huge, 1, 2, 3, 4, 5);
    CUT("a bucket each", 1, 1, uneven, 1, 2, 3, 4, 5, 6, 7, 8);
    check_end();
}

/* The gradients of ResNet-50 as a backward pass makes them, the first bucket of 1 MiB: the last one has
 * all of the first convolution and the first stage, and a little of the second. */
static void resnet(void)
{
    size_t counts[RESNET50_TENSORS], bytes[RESNET50_TENSORS];
    check_begin("buckets: ResNet-50");
    resnet50(counts);
    for (size_t i = 0; i < RESNET50_TENSORS; i++)
        bytes[i] = counts[RESNET50_TENSORS - 1 - i] * sizeof(float);
    CUT("25 MiB", MIB, 25 * MIB, bytes, 1, 10, 21, 31, 73, 125, 161);
    CUT("100 MiB", MIB, 100 * MIB, bytes, 1, 125, 161);
    check_end();
}

/* ----------------------------------------------------------------------- against all ways to cut */

/* The fewest buckets for gradients begin .. end - 1, and then the smallest that the largest bucket of
 * several gradients can be: of all 2^(end - begin - 1) ways. */
struct best {
    size_t buckets, largest;
};

static struct best best_of(const size_t *bytes, size_t begin, size_t end, uint64_t limit)
{
    struct best best = {SIZE_MAX, SIZE_MAX};
    if (begin == end)
        return (struct best){0, 0};
    for (size_t cuts = 0; cuts < (size_t)1 << (end - begin - 1); cuts++) {
        struct best way = {0, 0};
        bool fits = true;
        for (size_t from = begin, to = begin + 1; to <= end; to++) {
            if (to < end && (cuts >> (to - begin - 1) & 1) == 0)
                continue;
            const size_t all = sum(bytes, from, to);
            fits = fits && (all <= limit || to - from == 1);
            if (to - from > 1 && all > way.largest)
                way.largest = all;
            way.buckets++;
            from = to;
        }
        if (fits && (way.buckets < best.buckets ||
                     (way.buckets == best.buckets && way.largest < best.largest)))
            best = way;
    }
    return best;
}

static struct best found_of(const size_t *bytes, const size_t *ends, size_t first, size_t last)
{
    struct best found = {0, 0};
    for (size_t b = first; b < last; b++) {
        const size_t begin = b == 0 ? 0 : ends[b - 1];
        const size_t all = sum(bytes, begin, ends[b]);
        found.buckets++;
        if (ends[b] - begin > 1 && all > found.largest)
            found.largest = all;
    }
    return found;
}

static bool good_ends(const size_t *bytes, size_t n, const struct tri_gradient_limits *limits,
                      const size_t *ends, size_t buckets)
{
    const uint64_t small = limits->first_bytes;
    const size_t first = ends[0], last = buckets > 1 ? ends[buckets - 2] : 0;
    const bool first_good = (first == 1 || sum(bytes, 0, first) <= small) &&
                            (first == n || sum(bytes, 0, first + 1) > small);
    return first_good && ends[buckets - 1] == n &&
           (buckets == 1 || ((n - last == 1 || sum(bytes, last, n) <= small) &&
                             (last == first || sum(bytes, last - 1, n) > small)));
}

/* Up to FEW random gradients: the first bucket and the last take as many as fit, and between them no
 * other way has fewer buckets, or as few that are more even. */
static void all_ways(void)
{
    size_t bytes[FEW], ends[FEW];
    check_begin("buckets: no better way");
    srand(1);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t n = 1 + (size_t)rand() % FEW;
        const struct tri_gradient_limits limits =
            limits_of(1 + (uint64_t)rand() % 40, 40 + (uint64_t)rand() % 60);
        for (size_t i = 0; i < n; i++)
            bytes[i] = 1 + (size_t)rand() % (rand() % 4 == 0 ? 120 : 20);
        const size_t buckets = tri_bucket_boundaries(ends, bytes, n, &limits);
        const size_t last = buckets == 1 ? 1 : buckets - 1;
        const struct best best =
            best_of(bytes, ends[0], buckets == 1 ? n : ends[buckets - 2], limits.bucket_bytes);
        const struct best found = found_of(bytes, ends, 1, last);
        const struct best without = best_of(bytes, ends[0], n, limits.bucket_bytes);
        if (!CHECK(good_ends(bytes, n, &limits, ends, buckets)) ||
            !CHECK_MSG(found.buckets == best.buckets, "%zu buckets, not %zu", found.buckets,
                       best.buckets) ||
            !CHECK_MSG(found.largest == best.largest, "a bucket of %zu, not %zu", found.largest,
                       best.largest) ||
            !CHECK(buckets <= 2 + without.buckets))
            break;
    }
    check_end();
}

/* --------------------------------------------------------------------------------------- layouts */

/* Each type has a small last bucket of its own, in whatever order the gradients come. */
static void types(void)
{
    enum { N = 9 };
    static const struct {
        trib_dtype dtype;
        size_t count, bucket, offset;
    } gradients[N] = {{TRIB_F32, 4, 0, 0},   {TRIB_BF16, 80, 1, 0}, {TRIB_F32, 100, 2, 0},
                      {TRIB_F32, 0, 0, 0},   {TRIB_BF16, 8, 3, 0},  {TRIB_F32, 24, 2, 100},
                      {TRIB_BF16, 16, 3, 8}, {TRIB_F32, 5, 4, 0},   {TRIB_F32, 4, 4, 8}};
    static const uint64_t backwards[N] = {8, 7, 6, 5, 4, 3, 2, 1, 0};
    const struct tri_gradient_limits limits = limits_of(48, 512);
    struct tri_gradient_layout layout;
    trib_tensor tensors[N], reversed[N];
    size_t work[TRI_GRADIENT_WORK * N];
    check_begin("buckets: two types");
    for (size_t i = 0; i < N; i++) {
        tensors[i] = (trib_tensor){NULL, gradients[i].count, gradients[i].dtype, 0};
        reversed[N - 1 - i] = tensors[i];
    }
    for (int turned = 0; turned < 2 && CHECK(tri_gradient_layout_alloc(&layout, N)); turned++) {
        CHECK(tri_gradient_layout_make(&layout, turned ? reversed : tensors, N,
                                       turned ? backwards : NULL, &limits, work));
        CHECK_MSG(layout.nbuckets == 5, "%zu buckets", layout.nbuckets);
        for (size_t i = 0; i < N; i++) {
            const struct tri_gradient *found = &layout.gradients[turned ? N - 1 - i : i];
            const bool none = found->bucket == TRI_NO_BUCKET;
            CHECK(none == (gradients[i].count == 0));
            CHECK_MSG(none || (found->bucket == gradients[i].bucket &&
                               layout.slices[found->slice].offset == gradients[i].offset),
                      "gradient %zu is in bucket %zu", i, found->bucket);
        }
        tri_gradient_layout_free(&layout);
    }
    check_end();
}

int main(void)
{
    examples();
    resnet();
    all_ways();
    types();
    return check_finish("boundaries_test");
}
