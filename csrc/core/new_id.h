/* One new id for the ranks that remain of an aborted communicator, in all of their processes.
 *
 * In each process the remaining ranks have met already (base/meeting.h), and one of them calls this.
 * The process of the lowest one leads: the others join, it makes the id once all wait, and sends it
 * to them. If two processes disagree on who remains, if a remaining rank has died, or if the leader's
 * deadline passes, it refuses all. */
#ifndef TRI_CORE_NEW_ID_H
#define TRI_CORE_NEW_ID_H

#include "csrc/core/communicator.h"

/* The ranks that remain. */
struct tri_survivors {
    int32_t *ranks; /* ascending */
    int32_t n;
    int32_t self; /* this rank's place among them, its new number */
};

/* `comm` has a remote. Blocks until `deadline_ns` at most. TRIB_ERR_MISMATCH, TRIB_ERR_CLOSED or
 * TRIB_ERR_TIMEOUT, as said above; the details name no operation. */
trib_status tri_new_id(trib_id *out, const struct trib_comm *comm,
                       const struct tri_survivors *survivors, uint64_t deadline_ns);

#endif
