/* The k largest of a sequence that is shown block after block, in ascending index order: the middle
 * of select and chunk_select.
 *
 * An element above a floor is a candidate. When the room for candidates is full, they are cut to
 * the k largest and the floor rises to the least of these, which is right for any sequence: an
 * element that is not among the k largest so far never will be, and among equal keys the later one
 * loses. So a floor that starts too low costs only time; one that starts too high leaves fewer than
 * k. */
#ifndef TRI_CPU_TOP_H
#define TRI_CPU_TOP_H

#include "kernels/cpu/sparse_cpu.h"

struct tri_top {
    trib_dtype dtype; /* f32 or f64 */
    uint32_t k;
    uint64_t floor; /* candidates have a key above it */
    size_t capacity;
    uint32_t count;
    uint32_t *index; /* of the candidates, ascending */
    void *value;
    uint32_t nonfinite; /* infinities and NaNs seen */
    bool full;          /* the room was too small once */
};

enum { TRI_TOP_CHUNK = 65536 }; /* elements of the largest chunk */

/* Room for the k largest of `count` elements. The candidates take max(1.5 k, k + 65,536) places,
 * or fewer if there are fewer elements; behind them lie half as many keys as the largest chunk
 * has elements. */
size_t tri_top_bytes(size_t count, uint32_t k, trib_dtype dtype);

/* The room behind the candidates. */
void *tri_top_behind(const struct tri_top *top);

/* Begin; `room` as above, aligned to 8. */
void tri_top_begin(struct tri_top *top, void *room, size_t count, uint32_t k, trib_dtype dtype,
                   uint64_t floor);
/* Element i of `values` has index first + i. */
void tri_top_show(struct tri_top *top, const void *values, size_t n, uint32_t first);
/* Cut to the k largest. */
void tri_top_cut(struct tri_top *top);

#endif
