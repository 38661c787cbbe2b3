/* Shared by the cuda parts of trib_kernels. */
#ifndef TRI_BENCHES_KERNELS_CUDA_H
#define TRI_BENCHES_KERNELS_CUDA_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

/* A CUDA call that fails leaves nothing to measure. */
static inline void cuda_must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}
#define MUST(call) cuda_must((call), #call)

/* Device memory. */
static inline void *cuda_alloc(size_t bytes)
{
    void *data = NULL;
    MUST(cudaMalloc(&data, bytes + 1));
    return data;
}

#endif
