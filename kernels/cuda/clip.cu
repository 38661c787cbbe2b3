// accumulate_clipped: acc = factor * gradient + decay * residual. The norm of the gradient, then the
// factor, by which one pass makes acc.
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/stream.cuh"
#include "kernels/cuda/sums.cuh"

namespace {

constexpr uint32_t kBlocksEach = 8; // of a multiprocessor
// Where in scratch the factor lies: behind the partial sums.
constexpr size_t kFactorAt = kSums * sizeof(Sums);
static_assert(kFactorAt + sizeof(double) <= kEntriesScratch, "the factor exceeds the scratch");

struct Factor {
    double *out;
    double limit;

    __device__ void operator()(const Sums &sums) const
    {
        const double norm = __dsqrt_rn(sums.squares);
        if (!finite(norm))
            *out = __dsub_rn(norm, norm); // NaN
        else
            *out = norm <= limit ? 1 : __ddiv_rn(limit, norm);
    }
};

struct Clipped {
    tri_accumulator acc;
    const double *factor;
};

template <typename T, typename G>
__global__ void __launch_bounds__(kThreads) add_clipped(const Clipped job)
{
    const Range<T, G> range = range_of<T, G>(job.acc, 0, job.acc.count, false);
    const T factor = static_cast<T>(*job.factor);
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * kThreads;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < range.end;
         i += stride) {
        const T clipped = product(widen(range.gradient[i]), factor);
        range.sum[i] = accumulated(clipped, range.residual[i], range.decay);
    }
}

template <typename T, typename G>
trib_status run(const tri_accumulator *acc, double limit, void *scratch, trib_stream stream)
{
    double *factor = reinterpret_cast<double *>(static_cast<char *>(scratch) + kFactorAt);
    const uint32_t blocks = blocks_for(acc->count, kThreads, kBlocksEach * multiprocessors());
    const trib_status status =
        launch_sums<G, kGradient>(acc, Factor{factor, limit}, scratch, stream);
    if (status != TRIB_OK)
        return status;
    return launch_job<add_clipped<T, G>>(blocks, kThreads, Clipped{*acc, factor}, stream);
}

} // namespace

trib_status tri_cuda_sparse_accumulate_clipped(const struct tri_accumulator *acc, double limit,
                                               void *scratch, trib_stream stream)
{
    if (acc->count == 0)
        return TRIB_OK;
    return dispatch_float(acc->gradient_dtype, [&](auto gradient) {
        using G = decltype(gradient);
        return run<Sum<G>, G>(acc, limit, scratch, stream);
    });
}
