/* A kernel that leaves others no room on its device. */
#ifndef TRI_TESTS_PULL_FILL_H
#define TRI_TESTS_PULL_FILL_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Queue one on the current device that takes all threads of all multiprocessors, for about `ms`: in so many
 * waves of blocks, between which others may get in. Its first launch loads it. */
cudaError_t fill_device(cudaStream_t stream, int ms, int waves);

#ifdef __cplusplus
}
#endif

#endif
