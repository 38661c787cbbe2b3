/* Collectives composed of what every backend has. Each records its parts in the batch, which run as
 * one, sends and receives side by side. Arguments are valid. */
#ifndef TRI_CORE_COMPOSE_H
#define TRI_CORE_COMPOSE_H

#include "csrc/core/communicator.h"

trib_status tri_compose_alltoall(struct trib_comm *comm, const struct tri_call *call);
trib_status tri_compose_gather(struct trib_comm *comm, const struct tri_call *call);
trib_status tri_compose_scatter(struct trib_comm *comm, const struct tri_call *call);
trib_status tri_compose_barrier(struct trib_comm *comm, trib_stream stream);

/* Blocks of one buffer: block i is counts[i] elements at element offsets[i], or, where the arrays
 * are NULL, `count` elements at element i * count. */
struct tri_blocks {
    const size_t *counts, *offsets;
    size_t count;
};

/* Block i of `send` goes to rank i, block i of `recv` comes from rank i. */
struct tri_alltoallv {
    const void *send;
    void *recv;
    struct tri_blocks sends, recvs;
    trib_dtype dtype;
    trib_stream stream;
    bool self; /* this rank also sends to itself */
};

/* Empty blocks do not travel: both ranks leave them out, because one receives what the other
 * sends. */
trib_status tri_compose_alltoallv(struct trib_comm *comm, const struct tri_alltoallv *args);

#endif
