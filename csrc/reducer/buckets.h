/* Which gradient lies in which bucket, and where. */
#ifndef TRI_REDUCER_BUCKETS_H
#define TRI_REDUCER_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/reducer/boundaries.h"

/* The slices of a bucket are `n` of the reducer's, from `first` on. */
struct tri_gradient_bucket {
    trib_dtype dtype;
    size_t count;  /* elements, padding and weight included */
    size_t offset; /* bytes from the first bucket; a multiple of 256 */
    char *data;    /* in place: where it is; else NULL */
    size_t first, n;
};

/* One registered gradient. */
struct tri_gradient {
    size_t bucket; /* TRI_NO_BUCKET: it has no elements */
    size_t slice;
};
#define TRI_NO_BUCKET SIZE_MAX

/* The layout of `n` gradients: the arrays have room for n each. */
struct tri_gradient_layout {
    struct tri_gradient *gradients;
    struct tri_gradient_bucket *buckets;
    struct tri_slice *slices;
    size_t *owners; /* the gradient of each slice */
    size_t nbuckets;
    size_t bytes; /* of all buckets */
    size_t most;  /* the same in any order, at most */
};

/* Arrays for `n` gradients; false without memory. */
bool tri_gradient_layout_alloc(struct tri_gradient_layout *out, size_t n);
void tri_gradient_layout_free(struct tri_gradient_layout *layout);
/* `to`, whose arrays have room, becomes a copy of `from`, of n gradients. */
void tri_gradient_layout_copy(struct tri_gradient_layout *to,
                              const struct tri_gradient_layout *from, size_t n);

/* The gradient whose turn it is; `order` NULL: as they are passed. */
static inline size_t tri_gradient_at(const uint64_t *order, size_t turn)
{
    return order == NULL ? turn : (size_t)order[turn];
}

enum { TRI_GRADIENT_WORK = 5 };

/* Fill the buckets with the gradients in `order` (a permutation of 0 .. n - 1; NULL: as they are
 * passed). Buckets are in the order of their last gradients, in which they fill up. The slices' `data`
 * is that of the tensors. `work` has room for TRI_GRADIENT_WORK * n. False if they are larger than any
 * memory. */
bool tri_gradient_layout_make(struct tri_gradient_layout *out, const trib_tensor *tensors, size_t n,
                              const uint64_t *order, const struct tri_gradient_limits *limits,
                              size_t *work);

/* Buckets that the caller has: so many gradients in each, in the order, which lie there already. What has no
 * elements has no bucket. */
void tri_gradient_layout_in_place(struct tri_gradient_layout *out, const trib_tensor *tensors,
                                  const uint64_t *order, const uint64_t *buckets, size_t nbuckets);

#endif
