/* Shared by the cuda parts of trib_kernels. */
#ifndef TRI_BENCHES_KERNELS_CUDA_H
#define TRI_BENCHES_KERNELS_CUDA_H

#include "benches/cuda_device.h"

struct kernels_options;

void kernels_time_lists(cudaStream_t stream);
void kernels_time_sparse(const struct kernels_options *options, cudaStream_t stream);

/* Device memory. */
static inline void *cuda_alloc(size_t bytes)
{
    void *data = NULL;
    CUDA_OK(cudaMalloc(&data, bytes + 1));
    return data;
}

#endif
