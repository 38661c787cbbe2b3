/* Streams that are busy, as by the kernels of a backward pass. */
#ifndef TRI_BENCHES_BUSY_H
#define TRI_BENCHES_BUSY_H

#include "benches/bench.h"

/* Keep the stream of rank `rank` busy for `us` microseconds, and little else of its device: on host the
 * stream sleeps, on nccl one thread of the GPU counts them. */
void bench_busy(const struct bench *bench, int rank, double us);

#ifdef __cplusplus
extern "C" {
#endif
/* The same on nccl (busy.cu): false if CUDA refuses. */
bool bench_busy_cuda(int rank, trib_stream stream, double us);
#ifdef __cplusplus
}
#endif

#endif
