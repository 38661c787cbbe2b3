// chunk_select for f32 and f64, and where acc is there already.
#include "kernels/cuda/chunk_select.cuh"

trib_status tri_cuda_sparse_chunk_select(const struct tri_accumulator *acc, bool accumulate,
                                         bool clear, const struct tri_chunks *out,
                                         struct tri_signing signing, void *scratch,
                                         trib_stream stream)
{
    (void)scratch;
    return dispatch_accumulator(*acc, accumulate, [&](auto sum, auto gradient) {
        using G = decltype(gradient);
        if constexpr (sizeof(G) == sizeof(F16))
            return tri_cuda_chunk_select_half(*acc, clear, *out, signing, stream);
        else
            return select_chunks<decltype(sum), G>(*acc, clear && accumulate, *out, signing,
                                                   stream);
    });
}
