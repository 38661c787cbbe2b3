// scale: data times one factor, or the factor itself as an element.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/cuda/launch.cuh"

namespace {

constexpr uint32_t kThreads = 256, kMaxBlocks = 4096;

template <typename T, typename Wide>
__global__ void __launch_bounds__(kThreads)
    scale(T *dst, const T *src, uint64_t count, const float *device, Wide value)
{
    T rounded;
    narrow(rounded, device != nullptr ? static_cast<Wide>(*device) : value);
    const Wide factor = widen(rounded);
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * kThreads;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
         i += step) {
        if (src == nullptr)
            dst[i] = rounded;
        else
            narrow(dst[i], factor * widen(src[i]));
    }
}

template <typename T, typename Wide>
trib_status queue(void *dst, const void *src, size_t count, const tri_factor *factor,
                  trib_stream stream)
{
    const float *device = factor->device;
    Wide value = static_cast<Wide>(factor->value);
    uint64_t n = count;
    const uint64_t blocks = (n + kThreads - 1) / kThreads;
    void *arguments[] = {&dst, &src, &n, &device, &value};
    return blocks == 0 ? TRIB_OK
                       : launch_kernel<scale<T, Wide>>(
                             static_cast<uint32_t>(blocks < kMaxBlocks ? blocks : kMaxBlocks),
                             kThreads, arguments, stream);
}

} // namespace

trib_status tri_cuda_scale(void *dst, const void *src, size_t count, trib_dtype dtype,
                           const struct tri_factor *factor, trib_stream stream)
{
    return dispatch_float(dtype, [&](auto type) {
        using T = decltype(type);
        return queue<T, Sum<T>>(dst, src, count, factor, stream);
    });
}
