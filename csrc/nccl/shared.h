/* Small memory that host threads and all GPUs can read and write. */
#ifndef TRI_NCCL_SHARED_H
#define TRI_NCCL_SHARED_H

#include <stdbool.h>
#include <stddef.h>

#include "csrc/base/status.h"

/* Bytes of a cell: the most that one request gives. */
enum { TRI_NCCL_CELL = 128 };

/* tri_device_ops.alloc_shared and free_shared. Freeing makes no CUDA call: giving pinned memory
 * back to CUDA may wait for the devices, and destroying an aborted communicator must not wait. */
trib_status tri_nccl_alloc_shared(void **out, size_t bytes);
void tri_nccl_free_shared(void *data);

/* alloc_shared of a whole cell if there is a free one: never waits. And what gives more of them: may
 * wait for a device. */
bool tri_nccl_try_shared(void **out);
trib_status tri_nccl_add_shared(void);

#endif
