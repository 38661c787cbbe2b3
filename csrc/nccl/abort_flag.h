/* The abort flag of a communicator: the word that its kernels read. */
#ifndef TRI_NCCL_ABORT_FLAG_H
#define TRI_NCCL_ABORT_FLAG_H

#include <stdint.h>

#include "csrc/base/status.h"

/* Return a pinned cell that holds 0. Allocating pinned memory may wait for a device, so the wait
 * ends at `deadline_ns`. Creates no context on any device but `device`. */
trib_status tri_nccl_abort_flag_create(void **out, int32_t device, uint64_t deadline_ns);

#endif
