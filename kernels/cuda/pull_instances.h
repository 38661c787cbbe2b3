/* Calls of pull, of at least one element, whose kernels are compiled apart. */
#ifndef TRI_KERNELS_CUDA_PULL_INSTANCES_H
#define TRI_KERNELS_CUDA_PULL_INSTANCES_H

#include "kernels/kernels.h"

/* A reduction of integers. */
trib_status tri_cuda_pull_integer(const struct tri_pull *call, trib_stream stream);
/* A copy. */
trib_status tri_cuda_pull_copy(const struct tri_pull *call, trib_stream stream);

#endif
