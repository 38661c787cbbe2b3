/* Calls in which all ranks meet, and the deadline that they have for it. */
#ifndef TRI_CORE_MEETING_H
#define TRI_CORE_MEETING_H

#include "csrc/base/watch.h"
#include "csrc/core/communicator.h"

/* One rank's call; lives on its stack. */
struct tri_meeting {
    struct trib_comm *comm;
    int operation;
    struct tri_watch watch;
};

/* From here to the end the communicator's timeout_ms runs. When it has passed, the communicator ends with
 * TRIB_ERR_TIMEOUT, which frees whatever waits for a rank: on a stream, and inside the engine. Whoever
 * may wait for a rank does it between these, also for calls that were queued before. A failure to begin
 * is the end of the communicator: the others wait for this rank. One inside another changes nothing: the
 * outer one is due first. */
trib_status tri_meeting_begin(struct tri_meeting *meeting, struct trib_comm *comm, int operation);
void tri_meeting_end(struct tri_meeting *meeting);

/* Until the last use of `workspace` has ended, or the communicator is over, which is returned. Not in the
 * device's own wait, which an abort reaches only if nothing else holds the stream. */
trib_status tri_meeting_wait(const struct trib_comm *comm, int operation,
                             const struct tri_workspace *workspace);

#endif
