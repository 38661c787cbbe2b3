/* Tributary's constants and statuses in terms of those of NCCL and CUDA, and back. */
#ifndef TRI_NCCL_CONVERT_H
#define TRI_NCCL_CONVERT_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>

#include "csrc/backend.h"

/* The arguments are valid. */
ncclDataType_t tri_nccl_dtype(trib_dtype dtype);
ncclRedOp_t tri_nccl_op(trib_op op);

/* "allreduce" */
const char *tri_nccl_kind_name(enum tri_kind kind);

/* Set the detail for a failed call and return its status. `operation` names the attempt, in the
 * form "allocating 64 bytes" or "allreduce". Clears CUDA's last error unless it is final for the
 * process. */
trib_status tri_nccl_fail(ncclResult_t result, const char *operation, int32_t rank, int32_t device);
trib_status tri_nccl_cuda_fail(cudaError_t error, const char *operation, int32_t device);
/* The same for a wait or a query: TRIB_ERR_CUDA means that the device has failed,
 * TRIB_ERR_INVALID_USAGE that CUDA refused to answer. */
trib_status tri_nccl_wait_fail(cudaError_t error, const char *operation, int32_t device);

/* The device has failed, or this process's context on it: every later call fails with the same
 * error, and no work runs any more. The driver's numbers are the same. */
bool tri_nccl_device_failed(cudaError_t error);

/* NCCL refused the call and did nothing: the communicator is still usable. */
bool tri_nccl_refused(ncclResult_t result);

#endif
