// What pack makes of the units of a bucket of sums: elements of tensors times this rank's weight, and the weight.
#pragma once

#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/weighted.cuh"

namespace {

// `Sum` is the bucket's type, `weight` a valid one, 0 if no data counts; `last` is what the
// bucket's last element, at `at`, becomes.
template <typename Sum>
struct Weight {
    Sum weight, last;
    uint64_t at;
};

// Of a bucket of so many elements. The weight is at `device`, if that is not NULL.
template <typename Sum>
__device__ inline Weight<Sum> weight_of(const float *device, float value, uint64_t count)
{
    const float weight = device != nullptr ? *device : value;
    const bool valid = weight >= 0 && isfinite(weight);
    return {valid ? Sum(weight) : Sum(0), valid ? Sum(weight) : Sum(nanf("")), count - 1};
}

template <typename T, typename Sum>
struct Scale : Weight<Sum> {
    static constexpr int kPerUnit = kUnit / sizeof(Sum);
    using Wide = Vector<T, kPerUnit>;
    static constexpr uint32_t kTogether = kRows / 2;

    __device__ bool reads() const
    {
        return this->weight != Sum(0);
    }
    __device__ void operator()(Sum &out, const T &in) const
    {
        out = reads() ? product(this->weight, widen(in)) : Sum(0);
    }
    __device__ Vector<Sum, kPerUnit> wide(const Wide &in) const
    {
        return each<Sum>(in, *this);
    }
    __device__ Sum padding(uint64_t index) const
    {
        return index == this->at ? this->last : Sum(0);
    }
};

template <typename Sum, typename List>
struct PackWeighted : WeightedUnits<Sum> {
    const List &job;
    Weight<Sum> weight;

    using WeightedUnits<Sum>::kPerUnit;
    using WeightedUnits<Sum>::kCount;

    template <typename T>
    __device__ void chunk_of(const Part &part, uint32_t unit) const
    {
        Sum *dst = bucket_at<Sum>(job, unit);
        const T *src = reinterpret_cast<const T *>(part.data);
        if (aligned(src, sizeof(T) * kPerUnit))
            move<kCount, kPerUnit>(dst, src, Scale<T, Sum>{weight}, always);
        else
            move<kCount, 1>(dst, src, Scale<T, Sum>{weight}, always);
    }

    __device__ void zero_chunk(uint32_t unit) const
    {
        uint4 *dst = bucket_at<uint4>(job, unit);
        for (uint32_t i = lane_of(); i < kChunk; i += kWarp)
            dst[i] = make_uint4(0, 0, 0, 0);
    }

    __device__ void chunk(const Part &part, uint32_t unit) const
    {
        if (weight.weight == Sum(0))
            return zero_chunk(unit);
        with_tensor_type<Sum>(part.dtype, [&](auto type) { chunk_of<decltype(type)>(part, unit); });
    }

    // The units whose tensors are of T, for which is_mine(dtype).
    template <typename T, typename IsMine>
    __device__ void parts_of(const Part (&part)[kRows], uint32_t begin, uint32_t end,
                             const IsMine &is_mine) const
    {
        bool mine[kRows], any = false;
#pragma unroll
        for (uint32_t row = 0; row < kRows; row++) {
            mine[row] = unit_of(begin, row) < end && is_mine(part[row].dtype);
            any = any || mine[row];
        }
        if (__any_sync(kAllLanes, any))
            pack_parts<T, Sum>(job, begin, part, mine, Scale<T, Sum>{weight});
    }

    // Those of no tensor count as of the bucket's type.
    __device__ void parts(const Part (&part)[kRows], uint32_t begin, uint32_t end) const
    {
        parts_of<Sum>(part, begin, end, [](trib_dtype dtype) { return !is_half<Sum>(dtype); });
        if constexpr (sizeof(Sum) == sizeof(float)) {
            parts_of<F16>(part, begin, end, [](trib_dtype dtype) { return dtype == TRIB_F16; });
            parts_of<Bf16>(part, begin, end, [](trib_dtype dtype) { return dtype == TRIB_BF16; });
        }
    }
};

} // namespace
