/* A CUDA call that fails leaves a test nothing to check. */
#ifndef TRI_TESTS_CONFORMANCE_CUDA_MUST_H
#define TRI_TESTS_CONFORMANCE_CUDA_MUST_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

static inline void cuda_must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    fflush(NULL);
    _Exit(EXIT_FAILURE); /* several ranks' threads may come here at once, as exit() may not */
}
#define MUST(call) cuda_must((call), #call)

#endif
