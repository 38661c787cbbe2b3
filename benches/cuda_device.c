/* CUDA by itself: the device that is current on a thread, and calls that must succeed. */
#include "benches/cuda_device.h"

#include <stdio.h>

#include "benches/bench.h"

void bench_set_device(int device)
{
    static _Thread_local int current = -1;
    if (current != device)
        CUDA_OK(cudaSetDevice(device));
    current = device;
}

void bench_cuda_ok(cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
    bench_fail();
}
