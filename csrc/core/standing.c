/* Where a rank's calls stand. */
#include "csrc/core/standing.h"

void tri_standing_read(const struct tri_recorder *recorder, struct tri_progress *out)
{
    const struct trib_comm *comm = recorder->comm;
    *out = recorder->seen;
    if (tri_abort_live(comm->state))
        comm->backend->transport->progress(comm->transport, out);
}

enum tri_standing tri_standing_of(const struct tri_recorder *recorder,
                                  const struct tri_recorded *call,
                                  const struct tri_progress *progress)
{
    if (call->number > atomic_load(&recorder->issued))
        return TRI_ENTERED;
    if (call->number <= progress->ended)
        return TRI_DONE;
    if (call->number > progress->marked)
        return TRI_UNKNOWN;
    const bool known = progress->started != UINT64_MAX;
    return known && call->number <= progress->started ? TRI_STARTED : TRI_QUEUED;
}
