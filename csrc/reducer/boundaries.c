#include "csrc/reducer/boundaries.h"

/* How many of `n` gradients a bucket of at most `limit` bytes takes: from the first one on, */
static size_t take(const size_t *bytes, size_t n, uint64_t limit)
{
    size_t taken = 0;
    for (uint64_t sum = 0; taken < n && (taken == 0 || sum + bytes[taken] <= limit); taken++)
        sum += bytes[taken];
    return taken;
}

/* or from the last one back. */
static size_t take_back(const size_t *bytes, size_t n, uint64_t limit)
{
    size_t taken = 0;
    for (uint64_t sum = 0; taken < n && (taken == 0 || sum + bytes[n - 1 - taken] <= limit);
         taken++)
        sum += bytes[n - 1 - taken];
    return taken;
}

/* Fill one bucket after the other with gradients begin .. end - 1. Returns how many; `ends` may be
 * NULL. No other way needs fewer. */
static size_t fill(size_t *ends, const size_t *bytes, size_t begin, size_t end, uint64_t limit)
{
    size_t buckets = 0;
    for (; begin < end; buckets++) {
        begin += take(bytes + begin, end - begin, limit);
        if (ends != NULL)
            ends[buckets] = begin;
    }
    return buckets;
}

/* The smallest limit that makes no more buckets than `limit`. */
static uint64_t even(const size_t *bytes, size_t begin, size_t end, uint64_t limit)
{
    const size_t buckets = fill(NULL, bytes, begin, end, limit);
    uint64_t low = 0, high = 0;
    for (size_t i = begin; i < end; i++)
        high += bytes[i];
    if (high > limit)
        high = limit;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (fill(NULL, bytes, begin, end, middle) > buckets)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

size_t tri_bucket_boundaries(size_t *ends, const size_t *bytes, size_t n,
                             const struct tri_gradient_limits *limits)
{
    const size_t first = take(bytes, n, limits->first_bytes);
    const size_t last = n - take_back(bytes + first, n - first, limits->first_bytes);
    size_t buckets = 0;
    if (n == 0)
        return 0;
    ends[buckets++] = first;
    buckets += fill(ends + 1, bytes, first, last, even(bytes, first, last, limits->bucket_bytes));
    if (last < n)
        ends[buckets++] = n;
    return buckets;
}
