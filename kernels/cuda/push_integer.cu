// push for reductions of integers: its instances, compiled apart from those for floats.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/push.cuh"
#include "kernels/cuda/push_instances.h"

trib_status tri_cuda_push_integer(const struct tri_push *call, trib_stream stream)
{
    return dispatch_integer(call->dtype,
                            [&](auto type) { return queue_push<decltype(type)>(*call, stream); });
}
