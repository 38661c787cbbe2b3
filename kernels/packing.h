/* Lists of tensors, and the buckets that they are packed into. A part of seam 2. */
#ifndef TRI_KERNELS_PACKING_H
#define TRI_KERNELS_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tributary.h"

/* One tensor and its place in a bucket. */
struct tri_slice {
    void *data;       /* aligned to its element, not more */
    size_t count;     /* may be 0 */
    size_t offset;    /* first element in the bucket; offset * element size is a multiple of 16 */
    trib_dtype dtype; /* plain: the bucket's; weighted: f16, bf16, f32 (bucket f32) or f64 (f64) */
};

/* A table pays from so many slices on: fewer travel in a small launch, which costs little, and there a
 * kernel finds them sooner than in memory. */
enum { TRI_TABLE_FROM = 311 };
/* Bytes of a table of `n` slices (keep): of each, and the units at which the last one ends and every
 * 16th begins, once more, for whoever looks for a slice; a multiple of 16. */
enum { TRI_TABLE_SLICE = 13, TRI_TABLE_UNIT = 4, TRI_TABLE_SAMPLE = 16 };
#define TRI_TABLE_BUCKET ((size_t)1 << 34)
static inline size_t tri_table_bytes(size_t n)
{
    const size_t units = 1 + (n + TRI_TABLE_SAMPLE - 1) / TRI_TABLE_SAMPLE;
    return (n * TRI_TABLE_SLICE + units * TRI_TABLE_UNIT + 15) / 16 * 16;
}

/* A bucket: `count` elements of `dtype` at `data` (aligned to 256). Slices lie in it in ascending
 * order without overlap; the gaps between them, less than 16 bytes each, are padding. */
struct tri_bucket {
    void *data;
    size_t count;
    trib_dtype dtype;
};

/* A rank's weight. */
struct tri_weight {
    const float *device; /* if not NULL, read on the stream; otherwise `value` */
    float value;
};

/* What pack_kept puts into a bucket: `slices` slices in a table, or those times a weight. */
struct tri_packing {
    const void *table;        /* NULL: there is nothing to pack */
    size_t slices;            /* at least one */
    bool weighted;            /* into a bucket of f32 or f64 */
    struct tri_weight weight; /* if it is */
};

#endif
