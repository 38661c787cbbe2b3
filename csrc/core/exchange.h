/* A few bytes of every rank, on all of them: how ranks compare what they are about to do. */
#ifndef TRI_CORE_EXCHANGE_H
#define TRI_CORE_EXCHANGE_H

#include <stddef.h>

#include "csrc/core/communicator.h"

/* `bytes` bytes (TRI_STAGED_BYTES at most) of each rank, this one's at `own`, in rank order in `all`. A
 * call of all ranks, blocking, on `stream`; nothing that it queues looks at `own` or `all`.
 *
 * A meeting (meeting.h): TRIB_ERR_TIMEOUT if a rank has not come within the communicator's timeout_ms,
 * what was queued on the stream before included. That, like every failure of a rank here, is the end of
 * the communicator: the others wait for it. */
trib_status tri_exchange(struct trib_comm *comm, int operation, const void *own, size_t bytes,
                         void *all, trib_stream stream);

#endif
