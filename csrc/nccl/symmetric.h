/* Symmetric memory of nccl: of devices that reach each other, as push needs it, in one process or in one a
 * rank. */
#ifndef TRI_NCCL_SYMMETRIC_H
#define TRI_NCCL_SYMMETRIC_H

#include "csrc/nccl/local.h"

extern const struct tri_symmetric_ops tri_nccl_symmetric;

/* Free that of all local ranks, which are destroyed, and whose calls have ended; or, if nobody knows whether
 * they have (local->kept), keep it for ever. */
void tri_nccl_symmetric_end(struct tri_nccl_local *local);

#endif
