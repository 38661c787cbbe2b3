// What pack and unpack have in common where a bucket is of sums, weighted: f32 or f64.
#pragma once

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/pieces.cuh"

namespace {

// run(value of the type of a tensor of `dtype` in such a bucket of Sum).
template <typename Sum, typename Run>
__device__ inline void with_tensor_type(trib_dtype dtype, const Run &run)
{
    if constexpr (sizeof(Sum) == sizeof(double))
        run(double());
    else if (dtype == TRIB_F16)
        run(F16());
    else if (dtype == TRIB_BF16)
        run(Bf16());
    else
        run(float());
}

// How long its units are, for move_units.
template <typename Sum>
struct WeightedUnits {
    static constexpr int kPerUnit = kUnit / sizeof(Sum);
    static constexpr int kCount = kChunk * kPerUnit;

    __device__ uint32_t per_unit() const
    {
        return kPerUnit;
    }
    __device__ uint32_t unit_bytes(trib_dtype dtype) const
    {
        return is_half<Sum>(dtype) ? kUnit / 2 : kUnit;
    }
};

} // namespace
