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
 * registered with the abort states. Never fails: a graph that cannot be counted is not. */
void tri_nccl_count_graphs(const struct tri_call *calls, size_t n);

#endif
