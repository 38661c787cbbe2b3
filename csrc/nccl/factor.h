/* Allreduces that multiply every summand by a factor first. */
#ifndef TRI_NCCL_FACTOR_H
#define TRI_NCCL_FACTOR_H

#include <nccl.h>

#include "csrc/backend.h"

/* Call NCCL's allreduce for a scaled call. The device is current. */
ncclResult_t tri_nccl_allreduce_scaled(const struct tri_call *call);

#endif
