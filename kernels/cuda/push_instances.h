/* push for integers, of at least one element. */
#ifndef TRI_KERNELS_CUDA_PUSH_INTEGER_H
#define TRI_KERNELS_CUDA_PUSH_INTEGER_H

#include "kernels/kernels.h"

trib_status tri_cuda_push_integer(const struct tri_push *call, trib_stream stream);

#endif
