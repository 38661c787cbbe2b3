/* A communicator of push over the GPUs of this process, whose ranks write into each other's scratch. Each
 * GPU has one rank, or several, which are blocks of one launch. A call that waits for longer than PATIENCE_MS ends, so a lost granule is a failed check. */
#ifndef TRI_TESTS_PUSH_GPUS_H
#define TRI_TESTS_PUSH_GPUS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "kernels/push.h"

enum {
    GPUS_BYTES = 256 << 10, /* of the largest call, but of random ones, */
    GPUS_MOST = 1 << 20,    /* with which a thread has several chunks: a slot has room for it */
    GPUS_PATIENCE_MS = 5000
};

struct gpus {
    int devices, each;                    /* ranks of a device: rank r is on device r / each */
    int size;                             /* ranks */
    cudaStream_t streams[TRI_PUSH_RANKS]; /* of a device */
    void *scratch[TRI_PUSH_RANKS];
    struct tri_push_control *control[TRI_PUSH_RANKS];
    size_t capacity;
    uint32_t *abort_flag;
    uint64_t patience_ns;
};

/* All GPUs that there are, `each` ranks on each, as many as there can be. False, with a reason in `why`,
 * if there are not two of them whose memory all others can map. */
bool gpus_open(struct gpus *gpus, int each, const char **why);
void gpus_close(struct gpus *gpus);
/* As before the first call: after an abort. Nothing is queued. */
void gpus_renew(struct gpus *gpus);

/* A call, but for its buffers. A copy may be of any type. */
struct gpus_call {
    size_t count;
    trib_dtype dtype;
    trib_op op;
    enum tri_push_kind kind;
    int root;
};

/* Queue a call of the ranks of `device`, which is current; send[r] and recv[r] are rank r's. */
void gpus_push(const struct gpus *gpus, int device, const void *const *send, void *const *recv,
               struct gpus_call call);
/* The same on another stream, and on a device with one rank. */
void gpus_push_one(const struct gpus *gpus, int rank, const void *send, void *recv,
                   struct gpus_call call, cudaStream_t stream);

/* Memory of the device, which becomes current. */
void *gpus_alloc(int device, size_t bytes);
void gpus_wait(const struct gpus *gpus, int device);

/* Element i of both is the same, or both are NaN. */
bool gpus_same(const void *found, const void *expected, size_t i, trib_dtype dtype);

#endif
