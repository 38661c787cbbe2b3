/* Errors of queued work. */
#ifndef TRI_NCCL_POLL_H
#define TRI_NCCL_POLL_H

#include "csrc/nccl/local.h"

/* tri_transport_ops.poll */
void tri_nccl_poll(struct tri_transport *transport);

/* The poll hook of the abort state: NCCL's asynchronous errors. `context` is the local ranks.
 * One that another process may have caused by ending counts after 50 ms, the time in which the side
 * channel says which. */
trib_status tri_nccl_poll_errors(void *context);

#endif
