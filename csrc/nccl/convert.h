/* Tributary's numbers and words, and those of NCCL and CUDA. */
#ifndef TRI_NCCL_CONVERT_H
#define TRI_NCCL_CONVERT_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>

#include "csrc/backend.h"
#include "csrc/nccl/device.h"

/* The arguments are valid. */
ncclDataType_t tri_nccl_dtype(trib_dtype dtype);
ncclRedOp_t tri_nccl_op(trib_op op);

/* "allreduce" */
const char *tri_nccl_kind_name(enum tri_kind kind);

/* Set the detail for a failed call and return its status. `operation` is what was tried, in the
 * form "allocating 64 bytes" or "allreduce". A failure that is not final for the process is cleared
 * from CUDA's memory of it. */
trib_status tri_nccl_fail(ncclResult_t result, const char *operation, int32_t rank, int32_t device);
trib_status tri_nccl_cuda_fail(cudaError_t error, const char *operation, int32_t device);
/* The same of a wait, or of a question whether something has run: TRIB_ERR_CUDA means that the device
 * has failed, TRIB_ERR_INVALID_USAGE that CUDA would not say. */
trib_status tri_nccl_wait_fail(cudaError_t error, const char *operation, int32_t device);
/* tri_nccl_enter before a wait or such a question. That it fails says nothing of what is queued. */
trib_status tri_nccl_wait_enter(struct tri_nccl_scope *scope, int32_t device);
trib_status tri_nccl_driver_fail(CUresult result, const char *operation, int32_t device);

/* The communicator can still be used after `result`: NCCL refused the call and did nothing. */
bool tri_nccl_harmless(ncclResult_t result);

#endif
