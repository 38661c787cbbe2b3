/* The deadline of calls that wait for every rank. */
#ifndef TRI_CORE_DEADLINE_H
#define TRI_CORE_DEADLINE_H

#include "csrc/base/watch.h"
#include "csrc/core/communicator.h"

/* One rank's call; lives on its stack. */
struct tri_deadline {
    struct trib_comm *comm;
    int operation;
    uint64_t due_ns;
    uint32_t call_timeout_ms; /* the communicator's, outside of the call */
    struct tri_watch watch;
};

/* The communicator's timeout_ms runs between begin and end. When it has passed, the communicator
 * ends with TRIB_ERR_TIMEOUT, which ends every wait for a rank: on a stream, and inside NCCL;
 * detail and lost ranks are those of a late call (watchdog.h), as far as the recorders tell. A
 * call that may wait for a rank waits between the two, also for calls that were queued before. What
 * it queues has no deadline of its own. If
 * begin fails, it ends the communicator, because the other ranks wait for this one. Nested
 * deadlines change nothing: the outer one is due first. */
trib_status tri_deadline_begin(struct tri_deadline *deadline, struct trib_comm *comm,
                               int operation);
void tri_deadline_end(struct tri_deadline *deadline);

/* Wait until the last use of `workspace` has ended, or the communicator is over; returns its
 * status. This polls instead of waiting on the device, where an abort ends the wait only if nothing
 * else holds the stream. */
trib_status tri_deadline_wait(const struct trib_comm *comm, int operation,
                              const struct tri_workspace *workspace);

#endif
