// unpack: one bucket back into many tensors, plain or divided by the sum of the weights.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/weighted.cuh"

namespace {

// ------------------------------------------------------------------------------------------- parts

// May the tensors be written? Asked once all loads of a warp are on their way: this kernel begins while
// commit runs, and what it has read by then, bucket and table, commit does not write.
__device__ inline bool decided(const uint32_t *decision)
{
    wait_for_previous();
    return *decision != 0;
}

// All units of the lane, on their way; then, if it is decided, store(part, unit) for each. `T`: the
// bucket's.
template <typename T, typename List, typename Store>
__device__ inline void unpack_parts(const List &job, uint32_t begin, uint32_t end,
                                    const Part (&part)[kRows], const Store &store)
{
    constexpr uint32_t kPerUnit = kUnit / sizeof(T);
    const uint64_t whole = job.count / kPerUnit - job.base; // units of the bucket
    uint4 loaded[kRows];
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++)
        loaded[row] = load_if(part[row].count != 0 && unit_of(begin, row) < whole,
                              bucket_at<uint4>(job, unit_of(begin, row)), uint4{0, 0, 0, 0});
    if (end > whole) // and the elements of the one that is not
#pragma unroll
        for (uint32_t row = 0; row < kRows; row++)
            if (unit_of(begin, row) == whole)
                loaded[row] = load_elements<T>(bucket_at<T>(job, whole), part[row].count);
    if (!decided(job.decision))
        return;
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++)
        if (part[row].count != 0)
            store(part[row], loaded[row]);
}

// From the end of the bucket to its beginning: what the collective wrote last is still in the
// cache.
__device__ inline uint32_t block_from_end()
{
    return gridDim.x - 1 - blockIdx.x;
}

// ------------------------------------------------------------------------------------------- plain

template <typename T>
__device__ inline void store_plain(const Part &part, const uint4 &in)
{
    constexpr uint32_t kPerUnit = kUnit / sizeof(T);
    T *dst = reinterpret_cast<T *>(part.data);
    if (part.count == kPerUnit && aligned(dst, kUnit)) {
        *reinterpret_cast<uint4 *>(dst) = in;
        return;
    }
    T element[kPerUnit];
    memcpy(element, &in, sizeof in);
#pragma unroll
    for (uint32_t i = 0; i < kPerUnit; i++)
        if (i < part.count)
            dst[i] = element[i];
}

template <typename List>
struct Unpack {
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
        copy_chunk(part.data, bucket_at<const char>(job, unit), part.data,
                   [&] { return decided(job.decision); });
    }

    template <typename T>
    __device__ void parts_of(const Part (&part)[kRows], uint32_t begin, uint32_t end) const
    {
        unpack_parts<T>(job, begin, end, part,
                        [](const Part &of, const uint4 &in) { store_plain<T>(of, in); });
    }

    __device__ void parts(const Part (&part)[kRows], uint32_t begin, uint32_t end) const
    {
        switch (job.per_unit) {
        case 16:
            return parts_of<uint8_t>(part, begin, end);
        case 8:
            return parts_of<uint16_t>(part, begin, end);
        case 4:
            return parts_of<uint32_t>(part, begin, end);
        default:
            return parts_of<uint64_t>(part, begin, end);
        }
    }
};

template <typename List>
__global__ void __launch_bounds__(kWarp *kWarps, kBlocks)
    unpack_plain(const __grid_constant__ List job)
{
    move_chunk(job, block_from_end(), Unpack<List>{job});
}

// ---------------------------------------------------------------------------------------- weighted

template <typename Sum>
struct Divide {
    Sum total;

    template <typename T>
    __device__ void operator()(T &out, const Sum &in) const
    {
        narrow(out, quotient(in, total));
    }
};

template <typename T, typename Sum>
__device__ inline void store_quotients(const Part &part, const uint4 &in, const Divide<Sum> &op)
{
    constexpr int kPerUnit = kUnit / sizeof(Sum);
    Vector<Sum, kPerUnit> sums;
    memcpy(&sums, &in, sizeof in);
    const Vector<T, kPerUnit> out = each<T>(sums, op);
    T *dst = reinterpret_cast<T *>(part.data);
    if (part.count == kPerUnit && aligned(dst, sizeof out)) {
        *reinterpret_cast<Vector<T, kPerUnit> *>(dst) = out;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kPerUnit; i++)
        if (i < part.count)
            dst[i] = out.element[i];
}

template <typename Sum, typename List>
struct UnpackWeighted : WeightedUnits<Sum> {
    const List &job;
    Divide<Sum> op;

    using WeightedUnits<Sum>::kPerUnit;
    using WeightedUnits<Sum>::kCount;

    template <typename T>
    __device__ void chunk_of(const Part &part, uint32_t unit) const
    {
        T *dst = reinterpret_cast<T *>(part.data);
        const Sum *src = bucket_at<const Sum>(job, unit);
        if (aligned(dst, sizeof(T) * kPerUnit))
            move<kCount, kPerUnit>(dst, src, op, [&] { return decided(job.decision); });
        else
            move<kCount, 1>(dst, src, op, [&] { return decided(job.decision); });
    }

    __device__ void chunk(const Part &part, uint32_t unit) const
    {
        with_tensor_type<Sum>(part.dtype, [&](auto type) { chunk_of<decltype(type)>(part, unit); });
    }

    __device__ void store(const Part &part, const uint4 &in) const
    {
        with_tensor_type<Sum>(part.dtype,
                              [&](auto type) { store_quotients<decltype(type)>(part, in, op); });
    }

    __device__ void parts(const Part (&part)[kRows], uint32_t begin, uint32_t end) const
    {
        unpack_parts<Sum>(job, begin, end, part,
                          [&](const Part &of, const uint4 &in) { store(of, in); });
    }
};

template <typename Sum, typename List>
__global__ void __launch_bounds__(kWarp *kWarps, kBlocks)
    unpack_weighted(const __grid_constant__ List job)
{
    const Sum total = reinterpret_cast<const Sum *>(job.bucket)[job.count - 1];
    move_chunk(job, block_from_end(), UnpackWeighted<Sum, List>{{}, job, {total}});
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
