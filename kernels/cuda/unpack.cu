// unpack: one bucket back into many tensors, plain or divided by the sum of the weights.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"

namespace {

// ------------------------------------------------------------------------------------------- plain

// The `count` elements of one unit that belong to a tensor.
template <typename T, typename List>
__device__ void unpack_unit(const List &job, const Piece &piece, uint32_t unit, uint32_t count)
{
    constexpr uint32_t kPerUnit = kUnit / sizeof(T);
    T *dst = at<T>(piece, unit, kPerUnit);
    const T *src = bucket_at<const T>(job, unit);
    if (count == kPerUnit && aligned(dst, kUnit)) {
        *reinterpret_cast<uint4 *>(dst) = *reinterpret_cast<const uint4 *>(src);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kPerUnit; i++)
        if (i < count)
            dst[i] = src[i];
}

template <typename List>
struct Unpack {
    const List &job;

    __device__ void chunk(const Piece &piece, uint32_t unit) const
    {
        char *dst = piece.data + static_cast<uint64_t>(unit - piece.first) * kUnit;
        copy_chunk(dst, bucket_at<const char>(job, unit), dst);
    }

    __device__ void unit(const Piece &piece, uint32_t unit, uint32_t count) const
    {
        switch (job.element_size) {
        case 1:
            return unpack_unit<uint8_t>(job, piece, unit, count);
        case 2:
            return unpack_unit<uint16_t>(job, piece, unit, count);
        case 4:
            return unpack_unit<uint32_t>(job, piece, unit, count);
        default:
            return unpack_unit<uint64_t>(job, piece, unit, count);
        }
    }
};

// From the end of the bucket to its beginning: what the collective wrote last is still in the
// cache.
__device__ inline uint32_t block_from_end()
{
    return gridDim.x - 1 - blockIdx.x;
}

template <typename List>
__global__ void __launch_bounds__(kLanes *kWarps) unpack_plain(const __grid_constant__ List job)
{
    if (*job.decision != 0)
        move_chunk(job, block_from_end(), Unpack<List>{job});
}

// ---------------------------------------------------------------------------------------- weighted

__device__ inline float quotient(float a, float b)
{
    return __fdiv_rn(a, b);
}

__device__ inline double quotient(double a, double b)
{
    return __ddiv_rn(a, b);
}

template <typename Sum>
struct Divide {
    Sum total;

    template <typename T>
    __device__ void operator()(T &out, const Sum &in) const
    {
        narrow(out, quotient(in, total));
    }
};

template <typename Sum, typename List>
struct UnpackWeighted {
    const List &job;
    Sum total;

    static constexpr uint32_t kPerUnit = kUnit / sizeof(Sum);
    static constexpr int kCount = kChunk * kPerUnit;

    template <typename T>
    __device__ void chunk_of(const Piece &piece, uint32_t unit) const
    {
        T *dst = at<T>(piece, unit, kPerUnit);
        const Sum *src = bucket_at<const Sum>(job, unit);
        if (aligned(dst, sizeof(T) * kPerUnit))
            move<kCount, kPerUnit>(dst, src, Divide<Sum>{total});
        else
            move<kCount, 1>(dst, src, Divide<Sum>{total});
    }

    __device__ void chunk(const Piece &piece, uint32_t unit) const
    {
        if constexpr (sizeof(Sum) == sizeof(double))
            chunk_of<double>(piece, unit);
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
        T *dst = at<T>(piece, unit, kPerUnit);
        const Sum *src = bucket_at<const Sum>(job, unit);
#pragma unroll
        for (uint32_t i = 0; i < kPerUnit; i++)
            if (i < count)
                Divide<Sum>{total}(dst[i], src[i]);
    }

    __device__ void unit(const Piece &piece, uint32_t unit, uint32_t count) const
    {
        if constexpr (sizeof(Sum) == sizeof(double))
            unit_of<double>(piece, unit, count);
        else if (piece.dtype == TRIB_F16)
            unit_of<F16>(piece, unit, count);
        else if (piece.dtype == TRIB_BF16)
            unit_of<Bf16>(piece, unit, count);
        else
            unit_of<float>(piece, unit, count);
    }
};

template <typename Sum, typename List>
__global__ void __launch_bounds__(kLanes *kWarps) unpack_weighted(const __grid_constant__ List job)
{
    if (*job.decision == 0)
        return;
    const Sum total = reinterpret_cast<const Sum *>(job.bucket)[job.count - 1];
    move_chunk(job, block_from_end(), UnpackWeighted<Sum, List>{job, total});
}

} // namespace

trib_status tri_cuda_unpack(const struct tri_slice *slices, size_t n,
                            const struct tri_bucket *bucket, int weighted, const uint32_t *decision,
                            trib_stream stream)
{
    const Request request = {slices, n, bucket, nullptr, decision};
    if (!weighted)
        return launch<unpack_plain<Job<kSmall>>, unpack_plain<Job<kLarge>>>(request, stream);
    return dispatch_sum(bucket->dtype, [&](auto sum) {
        using Sum = decltype(sum);
        return launch<unpack_weighted<Sum, Job<kSmall>>, unpack_weighted<Sum, Job<kLarge>>>(request,
                                                                                            stream);
    });
}

trib_status tri_cuda_unpack_kept(const void *table, size_t n, const struct tri_bucket *bucket,
                                 int weighted, const uint32_t *decision, trib_stream stream)
{
    const Request request = {nullptr, n, bucket, nullptr, decision};
    if (!weighted)
        return launch_kept<unpack_plain<Kept>>(request, table, stream);
    return dispatch_sum(bucket->dtype, [&](auto sum) {
        return launch_kept<unpack_weighted<decltype(sum), Kept>>(request, table, stream);
    });
}
