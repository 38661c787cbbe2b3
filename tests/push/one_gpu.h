/* Processes that share the first GPU, as if each had one of its own, over NVLink with those of the others:
 * TRIB_TEST_ONE_GPU=N in the environment of a test of processes (but of windows), of which it makes N, 2 to 8. */
#ifndef TRI_TESTS_PUSH_ONE_GPU_H
#define TRI_TESTS_PUSH_ONE_GPU_H

#include <stdint.h>

/* N; 0: each process has a GPU of its own. */
int one_gpu_ranks(void);

/* By the process of rank `index` of `n`, before it uses CUDA: its device. NCCL takes the processes for hosts, and
 * serves them over sockets; the library finds what N GPUs of one host would show it. The GPU runs one process at a
 * time, for milliseconds, so nothing here is fast. */
int32_t one_gpu_enter(int index, int n);

#endif
