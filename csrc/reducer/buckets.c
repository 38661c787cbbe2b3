#include "csrc/reducer/buckets.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"

enum { SLICE_ALIGN = 16, BUCKET_ALIGN = 256 };

/* All buckets together: no object is larger, and padding does not overflow. */
static const size_t most_bytes = (size_t)PTRDIFF_MAX - 4096;

/* What is laid out, and in which order. */
struct gradients {
    const trib_tensor *tensors;
    size_t n;
    const uint64_t *order; /* may be NULL */
    bool weighted;
};

/* Weighted sums of 16-bit types use f32. */
static trib_dtype bucket_type(const struct gradients *of, size_t i)
{
    const trib_dtype dtype = of->tensors[i].dtype;
    return of->weighted && dtype != TRIB_F64 ? TRIB_F32 : dtype;
}

static size_t at_turn(const struct gradients *of, size_t turn)
{
    return of->order == NULL ? turn : (size_t)of->order[turn];
}

/* The bucket that takes the next gradient of a type. */
struct filling {
    size_t bucket, bytes;
    bool open, later; /* later: it is not the first of its type */
};

/* What a gradient takes in a bucket. */
static size_t padded(const trib_tensor *tensor, trib_dtype dtype)
{
    return (tensor->count * trib_dtype_size(dtype) + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN;
}

/* Give each gradient a bucket, numbered as they begin; last[b]: the last gradient in it. Returns
 * false if all together are too large. */
static bool fill(struct tri_gradient_layout *layout, const struct gradients *of,
                 const struct tri_gradient_limits *limits, struct filling *filling, size_t *last)
{
    for (size_t turn = 0; turn < of->n; turn++) {
        const size_t i = at_turn(of, turn);
        const trib_tensor *tensor = &of->tensors[i];
        const trib_dtype dtype = bucket_type(of, i);
        struct filling *at = &filling[dtype];
        const size_t element = trib_dtype_size(dtype);
        layout->gradients[i].bucket = TRI_NO_BUCKET;
        if (tensor->count == 0)
            continue;
        if (tensor->count > (most_bytes - layout->most) / element)
            return false;
        const size_t bytes = padded(tensor, dtype);
        layout->most += bytes + SLICE_ALIGN + BUCKET_ALIGN;
        if (layout->most > most_bytes)
            return false;
        const uint64_t limit = at->later ? limits->bucket_bytes : limits->first_bytes;
        if (!at->open || at->bytes + bytes > limit) {
            at->later = at->open;
            at->open = true;
            at->bytes = 0;
            at->bucket = layout->nbuckets++;
            layout->buckets[at->bucket] = (struct tri_gradient_bucket){.dtype = dtype};
        }
        at->bytes += bytes;
        layout->gradients[i].bucket = at->bucket;
        last[at->bucket] = i;
    }
    return true;
}

/* Nothing hides the last bucket of a type: if it is large, its last gradients get one of their own, as
 * many as fit into the size of a first bucket, and one in any case. */
static void split_last(struct tri_gradient_layout *layout, const struct gradients *of,
                       const struct tri_gradient_limits *limits, const struct filling *whole,
                       size_t *last)
{
    const size_t from = whole->bucket, to = layout->nbuckets;
    size_t bytes = 0;
    if (!whole->open || whole->bytes <= limits->first_bytes)
        return;
    for (size_t turn = of->n; turn-- > 0;) {
        const size_t i = at_turn(of, turn);
        if (layout->gradients[i].bucket != from)
            continue;
        const size_t more = padded(&of->tensors[i], bucket_type(of, i));
        if (bytes + more == whole->bytes || (bytes != 0 && bytes + more > limits->first_bytes)) {
            last[from] = i; /* the first of them stays in any case */
            return;
        }
        if (bytes == 0) {
            layout->buckets[layout->nbuckets++] = (struct tri_gradient_bucket){.n = 0};
            last[to] = i;
        }
        layout->gradients[i].bucket = to;
        bytes += more;
    }
}

/* Number the buckets in the order of their last gradients. */
static void number(struct tri_gradient_layout *layout, const struct gradients *of,
                   const size_t *last, size_t *numbers)
{
    size_t next = 0;
    for (size_t turn = 0; turn < of->n; turn++) {
        const size_t i = at_turn(of, turn);
        const size_t bucket = layout->gradients[i].bucket;
        if (bucket != TRI_NO_BUCKET && last[bucket] == i)
            numbers[bucket] = next++;
    }
    for (size_t i = 0; i < of->n; i++) {
        struct tri_gradient *gradient = &layout->gradients[i];
        if (gradient->bucket == TRI_NO_BUCKET)
            continue;
        gradient->bucket = numbers[gradient->bucket];
        layout->buckets[gradient->bucket].dtype = bucket_type(of, i);
        layout->buckets[gradient->bucket].n++;
    }
}

static size_t aligned(size_t count, trib_dtype dtype)
{
    const size_t step = SLICE_ALIGN / trib_dtype_size(dtype);
    return (count + step - 1) / step * step;
}

/* Make slices; `filled` counts those of each bucket. */
static void place(struct tri_gradient_layout *layout, const struct gradients *of, size_t *filled)
{
    size_t first = 0;
    for (size_t b = 0; b < layout->nbuckets; b++) {
        layout->buckets[b].first = first;
        first += layout->buckets[b].n;
        filled[b] = 0;
    }
    for (size_t turn = 0; turn < of->n; turn++) {
        const size_t i = at_turn(of, turn);
        struct tri_gradient *gradient = &layout->gradients[i];
        if (gradient->bucket == TRI_NO_BUCKET)
            continue;
        struct tri_gradient_bucket *bucket = &layout->buckets[gradient->bucket];
        gradient->slice = bucket->first + filled[gradient->bucket]++;
        layout->owners[gradient->slice] = i;
        layout->slices[gradient->slice] =
            (struct tri_slice){.data = of->tensors[i].data,
                               .count = of->tensors[i].count,
                               .offset = aligned(bucket->count, bucket->dtype),
                               .dtype = of->tensors[i].dtype};
        bucket->count = layout->slices[gradient->slice].offset + of->tensors[i].count;
    }
}

bool tri_gradient_layout_make(struct tri_gradient_layout *out, const trib_tensor *tensors, size_t n,
                              const uint64_t *order, const struct tri_gradient_limits *limits,
                              size_t *work)
{
    const struct gradients of = {tensors, n, order, limits->weighted};
    out->nbuckets = 0;
    out->bytes = out->most = 0;
    struct filling filling[TRIB_F64 + 1] = {{.open = false}};
    if (!fill(out, &of, limits, filling, work))
        return false;
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_F64; dtype++)
        split_last(out, &of, limits, &filling[dtype], work);
    number(out, &of, work, work + n);
    place(out, &of, work);
    for (size_t b = 0; b < out->nbuckets; b++) {
        struct tri_gradient_bucket *bucket = &out->buckets[b];
        bucket->count += limits->weighted;
        const size_t bytes = bucket->count * trib_dtype_size(bucket->dtype);
        bucket->offset = out->bytes;
        out->bytes += (bytes + BUCKET_ALIGN - 1) / BUCKET_ALIGN * BUCKET_ALIGN;
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- copies */

bool tri_gradient_layout_alloc(struct tri_gradient_layout *out, size_t n)
{
    *out = (struct tri_gradient_layout){.gradients = calloc(n + 1, sizeof *out->gradients),
                                        .buckets = calloc(n + 1, sizeof *out->buckets),
                                        .slices = calloc(n + 1, sizeof *out->slices),
                                        .owners = calloc(n + 1, sizeof *out->owners)};
    return out->gradients != NULL && out->buckets != NULL && out->slices != NULL &&
           out->owners != NULL;
}

void tri_gradient_layout_free(struct tri_gradient_layout *layout)
{
    free(layout->gradients);
    free(layout->buckets);
    free(layout->slices);
    free(layout->owners);
}

void tri_gradient_layout_copy(struct tri_gradient_layout *to,
                              const struct tri_gradient_layout *from, size_t n)
{
    memcpy(to->gradients, from->gradients, n * sizeof *to->gradients);
    memcpy(to->buckets, from->buckets, n * sizeof *to->buckets);
    memcpy(to->slices, from->slices, n * sizeof *to->slices);
    memcpy(to->owners, from->owners, n * sizeof *to->owners);
    to->nbuckets = from->nbuckets;
    to->bytes = from->bytes;
    to->most = from->most;
}
