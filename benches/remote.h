/* Allreduces in which every rank adds its part to the result of every rank, where that lies: by atomics, or
 * under locks. Iris (arXiv 2511.12500) has both. They are here to be measured: sums have no order of ranks,
 * so not the same bits on all. */
#ifndef TRI_BENCHES_REMOTE_H
#define TRI_BENCHES_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/pull.h"

enum { BENCH_TILE = 4096, BENCH_LOCKS = 1 << 16 }; /* elements under a lock; locks of a rank */

/* Results are zeros on all ranks before, and whole once all ranks' calls have ended. */
struct bench_remote {
    const float *send; /* of this rank */
    float *recv[TRI_PULL_RANKS];
    uint32_t *locks[TRI_PULL_RANKS]; /* BENCH_LOCKS each; 0: free */
    size_t count;
    int size, rank;
    bool locked; /* under locks: read, add, store */
};

#ifdef __cplusplus
extern "C" {
#endif
/* On the current device. False if CUDA refuses. */
bool bench_remote_add(const struct bench_remote *call, trib_stream stream);
#ifdef __cplusplus
}
#endif

#endif
