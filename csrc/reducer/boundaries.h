/* Where the gradients of one type, in their order, are cut into buckets. */
#ifndef TRI_REDUCER_BOUNDARIES_H
#define TRI_REDUCER_BOUNDARIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tri_gradient_limits {
    uint64_t first_bytes; /* of the first and of the last bucket of a type; not above */
    uint64_t bucket_bytes;
    bool weighted; /* buckets are of f32 or f64, and have one element more, the weight */
};

/* Bucket b ends before gradient ends[b]; `ends` has room for n. Returns the number of buckets. It
 * depends on the arguments alone, so all ranks find the same.
 *
 * What a step exposes runs after its last gradient is ready: the last bucket. So that one is small,
 * as the first, before which nothing is sent. Those between them are as few as bucket_bytes allows,
 * since each costs a call, and as even as so many can be. A bucket takes one gradient at least; there
 * is one more at most than without a small last one. */
size_t tri_bucket_boundaries(size_t *ends, const size_t *bytes, size_t n,
                             const struct tri_gradient_limits *limits);

#endif
