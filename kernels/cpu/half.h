/* f16 and bf16 for the kernels: one by one (base/half.h), and in blocks. */
#ifndef TRI_CPU_HALF_H
#define TRI_CPU_HALF_H

#include <stddef.h>

#include "csrc/base/half.h"
#include "tributary.h"

/* Whole blocks, faster where the processor can: the same bits. `dtype` is f16 or bf16. */
void tri_half_widen(float *out, const void *halves, size_t n, trib_dtype dtype);
void tri_half_narrow(void *halves, const float *values, size_t n, trib_dtype dtype);

#endif
