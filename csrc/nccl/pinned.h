/* Small pinned memory that host threads and all GPUs can read and write. */
#ifndef TRI_NCCL_PINNED_H
#define TRI_NCCL_PINNED_H

#include <stdbool.h>
#include <stddef.h>

#include "csrc/base/status.h"

/* Bytes of a cell, the largest request. */
enum { TRI_NCCL_CELL = 128 };

/* tri_device_ops.alloc_pinned and free_pinned. Freeing makes no CUDA call: returning pinned memory
 * to CUDA may wait for the devices, and destroying an aborted communicator must not wait. */
trib_status tri_nccl_alloc_pinned(void **out, size_t bytes);
void tri_nccl_free_pinned(void *data);

/* try_alloc_pinned takes one free cell if there is one, and never waits. grow_pinned adds free
 * cells, and may wait for a device. */
bool tri_nccl_try_alloc_pinned(void **out);
trib_status tri_nccl_grow_pinned(void);

#endif
