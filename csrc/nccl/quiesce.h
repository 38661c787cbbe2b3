/* The end of everything that this backend does in the background. */
#ifndef TRI_NCCL_QUIESCE_H
#define TRI_NCCL_QUIESCE_H

#include <stdint.h>

/* tri_backend.quiesce */
uint32_t tri_nccl_quiesce(uint64_t deadline_ns);

/* A process that ends takes CUDA down under the threads that still use it: from now on it waits for
 * them first, for a while. Handlers run in the reverse order of their registration, and CUDA and
 * NCCL register theirs when they are first used: so this is called before that, with -1, and again
 * once a communicator on `device` stands. */
void tri_nccl_watch_exit(int32_t device);

#endif
