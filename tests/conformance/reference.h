/* What collectives should give, computed naively from a formula, without the library.
 *
 * Every rank can compute every rank's input, so no rank needs another to know the right answer. The
 * inputs are chosen so that the answer is exact in every order of reduction, on every backend:
 * small integers for sums of floats, signed powers of two for products, multiples of the number of
 * ranks for averages; any bits at all for integers, which wrap, and for data that is only moved. */
#ifndef TRI_TESTS_REFERENCE_H
#define TRI_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tributary.h"

/* In place of a trib_op: the data is moved, not reduced. */
enum { REFERENCE_MOVED = 0 };

/* The inputs of all `size` ranks to one call. */
struct reference {
    trib_dtype dtype;
    trib_op op;
    int size;
    uint64_t seed;
};

/* Any bits, the same ones on every rank that asks: what inputs are made of. */
uint64_t reference_bits(uint64_t seed, uint64_t rank, uint64_t index);

/* Elements `first` .. `first + count` of the input of `rank`. */
void reference_input(void *dst, const struct reference *inputs, int rank, size_t first,
                     size_t count);

/* Elements `first` .. `first + count` of the reduction of all ranks' inputs. */
void reference_reduced(void *dst, const struct reference *inputs, size_t first, size_t count);

/* One element, exactly: `value` must be a number that `dtype` has. */
void reference_store(void *dst, trib_dtype dtype, size_t index, double value);
double reference_load(const void *src, trib_dtype dtype, size_t index);

/* Are `count` averages as near to the exact ones as can be expected of NCCL, which multiplies
 * each input by a rounded 1 / size? */
bool reference_close(const void *found, const void *exact, trib_dtype dtype, size_t count,
                     int size);

#endif
