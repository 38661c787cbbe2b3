// pull for integers: its instances, compiled apart from those for floats.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/pull.cuh"
#include "kernels/cuda/pull_instances.h"

trib_status tri_cuda_pull_integer(const struct tri_pull *call, trib_stream stream)
{
    return dispatch_integer(call->dtype,
                            [&](auto type) { return queue_pull<decltype(type)>(*call, stream); });
}
