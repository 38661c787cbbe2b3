/* Handing work to a backend: through the gate, to both kinds of backend alike. */
#ifndef TRI_CORE_ISSUE_H
#define TRI_CORE_ISSUE_H

#include <stddef.h>

#include "csrc/core/communicator.h"

/* The gate of a communicator, and so of every rank of it in this process. enter: TRIB_OK, or why it
 * is not usable. leave: looks again, for a call that an abort overtook has failed. Between the two,
 * an aborter knows that somebody is inside. */
trib_status tri_issue_enter(struct trib_comm *comm);
trib_status tri_issue_leave(struct trib_comm *comm);

/* `n` calls of one communicator on one stream, as one. */
trib_status tri_issue(struct trib_comm *comm, const struct tri_call *calls, size_t n);

/* One call on each of the `n` ranks of a group, calls[i] on comms[i]. */
trib_status tri_issue_group(struct trib_comm *const *comms, const struct tri_call *calls, size_t n);

/* What a list does on its stream. Runs at once on a queueing backend, later on the stream on a
 * running one, with a copy of the argument's `bytes` bytes. The function raises the state if it
 * fails; a failure to hand it over leaves the state alone. */
trib_status tri_issue_run(struct trib_comm *comm, void (*function)(void *argument), void *argument,
                          size_t bytes, trib_stream stream);

#endif
