// pack: many tensors into one bucket, plain or times this rank's weight.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/cuda/pack_weighted.cuh"

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

template <typename Sum, typename List>
__global__ void __launch_bounds__(kWarp *kWarps, kBlocks)
    pack_weighted(const __grid_constant__ List job)
{
    const Weight<Sum> weight = weight_of<Sum>(job.device_weight, job.weight, job.count);
    move_chunk(job, blockIdx.x, PackWeighted<Sum, List>{{}, job, weight});
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
