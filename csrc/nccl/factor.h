/* Sums whose summands are multiplied by a factor first. */
#ifndef TRI_NCCL_FACTOR_H
#define TRI_NCCL_FACTOR_H

#include <nccl.h>

#include "csrc/backend.h"

/* NCCL's allreduce of a call that is scaled. The device is current. */
ncclResult_t tri_nccl_allreduce_scaled(const struct tri_call *call);

#endif
