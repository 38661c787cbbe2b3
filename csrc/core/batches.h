/* Batches of several communicators, or of several ranks of one, that end as one call of the
 * backend. */
#ifndef TRI_CORE_BATCHES_H
#define TRI_CORE_BATCHES_H

#include "csrc/core/communicator.h"

/* trib_batch_end_all; `comms` and its elements are not NULL. */
trib_status tri_batches_end(struct trib_comm *const *comms, size_t n);

#endif
