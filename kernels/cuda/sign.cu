// sign: the header of a choice, in a launch of its own.
#include "kernels/cuda/sign.cuh"

namespace {

__global__ void sign(const tri_signing job)
{
    sign_header(job);
}

} // namespace

trib_status tri_cuda_sign(tri_signing signing, trib_stream stream)
{
    return signing.header == nullptr ? TRIB_OK : launch_job<sign>(1, 1, signing, stream);
}
