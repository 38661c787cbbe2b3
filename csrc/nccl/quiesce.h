/* Waiting for everything that this backend does in the background. */
#ifndef TRI_NCCL_QUIESCE_H
#define TRI_NCCL_QUIESCE_H

#include <stdint.h>

/* tri_backend.quiesce */
uint32_t tri_nccl_quiesce(uint64_t deadline_ns, uint32_t *graphs);

/* At exit, wait for a while for the background threads: the process would otherwise tear down CUDA
 * under them. Exit handlers run in the reverse order of registration, and CUDA and NCCL register
 * theirs at first use. So call this before that, with -1, and again once a communicator exists on
 * `device`. */
void tri_nccl_wait_at_exit(int32_t device);

#endif
