/* The collectives: check, record what the backend has natively, compose the rest. */
#ifndef TRI_CORE_COLLECTIVE_H
#define TRI_CORE_COLLECTIVE_H

#include "csrc/core/communicator.h"
#include "csrc/core/compose.h"
#include "csrc/core/operation.h"

/* allreduce, broadcast, reduce, allgather, reduce_scatter, send, recv (an enum tri_kind), alltoall,
 * gather and scatter (an enum tri_composed). Fills in call->kind and call->transport. */
trib_status tri_collective(struct trib_comm *comm, int operation, struct tri_call *call);

/* TRI_ALLREDUCE_WITH, broadcast, allgather, reduce_scatter or alltoall with `options`, which may be NULL. */
trib_status tri_collective_with(struct trib_comm *comm, int operation, struct tri_call *call,
                                const trib_call_options *options);

trib_status tri_barrier(struct trib_comm *comm, trib_stream stream);

/* The public functions of these names. */
trib_status tri_allgatherv(struct trib_comm *comm, const void *send, void *recv,
                           const size_t *counts, const size_t *offsets, trib_dtype dtype,
                           trib_stream stream);
trib_status tri_alltoallv(struct trib_comm *comm, const struct tri_alltoallv *args);

#endif
