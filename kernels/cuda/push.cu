// push for reductions of floats, and the table's entry.
#include "kernels/cuda/push.cuh"

#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/cuda/push_instances.h"

trib_status tri_cuda_push(const struct tri_push *call, trib_stream stream)
{
    if (call->count == 0)
        return TRIB_OK;
    if (tri_push_copies(call->kind))
        return tri_cuda_push_copy(call, stream);
    if (call->kind == TRI_PUSH_TWO_SHOT)
        return tri_cuda_push_two_shot(call, stream);
    if (call->dtype > TRIB_F64)
        return tri_cuda_push_integer(call, stream);
    return dispatch_float(call->dtype,
                          [&](auto type) { return queue_push<decltype(type)>(*call, stream); });
}
