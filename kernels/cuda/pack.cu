// pack: many tensors into one bucket, plain or times this rank's weight.
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/cuda/pack.cuh"

namespace {

// ------------------------------------------------------------------------------------------- plain

template <typename List>
struct Pack {
    const List &job;

    __device__ uint32_t per_unit() const
    {
        return job.per_unit;
    }
    __device__ uint32_t unit_bytes(trib_dtype) const
    {
        return kUnit;
    }

    __device__ void chunk(const Part &part, uint32_t unit) const
    {
        PackOf<uint8_t, List>{job}.chunk(part, unit);
    }

    __device__ void parts(const Part (&part)[kRows], uint32_t begin, uint32_t end) const
    {
        switch (job.per_unit) {
        case 16:
            return PackOf<uint8_t, List>{job}.parts(part, begin, end);
        case 8:
            return PackOf<uint16_t, List>{job}.parts(part, begin, end);
        case 4:
            return PackOf<uint32_t, List>{job}.parts(part, begin, end);
        default:
            return PackOf<uint64_t, List>{job}.parts(part, begin, end);
        }
    }
};

template <typename List>
__global__ void __launch_bounds__(kWarp *kWarps, kBlocks)
    pack_plain(const __grid_constant__ List job)
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

// `Sum` is the bucket's type, `weight` a valid one, 0 if no data counts; `last` is what the
// bucket's last element, at `at`, becomes.
template <typename Sum>
struct Weight {
    Sum weight, last;
    uint64_t at;
};

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
struct PackWeighted {
    const List &job;
    Weight<Sum> weight;

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
        if constexpr (sizeof(Sum) == sizeof(double))
            chunk_of<double>(part, unit);
        else if (part.dtype == TRIB_F16)
            chunk_of<F16>(part, unit);
        else if (part.dtype == TRIB_BF16)
            chunk_of<Bf16>(part, unit);
        else
            chunk_of<float>(part, unit);
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

template <typename Sum, typename List>
__global__ void __launch_bounds__(kWarp *kWarps, kBlocks)
    pack_weighted(const __grid_constant__ List job)
{
    const float weight = job.device_weight != nullptr ? *job.device_weight : job.weight;
    const bool valid = weight >= 0 && isfinite(weight);
    const Weight<Sum> of_rank = {valid ? Sum(weight) : Sum(0), valid ? Sum(weight) : Sum(nanf("")),
                                 job.count - 1};
    move_chunk(job, blockIdx.x, PackWeighted<Sum, List>{job, of_rank});
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
