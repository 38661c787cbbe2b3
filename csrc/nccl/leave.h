/* Ranks that leave. Each rank counts the calls that it hands to NCCL, so that its local peers learn
 * when one of their calls can never end. */
#ifndef TRI_NCCL_LEAVE_H
#define TRI_NCCL_LEAVE_H

#include <stdbool.h>

#include "csrc/backend.h"
#include "csrc/nccl/local.h"

/* Count `calls` before handing them to NCCL. If a rank of this process has left and will not make
 * its part, do not hand them over: the local ranks are aborted, and this returns their status. Hot
 * path: one increment and one load for each call. */
trib_status tri_nccl_count_calls(const struct tri_call *calls, size_t n);
/* NCCL got none of them. */
void tri_nccl_uncount_calls(const struct tri_call *calls, size_t n);
/* tri_nccl_count_calls for a split, which is a call of all ranks. */
trib_status tri_nccl_count_split(struct tri_transport *transport);

/* `transport` makes no more calls. Returns false, with the detail set, if a local peer has made
 * more calls than it did; the caller then aborts with TRIB_ERR_CLOSED. The caller holds the lock of
 * the local ranks, and the stage is OPEN. */
bool tri_nccl_mark_left(struct tri_transport *transport);

#endif
