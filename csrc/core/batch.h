/* The calls that a communicator is about to issue. A call by itself is a batch of one: it begins,
 * records its parts and submits them as one. Between trib_batch_begin and trib_batch_end, calls
 * only record, and the end submits all of them as one. */
#ifndef TRI_CORE_BATCH_H
#define TRI_CORE_BATCH_H

#include "csrc/core/communicator.h"

trib_status tri_batch_begin(struct trib_comm *comm);
trib_status tri_batch_end(struct trib_comm *comm);
/* Forget the recorded calls, and close the batch. */
void tri_batch_drop(struct trib_comm *comm);

/* The steps of an end, for batches that end together (batches.h). close: was every call recorded?
 * The batch is no longer open in any case. match: with TRIB_MATCH, do all ranks end the same batch?
 * (matches: does it have to wait for them?) prepare: what its stream does before its calls. mark:
 * what it does after them, `status` being theirs; returns the first failure. settle: count the
 * calls if they were queued, and forget them; returns `status`. */
trib_status tri_batch_close(struct trib_comm *comm);
bool tri_batch_matches(const struct trib_comm *comm);
trib_status tri_batch_match(struct trib_comm *comm);
trib_status tri_batch_prepare(struct trib_comm *comm);
trib_status tri_batch_mark(struct trib_comm *comm, trib_status status);
trib_status tri_batch_settle(struct trib_comm *comm, trib_status status);

/* Begin a public call whose arguments are valid. With TRIB_MATCH, compares the ranks' calls: `call`
 * holds the arguments, `digest` covers those that do not fit there, or is 0. */
trib_status tri_batch_begin_call(struct trib_comm *comm, int operation, const struct tri_call *call,
                                 uint64_t digest);
/* Record one part of the call. Fills in `transport`. */
trib_status tri_batch_record(struct trib_comm *comm, const struct tri_call *call);
/* *out: `bytes` bytes of scratch (see room.h), aligned to 256, which the batch owns until it has
 * run. */
trib_status tri_batch_scratch(struct trib_comm *comm, void **out, size_t bytes);
/* *out: a copy of `data` in scratch, which the stream makes before the batch's calls run. */
trib_status tri_batch_stage(struct trib_comm *comm, const void **out, const void *data,
                            size_t bytes);
/* End the call. With `status` TRIB_OK, issues its parts now or with the open batch. Otherwise
 * issues none of them, and an open batch has failed. Returns the final status. `bytes`: of its send
 * side. */
trib_status tri_batch_submit(struct trib_comm *comm, trib_status status, size_t bytes);
/* The call failed before it began; an open batch has failed with it. Returns `status`. */
trib_status tri_batch_fail(struct trib_comm *comm, trib_status status);

#endif
