/* The list of all kernels, and their loading. */
#ifndef TRI_KERNELS_CUDA_PRELOAD_H
#define TRI_KERNELS_CUDA_PRELOAD_H

/* A kernel in the list: of static storage, entered by its constructor (see launch.cuh). */
struct tri_cuda_kernel {
    const void *function;
    tri_cuda_kernel *next;

    explicit tri_cuda_kernel(const void *launched);
};

/* The table's preload. Never fails: what the device cannot load is reported by its launch. */
extern "C" void tri_cuda_preload(void);

#endif
