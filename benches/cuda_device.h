/* The device that is current on a thread. */
#ifndef TRI_BENCHES_CUDA_DEVICE_H
#define TRI_BENCHES_CUDA_DEVICE_H

/* Make `device` current, as a careful user does: CUDA is asked only where the thread had another one.
 * Nothing else here may choose a device. */
void bench_set_device(int device);

#endif
