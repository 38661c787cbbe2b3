// The header of a choice: the part of its first launch, or a launch before it.
#pragma once

#include "kernels/cuda/sparse.cuh"

namespace {

// By one thread. What the choice finds that is not finite it adds.
__device__ inline void sign_header(const tri_signing &signing)
{
    signing.header->signature = signing.signature;
    signing.header->calls++;
    signing.header->nonfinite = 0;
}

// Where that is added; nullptr: nowhere.
inline uint32_t *nonfinite_of(const tri_signing &signing)
{
    return signing.header == nullptr ? nullptr : &signing.header->nonfinite;
}

} // namespace

// For choices whose blocks begin at once.
trib_status tri_cuda_sign(tri_signing signing, trib_stream stream);
