/* A few bytes of every rank, on all of them: how ranks compare what they are about to do. */
#ifndef TRI_CORE_SMALL_ALLGATHER_H
#define TRI_CORE_SMALL_ALLGATHER_H

#include <stddef.h>

#include "csrc/core/communicator.h"

/* Blocking allgather of host memory: `bytes` bytes of each rank (at most TRI_STAGED_BYTES), this
 * rank's at `own`, in rank order to `all`. Every rank calls it; it runs on `stream`. The work that
 * it queues reads neither `own` nor `all`.
 *
 * It has a deadline (deadline.h): TRIB_ERR_TIMEOUT if a rank has not joined within the
 * communicator's timeout_ms, which earlier work on the stream uses up too. This failure and every
 * other one ends the communicator, because the other ranks wait for this one. */
trib_status tri_small_allgather(struct trib_comm *comm, int operation, const void *own,
                                size_t bytes, void *all, trib_stream stream);

#endif
