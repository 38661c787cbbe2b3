/* Element types, reductions, variants, CTA policies: sizes and names. */
#ifndef TRI_BASE_TYPES_H
#define TRI_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>

#include "tributary.h"

static inline bool tri_dtype_valid(trib_dtype dtype)
{
    return dtype >= TRIB_F16 && dtype <= TRIB_U64;
}

static inline bool tri_dtype_is_float(trib_dtype dtype)
{
    return dtype >= TRIB_F16 && dtype <= TRIB_F64;
}

static inline bool tri_op_valid(trib_op op)
{
    return op >= TRIB_SUM && op <= TRIB_AVG;
}

bool tri_variant_valid(trib_variant variant);
bool tri_cta_policy_valid(trib_cta_policy policy);

/* *out: bytes of `copies` times `count` elements; false if that exceeds PTRDIFF_MAX. `dtype` is
 * valid. Hot: a division takes as long as the rest of a buffer's checks. */
bool tri_bytes(size_t *out, size_t count, size_t copies, trib_dtype dtype);

#endif
