/* The abort word of a communicator. */
#ifndef TRI_NCCL_WORD_H
#define TRI_NCCL_WORD_H

#include <stdint.h>

#include "csrc/base/status.h"

/* A cell of shared memory that holds 0, by `deadline_ns`: pinned memory may have to be had for it,
 * which may wait for a device. No context is made on another device than `device`. */
trib_status tri_nccl_word_create(void **out, int32_t device, uint64_t deadline_ns);

#endif
