/* Calls of push, of at least one element, whose kernels are compiled apart. */
#ifndef TRI_KERNELS_CUDA_PUSH_INSTANCES_H
#define TRI_KERNELS_CUDA_PUSH_INSTANCES_H

#include "kernels/kernels.h"

/* A reduction of integers. */
trib_status tri_cuda_push_integer(const struct tri_push *call, trib_stream stream);
/* Two shot. */
trib_status tri_cuda_push_two_shot(const struct tri_push *call, trib_stream stream);
/* A copy. */
trib_status tri_cuda_push_copy(const struct tri_push *call, trib_stream stream);

#endif
