// push for reductions of integers: its instances, compiled apart from those for floats.
#include "kernels/cuda/push.cuh"
#include "kernels/cuda/push_instances.h"

trib_status tri_cuda_push_integer(const struct tri_push *call, trib_stream stream)
{
    switch (call->dtype) {
    case TRIB_I8:
        return queue_push<int8_t>(*call, stream);
    case TRIB_U8:
        return queue_push<uint8_t>(*call, stream);
    case TRIB_I32:
        return queue_push<int32_t>(*call, stream);
    case TRIB_U32:
        return queue_push<uint32_t>(*call, stream);
    case TRIB_I64:
        return queue_push<int64_t>(*call, stream);
    default:
        return queue_push<uint64_t>(*call, stream);
    }
}
