// chunk_select for gradients of f16 and bf16.
#include "kernels/cuda/chunk_select.cuh"

trib_status tri_cuda_chunk_select_half(const tri_accumulator &acc, bool clear,
                                       const tri_chunks &out, tri_signing signing,
                                       trib_stream stream)
{
    return acc.gradient_dtype == TRIB_F16
               ? select_chunks<float, F16>(acc, clear, out, signing, stream)
               : select_chunks<float, Bf16>(acc, clear, out, signing, stream);
}
