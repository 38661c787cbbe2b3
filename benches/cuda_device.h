/* CUDA by itself: the device that is current on a thread, and calls that must succeed. */
#ifndef TRI_BENCHES_CUDA_DEVICE_H
#define TRI_BENCHES_CUDA_DEVICE_H

#include <cuda_runtime_api.h>

/* Make `device` current, as a careful user does: CUDA is asked only where the thread had another one.
 * Nothing else here may choose a device. */
void bench_set_device(int device);

/* Print the failure and end the program, unless the call returns cudaSuccess. */
#define CUDA_OK(call) bench_cuda_ok((call), #call)
void bench_cuda_ok(cudaError_t error, const char *call);

#endif
