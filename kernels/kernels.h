/* Seam 2: arithmetic on bytes.
 *
 * Kernels know pointers, counts and a stream, never a communicator. cpu/ and cuda/ hold twins by
 * stem: cpu/pack.c states the meaning of pack in plain C, cuda/pack.cu is the fast one, and
 * tests/conformance/kernels/kernels.c compares any table with the plain meaning.
 *
 * All members: arguments are valid (the caller's duty); small descriptions (arrays of slices) are
 * read during the call; pointers to data are memory of the stream's device. The cuda table queues
 * on `stream`, whose device is current; the cpu table ignores `stream` and works before it returns.
 * Deterministic: the same input gives the same bits, whatever the grid or thread count. */
#ifndef TRI_KERNELS_H
#define TRI_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/packing.h"
#include "kernels/pull.h"
#include "kernels/push.h"
#include "kernels/sparse.h"
#include "tributary.h"

/* The factor of a rank's data. */
struct tri_factor {
    const float *device; /* if not NULL, read on the stream; otherwise `value` */
    double value;
};

/* A reduction of n sources, which have `dtype`. */
struct tri_reduction {
    const void *const *src;
    size_t n; /* at least 1 */
    trib_dtype dtype;
    trib_op op;
    const void *factors; /* n of dtype, one per source; NULL: none. Only for sums of floats */
};

/* Commit counts a rank's lists here, in pinned memory (see alloc_pinned). */
struct tri_list_counts {
    uint32_t committed;
    uint32_t refused; /* for their weights, or for a call's decision */
    uint32_t newest;  /* enum tri_commit_outcome of the newest */
};

enum tri_commit_outcome {
    TRI_COMMIT_NONE, /* there was no commit */
    TRI_COMMIT_DONE,
    TRI_COMMIT_ABORTED,
    TRI_COMMIT_WEIGHTS, /* a weight is not valid, or they sum to 0 */
    TRI_COMMIT_CALL     /* a call was not applied */
};

/* A decision (see struct tri_decide) that a commit may take back. */
struct tri_revocable {
    uint32_t *decision, *current;
    uint32_t *velocity; /* may be NULL */
};

struct tri_commit {
    const uint32_t *abort_flag;
    struct tri_list_counts *counts;
    const void *total;      /* may be NULL */
    trib_dtype total_dtype; /* f32 or f64 */
    float *total_out;       /* may be NULL */
    const struct tri_revocable *calls;
    size_t ncalls;
    uint32_t *decision;
};

struct tri_kernels {
    const char *name; /* "cpu", "cuda" */

    /* pack: bucket[offset + i] = data[i] of every slice; padding becomes 0.
     *
     * With `weight` (not NULL): bucket[offset + i] = w * (bucket type)data[i], or exactly 0 if w is
     * 0 (whatever data[i] is, NaN included), and the bucket's last element, which belongs to no
     * slice, becomes w. A w that is negative or not finite gives NaN in the last element, and zeros
     * elsewhere. */
    trib_status (*pack)(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                        const struct tri_weight *weight, trib_stream stream);

    /* commit: *decision = 1 if unpack may write, else 0. It may if *abort_flag is 0, `total` is NULL,
     * or *total finite and above 0, and the decision of every call is 1; then counts->committed += 1.
     * If *abort_flag is 0, and *total is negative or not finite, or a decision is 0,
     * counts->refused += 1. If unpack may not write, every call whose decision is 1 is taken back:
     * its decision becomes 0, and *current and *velocity what they were before. `total_out` =
     * (float)*total if *abort_flag is 0 and *total finite and not negative, otherwise NaN.
     * abort_flag and counts are pinned memory, the others are not. */
    trib_status (*commit)(const struct tri_commit *commit, trib_stream stream);

    /* forget: the decision of every call becomes 0: nothing is left to take back. */
    trib_status (*forget)(const struct tri_revocable *calls, size_t n, trib_stream stream);

    /* unpack: if *decision is not 0, data[i] = bucket[offset + i] of every slice, else nothing.
     * With `weighted` != 0: data[i] = (slice type)(bucket[offset + i] / bucket[last]), rounded to
     * nearest even. The bucket, and the table of unpack_kept, may be read before what was queued last
     * on the stream has ended: that is the commit that makes the decision, or another unpack. */
    trib_status (*unpack)(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                          int weighted, const uint32_t *decision, trib_stream stream);

    /* keep (optional, with the next two: NULL if slices cost nothing to pass): the slices, at least
     * one, none of them empty and no gap between them but padding, become a table at `table`, tri_table_bytes(n) bytes
     * of device memory aligned to 16, for a list that is packed and unpacked again and again. It
     * tells nothing of the bucket but its type; that has at most TRI_TABLE_BUCKET bytes. */
    trib_status (*keep)(void *table, const struct tri_slice *slices, size_t n,
                        const struct tri_bucket *bucket, trib_stream stream);

    /* pack_kept, unpack_kept: pack and unpack of the `n` slices in a table, for a bucket of the
     * table's type. */
    trib_status (*pack_kept)(const void *table, size_t n, const struct tri_bucket *bucket,
                             const struct tri_weight *weight, trib_stream stream);
    trib_status (*unpack_kept)(const void *table, size_t n, const struct tri_bucket *bucket,
                               int weighted, const uint32_t *decision, trib_stream stream);

    /* reduce (optional: NULL if the backend library reduces): for every i < count and d < ndst,
     * dst[d][i] = op over src[0][i], src[1][i], ... src[n-1][i], in that order. f16 and bf16 are
     * accumulated in f32 and rounded once. Integers wrap; avg divides the sum by n, towards zero. A
     * dst may be the same pointer as a src, otherwise nothing overlaps.
     *
     * With factors, every src[j][i] is multiplied by factors[j] first, and the product rounded (of
     * f16 and bf16: to f32). */
    trib_status (*reduce)(void *const *dst, size_t ndst, const struct tri_reduction *reduction,
                          size_t count, trib_stream stream);

    /* scale: dst[i] = f * src[i] for every i < count, or f itself where src is NULL. f is the
     * factor, rounded to f32 unless dtype is f64, and then to dtype, a float type. Products of f16
     * and bf16 are made in f32 and rounded once. dst may be src; otherwise they do not overlap. */
    trib_status (*scale)(void *dst, const void *src, size_t count, trib_dtype dtype,
                         const struct tri_factor *factor, trib_stream stream);

    /* push: a collective, on every rank of `here`. A result of a reduction is what reduce gives for the
     * parts in rank order, the same bits on whatever rank; a copy has the bits of its source. Ends when
     * the parts of all ranks have come; a call of no elements at once. See push.h. */
    trib_status (*push)(const struct tri_push *call, trib_stream stream);

    /* pull (optional): the same of large buffers, which peers read where they lie. Ends when no peer
     * needs this rank's buffers any more. See pull.h. */
    trib_status (*pull)(const struct tri_pull *call, trib_stream stream);

    /* preload (optional): load every kernel of both tables on the current device, so that no launch
     * waits for that. May wait for the device. */
    void (*preload)(void);

    const struct tri_sparse_kernels *sparse; /* see sparse.h */
};

#endif
