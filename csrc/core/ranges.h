/* Do ranges of memory overlap where they must not? */
#ifndef TRI_CORE_RANGES_H
#define TRI_CORE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tri_range {
    uintptr_t begin, end; /* not empty */
    size_t index;         /* of its argument */
    bool written;
};

/* Sort the ranges by where they begin: n log n, or n if they are in that order, and then it returns
 * false. */
bool tri_ranges_sort(struct tri_range *ranges, size_t n);

/* Does a written range share a byte with another range? Then pair[0..2) becomes the two. Sorts the
 * ranges. */
bool tri_ranges_collide(struct tri_range *ranges, size_t n, struct tri_range pair[2]);

#endif
