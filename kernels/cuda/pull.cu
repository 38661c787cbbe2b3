// pull for floats, and the table's entry.
#include "kernels/cuda/pull.cuh"

#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/cuda/pull_instances.h"

trib_status tri_cuda_pull(const struct tri_pull *call, trib_stream stream)
{
    if (call->count == 0)
        return TRIB_OK;
    if (tri_pull_copies(call->kind))
        return tri_cuda_pull_copy(call, stream);
    if (call->dtype > TRIB_F64)
        return tri_cuda_pull_integer(call, stream);
    return dispatch_float(call->dtype,
                          [&](auto type) { return queue_pull<decltype(type)>(*call, stream); });
}
