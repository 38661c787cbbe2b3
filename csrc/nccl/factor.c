/* Allreduces that multiply every summand by a factor first. NCCL has a reduction for that, created
 * for one communicator and one factor. */
#include "csrc/nccl/factor.h"

#include "csrc/base/half.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/local.h"
#include "kernels/cuda/kernels_cuda.h"

/* A factor on the host: NCCL takes it as an element of the call's type. */
static ncclResult_t from_host(ncclRedOp_t *out, const struct tri_call *call)
{
    double f64 = call->factor.value;
    float f32 = (float)f64;
    uint16_t half = call->dtype == TRIB_F16 ? tri_f32_to_f16(f32) : tri_f32_to_bf16(f32);
    void *element = &half;
    if (call->dtype == TRIB_F64)
        element = &f64;
    else if (call->dtype == TRIB_F32)
        element = &f32;
    return ncclRedOpCreatePreMulSum(out, element, tri_nccl_dtype(call->dtype),
                                    ncclScalarHostImmediate, call->transport->comm);
}

/* A factor on the device: NCCL's kernels read it there, also as an element of the call's type. */
static ncclResult_t from_device(ncclRedOp_t *out, const struct tri_call *call)
{
    void *element = call->room;
    if (call->dtype == TRIB_F32) {
        element = (void *)(uintptr_t)call->factor.device;
    } else if (tri_kernels_cuda.scale(element, NULL, 1, call->dtype, &call->factor, call->stream) !=
               TRIB_OK) {
        return ncclUnhandledCudaError;
    }
    return ncclRedOpCreatePreMulSum(out, element, tri_nccl_dtype(call->dtype), ncclScalarDevice,
                                    call->transport->comm);
}

ncclResult_t tri_nccl_allreduce_scaled(const struct tri_call *call)
{
    const ncclComm_t comm = call->transport->comm;
    ncclRedOp_t sum;
    ncclResult_t result =
        call->factor.device == NULL ? from_host(&sum, call) : from_device(&sum, call);
    if (result != ncclSuccess)
        return result;
    result = ncclAllReduce(call->send, call->recv, call->count, tri_nccl_dtype(call->dtype), sum,
                           comm, call->stream);
    /* NCCL has copied what it needs, also inside an open group. */
    const ncclResult_t gone = ncclRedOpDestroy(sum, comm);
    return result != ncclSuccess ? result : gone;
}
