// pull for integers: its instances, compiled apart from those for floats.
#include "kernels/cuda/pull_integer.h"

#include "kernels/cuda/pull.cuh"

trib_status tri_cuda_pull_integer(const struct tri_pull *call, trib_stream stream)
{
    switch (call->dtype) {
    case TRIB_I8:
        return queue_pull<int8_t>(*call, stream);
    case TRIB_U8:
        return queue_pull<uint8_t>(*call, stream);
    case TRIB_I32:
        return queue_pull<int32_t>(*call, stream);
    case TRIB_U32:
        return queue_pull<uint32_t>(*call, stream);
    case TRIB_I64:
        return queue_pull<int64_t>(*call, stream);
    default:
        return queue_pull<uint64_t>(*call, stream);
    }
}
