/* Do ranges of memory meet where they must not? */
#ifndef TRI_CORE_RANGES_H
#define TRI_CORE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tri_range {
    uintptr_t begin, end; /* not empty */
    size_t index;         /* of the argument that it comes from */
    bool written;
};

/* Is there a range that is written and shares a byte with another? Then they are left in
 * pair[0..2). Reorders the ranges. n log n, or n if they come in ascending order. */
bool tri_ranges_collide(struct tri_range *ranges, size_t n, struct tri_range pair[2]);

#endif
