/* A communicator of pull over the GPUs of this process, one or more ranks on each, which are blocks of one
 * launch. A call that waits for longer than RANKS_PATIENCE_MS ends, so a lost barrier is a failed check. */
#ifndef TRI_TESTS_PULL_RANKS_H
#define TRI_TESTS_PULL_RANKS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "kernels/pull.h"

enum { RANKS_PATIENCE_MS = 5000, RANKS_ALL_MAPPED = -1 };

struct ranks {
    int devices, each;                    /* ranks of a device: rank r is on device r / each */
    int size;                             /* ranks */
    cudaStream_t streams[TRI_PULL_RANKS]; /* of a device */
    struct tri_pull_control *control[TRI_PULL_RANKS];
    void *scratch[TRI_PULL_RANKS];
    size_t scratch_bytes; /* of them what calls are to use */
    uint32_t *abort_flag;
    uint64_t patience_ns;
};

/* Up to `devices` GPUs, `each` ranks on each, as many as there can be. False, with a reason in `why`, if
 * that is less than two ranks, or the GPUs cannot map each other's memory. */
bool ranks_open(struct ranks *ranks, int devices, int each, const char **why);
void ranks_close(struct ranks *ranks);
/* As before the first call: after an abort. Nothing is queued. */
void ranks_renew(struct ranks *ranks);

/* A call, but for its buffers. */
struct ranks_call {
    size_t count;
    trib_dtype dtype;
    trib_op op;
    enum tri_pull_way way;
    int blocks, unmapped; /* a rank, or RANKS_ALL_MAPPED */
    enum tri_pull_kind kind;
    int root;
    const void *const *tables; /* of so many slices each, rank r's; NULL: none */
    size_t slices;
};

/* Queue a call of the ranks of `device`; send[r] and recv[r] are rank r's. */
void ranks_pull(const struct ranks *ranks, int device, const void *const *send, void *const *recv,
                const struct ranks_call *call);
/* The same of all devices, one after the other. */
void ranks_pull_all(const struct ranks *ranks, const void *const *send, void *const *recv,
                    const struct ranks_call *call);

/* Memory of the rank's device, which becomes current. */
void *ranks_alloc(const struct ranks *ranks, int rank, size_t bytes);
void ranks_copy(const struct ranks *ranks, int rank, void *to, const void *from, size_t bytes);
/* Until all streams have run. */
void ranks_wait(const struct ranks *ranks);

#endif
