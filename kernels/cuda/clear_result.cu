// clear_result: the result of a call that is not applied is 0.
#include "kernels/cuda/clear.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

struct ClearJob {
    tri_clearing result;
    const uint32_t *decision;
};

__global__ void __launch_bounds__(kThreads) clear_result(const ClearJob job)
{
    if (*job.decision == 0)
        clear(job.result);
}

} // namespace

trib_status tri_cuda_sparse_clear_result(const struct tri_clearing *result,
                                         const uint32_t *decision, trib_stream stream)
{
    return launch_job<clear_result>(blocks_to_clear(*result), kThreads, ClearJob{*result, decision},
                                    stream);
}
