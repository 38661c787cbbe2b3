// gauss: a threshold from mean and deviation. norm: of the residual.
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/sums.cuh"

namespace {

template <typename T>
struct Threshold {
    T *out;
    double z, count;

    __device__ void operator()(const Sums &sums) const
    {
        const double mean = __ddiv_rn(sums.plain, count);
        const double variance = __dsub_rn(__ddiv_rn(sums.squares, count), __dmul_rn(mean, mean));
        const double above = __dmul_rn(z, __dsqrt_rn(at_least_0(variance)));
        *out = count > 0 ? static_cast<T>(at_least_0(__dadd_rn(mean, above))) : T(0);
    }
};

} // namespace

trib_status tri_cuda_sparse_gauss(const struct tri_accumulator *acc, double z, void *threshold,
                                  void *scratch, trib_stream stream)
{
    const double count = static_cast<double>(acc->count);
    return dispatch_sum(acc->dtype, [&](auto sum) {
        using T = decltype(sum);
        return launch_sums<T, kSum>(acc, Threshold<T>{static_cast<T *>(threshold), z, count},
                                    scratch, stream);
    });
}

trib_status tri_cuda_sparse_norm(const struct tri_accumulator *acc, double *norm, void *scratch,
                                 trib_stream stream)
{
    return dispatch_sum(acc->dtype, [&](auto sum) {
        return launch_sums<decltype(sum), kResidual>(acc, Norm{norm}, scratch, stream);
    });
}
