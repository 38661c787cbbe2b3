/* Tributary's constants and statuses in terms of those of NCCL and CUDA, and back. */
#include "csrc/nccl/convert.h"

#include "csrc/base/status.h"

ncclDataType_t tri_nccl_dtype(trib_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [TRIB_F16] = ncclFloat16, [TRIB_BF16] = ncclBfloat16, [TRIB_F32] = ncclFloat32,
        [TRIB_F64] = ncclFloat64, [TRIB_I8] = ncclInt8,       [TRIB_U8] = ncclUint8,
        [TRIB_I32] = ncclInt32,   [TRIB_U32] = ncclUint32,    [TRIB_I64] = ncclInt64,
        [TRIB_U64] = ncclUint64,
    };
    return types[dtype];
}

ncclRedOp_t tri_nccl_op(trib_op op)
{
    static const ncclRedOp_t ops[] = {
        [TRIB_SUM] = ncclSum, [TRIB_PROD] = ncclProd, [TRIB_MIN] = ncclMin,
        [TRIB_MAX] = ncclMax, [TRIB_AVG] = ncclAvg,
    };
    return ops[op];
}

const char *tri_nccl_kind_name(enum tri_kind kind)
{
    static const char *const names[TRI_KINDS] = {
        [TRI_ALLREDUCE] = "allreduce",
        [TRI_BROADCAST] = "broadcast",
        [TRI_REDUCE] = "reduce",
        [TRI_ALLGATHER] = "allgather",
        [TRI_REDUCE_SCATTER] = "reduce_scatter",
        [TRI_SEND] = "send",
        [TRI_RECV] = "recv",
        [TRI_BARRIER] = "barrier",
        [TRI_ALLTOALL] = "alltoall",
    };
    return names[kind];
}

bool tri_nccl_refused(ncclResult_t result)
{
    return result == ncclInvalidArgument || result == ncclInvalidUsage;
}

static trib_status nccl_status(ncclResult_t result)
{
    switch (result) {
    case ncclUnhandledCudaError:
        return TRIB_ERR_CUDA;
    case ncclInvalidUsage:
        return TRIB_ERR_INVALID_USAGE;
    case ncclInvalidArgument:
        return TRIB_ERR_INVALID_ARGUMENT;
    default:
        return TRIB_ERR_NCCL;
    }
}

trib_status tri_nccl_fail(ncclResult_t result, const char *operation, int32_t rank, int32_t device)
{
    if (result == ncclInProgress)
        return tri_fail(TRIB_ERR_UNSUPPORTED,
                        "%s on rank %d (device %d): the communicator is non-blocking; unset "
                        "NCCL_COMM_BLOCKING, which overrides Tributary's setting, or adopt a "
                        "blocking one",
                        operation, (int)rank, (int)device);
    const char *last = ncclGetLastError(NULL); /* one text for the whole process */
    return tri_fail(
        nccl_status(result),
        "%s on rank %d (device %d): NCCL returned %d, \"%s\"; NCCL's last message, which "
        "may be unrelated: \"%s\"; run with NCCL_DEBUG=WARN to see more",
        operation, (int)rank, (int)device, (int)result, ncclGetErrorString(result),
        last == NULL ? "" : last);
}

trib_status tri_nccl_cuda_fail(cudaError_t error, const char *operation, int32_t device)
{
    (void)cudaGetLastError();
    trib_status status = TRIB_ERR_CUDA;
    if (error == cudaErrorMemoryAllocation)
        status = TRIB_ERR_OUT_OF_MEMORY;
    else if (error == cudaErrorInvalidDevice || error == cudaErrorNoDevice)
        status = TRIB_ERR_NO_DEVICE;
    return tri_fail(status, "%s on device %d: CUDA returned %d, %s: \"%s\"", operation, (int)device,
                    (int)error, cudaGetErrorName(error), cudaGetErrorString(error));
}

/* Any other error of a wait, including errors that future CUDA versions add, counts as a refusal to
 * answer: queued work may still run. If that is wrong, memory is kept longer than necessary; the
 * opposite error would free memory in use. */
bool tri_nccl_device_failed(cudaError_t error)
{
    switch ((int)error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case 226: /* cudaErrorContained, since CUDA 12.8 */
    case 721: /* cudaErrorTensorMemoryLeak, since CUDA 12.8 */
        return true;
    default:
        return false;
    }
}

trib_status tri_nccl_wait_fail(cudaError_t error, const char *operation, int32_t device)
{
    const trib_status status = tri_nccl_cuda_fail(error, operation, device);
    if (tri_nccl_device_failed(error))
        return status;
    return tri_fail(TRIB_ERR_INVALID_USAGE,
                    "%s on device %d: CUDA refused the call with %d, %s: \"%s\"; it waited for "
                    "nothing, and queued work may still run",
                    operation, (int)device, (int)error, cudaGetErrorName(error),
                    cudaGetErrorString(error));
}
