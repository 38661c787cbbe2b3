/* Windows: symmetric memory of callers that is registered with NCCL. */
#ifndef TRI_NCCL_WINDOWS_H
#define TRI_NCCL_WINDOWS_H

#include "csrc/nccl/local.h"

/* With TRIB_WINDOWS: register `memory`, which is in this rank's list, on all ranks at once. Waits for the others
 * until an abort, as core's deadline brings one; then NCCL's call goes on for a while, with memory that the list
 * keeps. After a failure, which ends the communicator, there may be a window. */
trib_status tri_nccl_open_window(struct tri_transport *transport, struct tri_symmetric *memory);

/* End its window, if it has one, before the memory is freed, while NCCL's communicator lives. Waits for no other
 * rank. */
trib_status tri_nccl_close_window(struct tri_transport *transport, struct tri_symmetric *memory);
/* All windows of the local ranks, before NCCL's communicators are destroyed: before 2.29.7 NCCL would keep the
 * memory. No calls are queued any more; where nobody knows whether they have ended, windows stay. What fails is
 * logged. */
void tri_nccl_close_windows(const struct tri_nccl_local *local);

#endif
