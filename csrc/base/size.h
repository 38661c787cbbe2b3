/* Of two sizes. */
#ifndef TRI_BASE_SIZE_H
#define TRI_BASE_SIZE_H

#include <stddef.h>

static inline size_t tri_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t tri_largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
