/* Elements in host memory, written and read as numbers. Exact for those that the checks use. */
#ifndef TRI_BENCHES_ELEMENT_H
#define TRI_BENCHES_ELEMENT_H

#include <stddef.h>

#include "tributary.h"

/* Element `i` of `out`, as the type's bytes. Integers wrap. */
void bench_encode(void *out, size_t i, double value, trib_dtype dtype);
double bench_decode(const void *in, size_t i, trib_dtype dtype);

#endif
