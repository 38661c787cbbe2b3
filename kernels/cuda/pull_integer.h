/* pull for integers, of at least one element. */
#ifndef TRI_KERNELS_CUDA_PULL_INTEGER_H
#define TRI_KERNELS_CUDA_PULL_INTEGER_H

#include "kernels/kernels.h"

trib_status tri_cuda_pull_integer(const struct tri_pull *call, trib_stream stream);

#endif
