/* Small memory that host threads and all GPUs can read and write. */
#ifndef TRI_NCCL_SHARED_H
#define TRI_NCCL_SHARED_H

#include <stddef.h>

#include "csrc/base/status.h"

/* Bytes of a cell: the most that one request gives. */
enum { TRI_NCCL_CELL = 128 };

/* tri_device_ops.alloc_shared and free_shared. Freeing makes no CUDA call: giving pinned memory
 * back to CUDA may wait for the devices, and destroying an aborted communicator must not wait. */
trib_status tri_nccl_alloc_shared(void **out, size_t bytes);
void tri_nccl_free_shared(void *data);

#endif
