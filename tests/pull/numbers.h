/* What ranks put into the sums of these tests, and how much of it. */
#ifndef TRI_TESTS_PULL_NUMBERS_H
#define TRI_TESTS_PULL_NUMBERS_H

#include <stddef.h>

/* Elements of f32: with the usual memory more than push takes of an allreduce of 2 ranks or more; no multiple of a
 * unit. */
enum { NUMBERS_PULLED = 1100003 };

/* Element `e` of a rank: small, so that sums are exact in every type. */
static inline float numbers_of(int rank, size_t e)
{
    return (float)((e * 7 + (size_t)rank * 3) % 11);
}

/* That of all ranks. */
static inline float numbers_sum(int size, size_t e)
{
    float sum = 0;
    for (int r = 0; r < size; r++)
        sum += numbers_of(r, e);
    return sum;
}

#endif
