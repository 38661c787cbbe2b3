/* The operations that users call, and the traits of each: its buffers, their lengths, in place. */
#ifndef TRI_CORE_OPERATION_H
#define TRI_CORE_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "csrc/backend.h"

/* An operation is an enum tri_kind, or one of these, which core, lists, sparse and reducer compose
 * of kinds. */
enum tri_composed {
    TRI_GATHER = TRI_KINDS,
    TRI_SCATTER,
    TRI_ALLREDUCE_WITH,
    TRI_ALLGATHERV,
    TRI_ALLTOALLV,
    TRI_ALLREDUCE_LIST,
    TRI_ALLREDUCE_LIST_WITH,
    TRI_BROADCAST_LIST,
    TRI_WEIGHTED_AVERAGE,
    TRI_SPARSE_BYTES,
    TRI_SPARSE_CREATE,
    TRI_SPARSE_SET_DENSITY,
    TRI_SPARSE_SET_K,
    TRI_SPARSE_ALLREDUCE,
    TRI_SPARSE_ALLREDUCE_ENTRIES,
    TRI_SPARSE_STATUS,
    TRI_SPARSE_RESIDUAL,
    TRI_SPARSE_EXPORT,
    TRI_SPARSE_IMPORT,
    TRI_SPARSE_RESET,
    TRI_SPARSE_DESTROY,
    TRI_REDUCER_CREATE,
    TRI_REDUCER_VIEW,
    TRI_REDUCER_READY, /* a bucket, where calls are counted */
    TRI_REDUCER_FINISH,
    TRI_REDUCER_WAIT,
    TRI_REDUCER_STATUS,
    TRI_REDUCER_SET_DENSITY,
    TRI_REDUCER_STATISTICS,
    TRI_REDUCER_EXPORT,
    TRI_REDUCER_IMPORT,
    TRI_REDUCER_DESTROY,
    TRI_SYMMETRIC_ALLOC,
    TRI_SYMMETRIC_IMPORT,
    TRI_SYMMETRIC_QUERY,
    TRI_SYMMETRIC_FREE,
    TRI_BATCH_BEGIN,
    TRI_BATCH, /* trib_batch_end, which submits it */
    TRI_BATCH_END_ALL,
    TRI_WAIT,
    TRI_GROUP_WAIT,
    TRI_GROUP_RUN,
    TRI_SHRINK,
    TRI_CREATE,
    TRI_ADOPT,
    TRI_SPLIT,
    TRI_OPERATIONS
};

/* The ranks that use a buffer. */
enum tri_side { TRI_NOWHERE, TRI_EVERYWHERE, TRI_AT_ROOT };

/* The meaning of "in place"; a block is one of `size` blocks of `count` elements. */
enum tri_place {
    TRI_APART,        /* not defined: the buffers must not overlap */
    TRI_SAME,         /* recv == send */
    TRI_SEND_IN_RECV, /* send is block `rank` of recv */
    TRI_RECV_IN_SEND  /* recv is block `rank` of send */
};

struct tri_operation {
    const char *name;    /* of the public function, without "trib_" */
    const char *partner; /* the public function's name for `peer`; NULL if it has none */
    bool reduces;        /* has an `op` */
    uint8_t send, recv;  /* enum tri_side */
    bool send_blocks;    /* send holds size * count elements, otherwise count */
    bool recv_blocks;
    uint8_t place; /* enum tri_place */
};

/* For functions that take an operation: there is none. */
enum { TRI_NO_OPERATION = -1 };

extern const struct tri_operation tri_operations[TRI_OPERATIONS];

/* Do all ranks make this operation? */
bool tri_is_collective(int operation);

#endif
