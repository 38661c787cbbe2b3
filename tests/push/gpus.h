/* A communicator of push over the GPUs of this process: one rank each, whose peers write into its
 * scratch. A call that waits for longer than PATIENCE_MS ends, so a lost granule is a failed check. */
#ifndef TRI_TESTS_PUSH_GPUS_H
#define TRI_TESTS_PUSH_GPUS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "kernels/push.h"

enum {
    GPUS_BYTES = 256 << 10, /* of the largest call */
    GPUS_PATIENCE_MS = 5000
};

struct gpus {
    int size;
    cudaStream_t streams[TRI_PUSH_RANKS];
    void *scratch[TRI_PUSH_RANKS];
    struct tri_push_control *control[TRI_PUSH_RANKS];
    size_t capacity;
    uint32_t *abort_flag;
    uint64_t patience_ns;
};

/* All GPUs, as many as can be ranks. False, with a reason in `why`, if there are not two of them
 * whose memory all others can map. */
bool gpus_open(struct gpus *gpus, const char **why);
void gpus_close(struct gpus *gpus);
/* As before the first call: after an abort. Nothing is queued. */
void gpus_renew(struct gpus *gpus);

/* Queue a call of `rank`, whose device is current, on its stream. */
void gpus_push(const struct gpus *gpus, int rank, const void *send, void *recv, size_t count,
               trib_dtype dtype, trib_op op);

/* Memory of the rank's device, which becomes current. */
void *gpus_alloc(int rank, size_t bytes);
void gpus_wait(const struct gpus *gpus, int rank);

/* Element i of both is the same, or both are NaN. */
bool gpus_same(const void *found, const void *expected, size_t i, trib_dtype dtype);

#endif
