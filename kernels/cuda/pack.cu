// pack: many tensors into one bucket, plain or times this rank's weight.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"

namespace {

// ------------------------------------------------------------------------------------------- plain

// One unit of which `count` elements come from a tensor; the others are padding.
template <typename T, typename List>
__device__ void pack_unit(const List &job, const Piece &piece, uint32_t unit, uint32_t count)
{
    constexpr uint32_t kPerUnit = kUnit / sizeof(T);
    T *dst = bucket_at<T>(job, unit);
    const T *src = at<T>(piece, unit, kPerUnit);
    if (count == kPerUnit && aligned(src, kUnit)) {
        *reinterpret_cast<uint4 *>(dst) = *reinterpret_cast<const uint4 *>(src);
        return;
    }
    const uint64_t index = (job.base + unit) * kPerUnit;
#pragma unroll
    for (uint32_t i = 0; i < kPerUnit; i++)
        if (index + i < job.count)
            dst[i] = i < count ? src[i] : T(0);
}

template <typename List>
struct Pack {
    const List &job;

    __device__ void chunk(const Piece &piece, uint32_t unit) const
    {
        const char *src = piece.data + static_cast<uint64_t>(unit - piece.first) * kUnit;
        copy_chunk(bucket_at<char>(job, unit), src, src);
    }

    __device__ void unit(const Piece &piece, uint32_t unit, uint32_t count) const
    {
        switch (job.element_size) {
        case 1:
            return pack_unit<uint8_t>(job, piece, unit, count);
        case 2:
            return pack_unit<uint16_t>(job, piece, unit, count);
        case 4:
            return pack_unit<uint32_t>(job, piece, unit, count);
        default:
            return pack_unit<uint64_t>(job, piece, unit, count);
        }
    }
};

template <typename List>
__global__ void __launch_bounds__(kLanes *kWarps) pack_plain(const __grid_constant__ List job)
{
    move_chunk(job, blockIdx.x, Pack<List>{job});
}

// ---------------------------------------------------------------------------------------- weighted

__device__ inline float product(float a, float b)
{
    return __fmul_rn(a, b);
}

__device__ inline double product(double a, double b)
{
    return __dmul_rn(a, b);
}

template <typename Sum>
struct Scale {
    Sum weight;

    template <typename T>
    __device__ void operator()(Sum &out, const T &in) const
    {
        out = product(weight, widen(in));
    }
};

// `Sum` is the bucket's type, `weight` a valid one, 0 if no data counts; `last` is what the
// bucket's last element becomes.
template <typename Sum, typename List>
struct PackWeighted {
    const List &job;
    Sum weight, last;

    static constexpr uint32_t kPerUnit = kUnit / sizeof(Sum);
    static constexpr int kCount = kChunk * kPerUnit;

    template <typename T>
    __device__ void chunk_of(const Piece &piece, uint32_t unit) const
    {
        Sum *dst = bucket_at<Sum>(job, unit);
        const T *src = at<const T>(piece, unit, kPerUnit);
        if (aligned(src, sizeof(T) * kPerUnit))
            move<kCount, kPerUnit>(dst, src, Scale<Sum>{weight});
        else
            move<kCount, 1>(dst, src, Scale<Sum>{weight});
    }

    __device__ void zero_chunk(uint32_t unit) const
    {
        uint4 *dst = bucket_at<uint4>(job, unit);
        for (uint32_t i = threadIdx.x % kLanes; i < kChunk; i += kLanes)
            dst[i] = make_uint4(0, 0, 0, 0);
    }

    __device__ void chunk(const Piece &piece, uint32_t unit) const
    {
        if (weight == Sum(0))
            zero_chunk(unit);
        else if (sizeof(Sum) == sizeof(double))
            chunk_of<Sum>(piece, unit);
        else if (piece.dtype == TRIB_F16)
            chunk_of<F16>(piece, unit);
        else if (piece.dtype == TRIB_BF16)
            chunk_of<Bf16>(piece, unit);
        else
            chunk_of<float>(piece, unit);
    }

    template <typename T>
    __device__ void unit_of(const Piece &piece, uint32_t unit, uint32_t count) const
    {
        Sum *dst = bucket_at<Sum>(job, unit);
        const T *src = at<const T>(piece, unit, kPerUnit);
        const uint64_t index = (job.base + unit) * kPerUnit;
#pragma unroll
        for (uint32_t i = 0; i < kPerUnit; i++) {
            Sum value = 0;
            if (i < count && weight != Sum(0))
                Scale<Sum>{weight}(value, src[i]);
            if (index + i == job.count - 1)
                value = last;
            if (index + i < job.count)
                dst[i] = value;
        }
    }

    __device__ void unit(const Piece &piece, uint32_t unit, uint32_t count) const
    {
        if (sizeof(Sum) == sizeof(double))
            unit_of<Sum>(piece, unit, count);
        else if (piece.dtype == TRIB_F16)
            unit_of<F16>(piece, unit, count);
        else if (piece.dtype == TRIB_BF16)
            unit_of<Bf16>(piece, unit, count);
        else
            unit_of<float>(piece, unit, count);
    }
};

template <typename Sum, typename List>
__global__ void __launch_bounds__(kLanes *kWarps) pack_weighted(const __grid_constant__ List job)
{
    const float weight = job.device_weight != nullptr ? *job.device_weight : job.weight;
    const bool valid = weight >= 0 && isfinite(weight);
    const Sum last = valid ? weight : nanf("");
    move_chunk(job, blockIdx.x, PackWeighted<Sum, List>{job, valid ? Sum(weight) : Sum(0), last});
}

} // namespace

trib_status tri_cuda_pack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                          const struct tri_weight *weight, trib_stream stream)
{
    const Request request = {slices, n, bucket, weight, nullptr};
    if (weight == nullptr)
        return launch<pack_plain<Job<kSmall>>, pack_plain<Job<kLarge>>>(request, stream);
    return dispatch_sum(bucket->dtype, [&](auto sum) {
        using Sum = decltype(sum);
        return launch<pack_weighted<Sum, Job<kSmall>>, pack_weighted<Sum, Job<kLarge>>>(request,
                                                                                        stream);
    });
}

trib_status tri_cuda_pack_kept(const void *table, size_t n, const struct tri_bucket *bucket,
                               const struct tri_weight *weight, trib_stream stream)
{
    const Request request = {nullptr, n, bucket, weight, nullptr};
    if (weight == nullptr)
        return launch_kept<pack_plain<Kept>>(request, table, stream);
    return dispatch_sum(bucket->dtype, [&](auto sum) {
        return launch_kept<pack_weighted<decltype(sum), Kept>>(request, table, stream);
    });
}
