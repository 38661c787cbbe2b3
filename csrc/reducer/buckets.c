#include "csrc/reducer/buckets.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"

enum { SLICE_ALIGN = 16, BUCKET_ALIGN = 256 };

/* All buckets together: no object is larger, and padding does not overflow. */
static const size_t most_bytes = (size_t)PTRDIFF_MAX - 4096;

static const trib_dtype types[] = {TRIB_F16, TRIB_BF16, TRIB_F32, TRIB_F64};

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

/* In its bucket, up to the next one. */
static size_t slice_bytes(const struct gradients *of, size_t i)
{
    const size_t bytes = of->tensors[i].count * trib_dtype_size(bucket_type(of, i));
    return (bytes + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN;
}

/* Returns false if all together are too large. */
static bool measure(struct tri_gradient_layout *layout, const struct gradients *of)
{
    for (size_t i = 0; i < of->n; i++) {
        layout->gradients[i].bucket = TRI_NO_BUCKET;
        if (of->tensors[i].count == 0)
            continue;
        if (of->tensors[i].count >
            (most_bytes - layout->most) / trib_dtype_size(bucket_type(of, i)))
            return false;
        layout->most += slice_bytes(of, i) + SLICE_ALIGN + BUCKET_ALIGN;
        if (layout->most > most_bytes)
            return false;
    }
    return true;
}

/* What a layout is made with: `n` of each. */
struct work {
    size_t *last;         /* the last gradient in each bucket */
    size_t *numbers;      /* of the buckets */
    size_t *members;      /* gradients of one type, */
    size_t *bytes, *ends; /* how large they are, and where their buckets end */
};

/* Give each gradient of a type a bucket, numbered from layout->nbuckets on. */
static void fill(struct tri_gradient_layout *layout, const struct gradients *of, trib_dtype dtype,
                 const struct tri_gradient_limits *limits, const struct work *work)
{
    size_t n = 0, filled = 0;
    for (size_t turn = 0; turn < of->n; turn++) {
        const size_t i = tri_gradient_at(of->order, turn);
        if (of->tensors[i].count == 0 || bucket_type(of, i) != dtype)
            continue;
        work->members[n] = i;
        work->bytes[n++] = slice_bytes(of, i);
    }
    const size_t buckets = tri_bucket_boundaries(work->ends, work->bytes, n, limits);
    for (size_t b = 0; b < buckets; b++) {
        layout->buckets[layout->nbuckets] = (struct tri_gradient_bucket){.dtype = dtype};
        while (filled < work->ends[b])
            layout->gradients[work->members[filled++]].bucket = layout->nbuckets;
        work->last[layout->nbuckets++] = work->members[filled - 1];
    }
}

/* Number the buckets in the order of their last gradients. */
static void number(struct tri_gradient_layout *layout, const struct gradients *of,
                   const size_t *last, size_t *numbers)
{
    size_t next = 0;
    for (size_t turn = 0; turn < of->n; turn++) {
        const size_t i = tri_gradient_at(of->order, turn);
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
        const size_t i = tri_gradient_at(of->order, turn);
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
    const struct work in = {work, work + n, work + 2 * n, work + 3 * n, work + 4 * n};
    out->nbuckets = 0;
    out->bytes = out->most = 0;
    if (!measure(out, &of))
        return false;
    for (size_t type = 0; type < sizeof types / sizeof *types; type++)
        fill(out, &of, types[type], limits, &in);
    number(out, &of, in.last, in.numbers);
    place(out, &of, in.numbers);
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
