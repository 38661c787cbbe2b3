/* A copy that comes late, behind which the next kernel may start at once. */
#ifndef TRI_TESTS_CONFORMANCE_KERNELS_LATE_COPY_H
#define TRI_TESTS_CONFORMANCE_KERNELS_LATE_COPY_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One kernel on `stream`, which copies 50 us after it has begun, and has by then let the next one start if that
 * is launched programmatically: a kernel of ours that does not wait for the one before it finds what was there
 * before. Both are device memory of the current device, aligned to 16. */
cudaError_t late_copy(void *dst, const void *src, size_t bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
