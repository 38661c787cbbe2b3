/* Calls that a CUDA graph captures. */
#ifndef TRI_NCCL_CAPTURE_H
#define TRI_NCCL_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "csrc/backend.h"

/* Has the library seen any stream in capture? Before, calls do not ask for captures: one relaxed
 * load each. */
extern _Atomic bool tri_nccl_captured;
void tri_nccl_saw_capture(void);

/* Count the graphs that have just captured these calls, for each communicator once. The thread is
 * registered with the abort states. `queued`: all calls were; else only some may have been captured.
 * Never fails: of a graph that cannot be counted nobody knows when it is gone, so the order of the
 * call's rank is lost. */
void tri_nccl_count_graphs(const struct tri_call *calls, size_t n, bool queued);

#endif
