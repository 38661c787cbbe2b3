/* Handing work to the backend, host-executed or stream-ordered: the one place that knows which. */
#ifndef TRI_CORE_ISSUE_H
#define TRI_CORE_ISSUE_H

#include <stddef.h>

#include "csrc/core/communicator.h"

/* The in-flight count of a communicator, which its ranks in this process share. register returns
 * TRIB_OK or why the communicator is not usable. unregister looks again, because a call that an
 * abort overtook has failed. Between the two an aborter frees nothing that the call uses. */
trib_status tri_issue_register(struct trib_comm *comm);
trib_status tri_issue_unregister(struct trib_comm *comm);

/* One call on `n` ranks that share a state: rank i's on streams[i]; NULL: the default streams. */
struct tri_issuing {
    struct trib_comm *const *comms;
    const trib_stream *streams;
    size_t n;
};

/* Around each call, on one thread: registers, and each rank's recorder and backend get to know the
 * call, and so does a profiler. `record` says what it is; begin adds stream and deadline. If begin
 * fails, there is nothing to end. end takes the backend's `status`, and returns the call's. */
trib_status tri_issue_begin(const struct tri_issuing *issuing, const struct tri_recorded *record);
trib_status tri_issue_end(const struct tri_issuing *issuing, trib_status status);

/* The record of a call that is one tri_call. */
struct tri_recorded tri_recorded_of(int operation, const struct tri_call *call);

/* The functions below begin and end. `n` calls of one communicator on one stream, as one. */
trib_status tri_issue(struct trib_comm *comm, const struct tri_recorded *record,
                      const struct tri_call *calls, size_t n);

/* The batches of `n` communicators, each on its stream, as one; those without calls take no part.
 * They are of one backend, and may be ranks of one communicator. If it fails after a part of it has
 * been queued, all of them are over. */
trib_status tri_issue_batches(struct trib_comm *const *comms, size_t n);

/* The same `operation` on every rank, calls[i] on rank i. */
trib_status tri_issue_group(const struct tri_issuing *issuing, int operation,
                            const struct tri_call *calls);

/* Run `function` for `stream`: at once on a stream-ordered backend, later on the stream on a
 * host-executed one, with a copy of the argument's `bytes` bytes. The function raises the state if
 * it fails; if the function cannot be submitted, the state stays as it is. */
trib_status tri_issue_run(struct trib_comm *comm, const struct tri_recorded *record,
                          void (*function)(void *argument), void *argument, size_t bytes,
                          trib_stream stream);

#endif
