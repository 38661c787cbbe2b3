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

/* `n` calls of one communicator on one stream, as one. */
trib_status tri_issue(struct trib_comm *comm, const struct tri_call *calls, size_t n);

/* One call on each of the `n` ranks of a group, calls[i] on comms[i]. */
trib_status tri_issue_group(struct trib_comm *const *comms, const struct tri_call *calls, size_t n);

/* Run `function` for `stream`: at once on a stream-ordered backend, later on the stream on a
 * host-executed one, with a copy of the argument's `bytes` bytes. The function raises the state if
 * it fails; if the function cannot be submitted, the state stays as it is. */
trib_status tri_issue_run(struct trib_comm *comm, void (*function)(void *argument), void *argument,
                          size_t bytes, trib_stream stream);

#endif
