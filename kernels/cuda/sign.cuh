// What a choice writes into its header (tri_signing): in its first launch, or in one before it.
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

// Queues a launch that signs; nothing if there is no header. For a choice whose first launch adds to
// nonfinite.
trib_status tri_cuda_sign(tri_signing signing, trib_stream stream);
