/* Element types and reductions: sizes and names. */
#ifndef TRI_BASE_TYPES_H
#define TRI_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>

#include "tributary.h"

bool tri_dtype_valid(trib_dtype dtype);
bool tri_op_valid(trib_op op);
bool tri_cta_policy_valid(trib_cta_policy policy);
bool tri_dtype_is_float(trib_dtype dtype);

/* *out: bytes of `copies` times `count` elements; false if that exceeds PTRDIFF_MAX. `dtype` is
 * valid. */
bool tri_bytes(size_t *out, size_t count, size_t copies, trib_dtype dtype);

#endif
