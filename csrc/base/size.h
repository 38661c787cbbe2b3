/* Sizes: the lesser and the larger of two, and the next multiple. */
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

/* The sum does not overflow. */
static inline size_t tri_round_up(size_t size, size_t to)
{
    return (size + to - 1) / to * to;
}

#endif
