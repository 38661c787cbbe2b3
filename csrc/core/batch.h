/* What a communicator is about to queue. A call by itself is a batch of one: it is entered,
 * its parts are recorded, and at its end they are issued as one. Between trib_batch_begin and
 * trib_batch_end, calls only record, and the end issues all of them as one. */
#ifndef TRI_CORE_BATCH_H
#define TRI_CORE_BATCH_H

#include "csrc/core/communicator.h"

trib_status tri_batch_begin(struct trib_comm *comm);
trib_status tri_batch_end(struct trib_comm *comm);
/* Forget what is recorded, and that a batch is open. */
void tri_batch_drop(struct trib_comm *comm);

/* A public call begins; its arguments are valid. Compares the ranks' calls if TRIB_MATCH asks for
 * it. `call`: its arguments; `digest`: of those that do not fit there, or 0. */
trib_status tri_batch_begin_call(struct trib_comm *comm, int operation, const struct tri_call *call,
                                 uint64_t digest);
/* One part of it. `transport` is filled in. */
trib_status tri_batch_record(struct trib_comm *comm, const struct tri_call *call);
/* *out: `bytes` bytes of the workspace, aligned to 256, for the batch until it has run. */
trib_status tri_batch_scratch(struct trib_comm *comm, void **out, size_t bytes);
/* *out: a copy of `data` in the workspace, made on the stream before the batch's calls run. */
trib_status tri_batch_stage(struct trib_comm *comm, const void **out, const void *data,
                            size_t bytes);
/* It ends, with `status` so far: TRIB_OK and its parts are queued now or with the batch; anything
 * else and none of them is, and an open batch has failed. Returns the final status. `bytes`: of its
 * send side. */
trib_status tri_batch_submit(struct trib_comm *comm, trib_status status, size_t bytes);
/* A call failed before it was entered: so has the batch, if one is open. Returns `status`. */
trib_status tri_batch_fail(struct trib_comm *comm, trib_status status);

#endif
