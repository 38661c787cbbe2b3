#include "csrc/reducer/buckets.h"

#include <stdint.h>

#include "csrc/base/types.h"

enum { SLICE_ALIGN = 16, BUCKET_ALIGN = 256 };

/* All buckets together: no object is larger, and padding does not overflow. */
static const size_t most_bytes = (size_t)PTRDIFF_MAX - 4096;

/* The bucket that takes the next gradient of a type. */
struct filling {
    size_t bucket, bytes;
    bool open, later; /* later: it is not the first of its type */
};

/* Give each gradient a bucket, numbered as they begin; last[b]: the last gradient in it. Returns
 * false if all together are too large. */
static bool fill(struct tri_gradient_layout *layout, const trib_tensor *tensors, size_t n,
                 const struct tri_gradient_limits *limits, size_t *last)
{
    struct filling filling[TRIB_F64 + 1] = {{.open = false}};
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        struct filling *at = &filling[tensors[i].dtype];
        const size_t element = trib_dtype_size(tensors[i].dtype);
        layout->gradients[i].bucket = TRI_NO_BUCKET;
        if (tensors[i].count == 0)
            continue;
        if (tensors[i].count > (most_bytes - total) / element)
            return false;
        const size_t bytes =
            (tensors[i].count * element + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN;
        total += bytes + BUCKET_ALIGN;
        if (total > most_bytes)
            return false;
        const uint64_t limit = at->later ? limits->bucket_bytes : limits->first_bytes;
        if (!at->open || at->bytes + bytes > limit) {
            at->later = at->open;
            at->open = true;
            at->bytes = 0;
            at->bucket = layout->nbuckets++;
            layout->buckets[at->bucket] = (struct tri_gradient_bucket){.dtype = tensors[i].dtype};
        }
        at->bytes += bytes;
        layout->gradients[i].bucket = at->bucket;
        last[at->bucket] = i;
    }
    return true;
}

/* Number the buckets in the order of their last gradients. */
static void number(struct tri_gradient_layout *layout, const trib_tensor *tensors, size_t n,
                   const size_t *last, size_t *numbers)
{
    size_t next = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t bucket = layout->gradients[i].bucket;
        if (bucket != TRI_NO_BUCKET && last[bucket] == i)
            numbers[bucket] = next++;
    }
    for (size_t i = 0; i < n; i++) {
        struct tri_gradient *gradient = &layout->gradients[i];
        if (gradient->bucket == TRI_NO_BUCKET)
            continue;
        gradient->bucket = numbers[gradient->bucket];
        layout->buckets[gradient->bucket].dtype = tensors[i].dtype;
        layout->buckets[gradient->bucket].n++;
    }
}

static size_t aligned(size_t count, trib_dtype dtype)
{
    const size_t step = SLICE_ALIGN / trib_dtype_size(dtype);
    return (count + step - 1) / step * step;
}

/* Make slices; `filled` counts those of each bucket. */
static void place(struct tri_gradient_layout *layout, const trib_tensor *tensors, size_t n,
                  size_t *filled)
{
    size_t first = 0;
    for (size_t b = 0; b < layout->nbuckets; b++) {
        layout->buckets[b].first = first;
        first += layout->buckets[b].n;
        filled[b] = 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct tri_gradient *gradient = &layout->gradients[i];
        if (gradient->bucket == TRI_NO_BUCKET)
            continue;
        struct tri_gradient_bucket *bucket = &layout->buckets[gradient->bucket];
        gradient->slice = bucket->first + filled[gradient->bucket]++;
        layout->slices[gradient->slice] =
            (struct tri_slice){.data = tensors[i].data,
                               .count = tensors[i].count,
                               .offset = aligned(bucket->count, bucket->dtype),
                               .dtype = bucket->dtype};
        bucket->count = layout->slices[gradient->slice].offset + tensors[i].count;
    }
}

bool tri_gradient_layout_make(struct tri_gradient_layout *out, const trib_tensor *tensors, size_t n,
                              const struct tri_gradient_limits *limits, size_t *work)
{
    out->nbuckets = 0;
    out->bytes = 0;
    if (!fill(out, tensors, n, limits, work))
        return false;
    number(out, tensors, n, work, work + n);
    place(out, tensors, n, work);
    for (size_t b = 0; b < out->nbuckets; b++) {
        struct tri_gradient_bucket *bucket = &out->buckets[b];
        const size_t bytes = bucket->count * trib_dtype_size(bucket->dtype);
        bucket->offset = out->bytes;
        out->bytes += (bytes + BUCKET_ALIGN - 1) / BUCKET_ALIGN * BUCKET_ALIGN;
    }
    return true;
}
