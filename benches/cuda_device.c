/* The device that is current on a thread. */
#include "benches/cuda_device.h"

#include "tests/conformance/cuda_must.h"

void bench_set_device(int device)
{
    static _Thread_local int current = -1;
    if (current != device)
        MUST(cudaSetDevice(device));
    current = device;
}
