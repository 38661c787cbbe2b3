/* What lies in symmetric memory, and where the ranks have theirs. */
#ifndef TRI_CORE_REACH_H
#define TRI_CORE_REACH_H

#include "csrc/core/communicator.h"

/* The public function of this name; the pointers are not NULL. */
trib_status tri_symmetric_query(void **out, struct trib_comm *comm, const void *data, size_t bytes,
                                int32_t rank);

/* For call->variant, SYMMETRIC or WINDOW: do all of `call`'s buffers that this wants there lie in such memory? Of
 * a call other than an allreduce that is what peers read, and with TRIB_WINDOWS on nccl all of them. */
trib_status tri_symmetric_check(struct trib_comm *comm, int operation, const struct tri_call *call);

#endif
