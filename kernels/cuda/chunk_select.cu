// chunk_select for f32 and f64, and where acc is there already.
#include "kernels/cuda/chunk_select.cuh"

trib_status tri_cuda_sparse_chunk_select(const struct tri_accumulator *acc, bool accumulate,
                                         bool clear, const struct tri_chunks *out,
                                         uint32_t *nonfinite, void *scratch, trib_stream stream)
{
    (void)scratch;
    if (!accumulate && acc->dtype == TRIB_F64)
        return select_chunks<double, None>(*acc, false, *out, nonfinite, stream);
    if (!accumulate)
        return select_chunks<float, None>(*acc, false, *out, nonfinite, stream);
    if (acc->dtype == TRIB_F64)
        return select_chunks<double, double>(*acc, clear, *out, nonfinite, stream);
    if (acc->gradient_dtype == TRIB_F16 || acc->gradient_dtype == TRIB_BF16)
        return tri_cuda_chunk_select_half(*acc, clear, *out, nonfinite, stream);
    return select_chunks<float, float>(*acc, clear, *out, nonfinite, stream);
}
