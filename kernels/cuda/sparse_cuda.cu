// The cuda table of the sparse kernels.
#include "kernels/cuda/sparse_cuda.h"

#include "kernels/cuda/entries.cuh"

namespace {

// The others want a table of an entry a block.
size_t scratch_bytes(size_t count, uint32_t k, size_t, trib_dtype dtype)
{
    const size_t select = tri_cuda_sparse_select_scratch(count, k, dtype);
    return select > kEntriesScratch ? select : kEntriesScratch;
}

} // namespace

const struct tri_sparse_kernels tri_sparse_kernels_cuda = {
    scratch_bytes, tri_cuda_sparse_accumulate, tri_cuda_sparse_select, tri_cuda_sparse_gather,
    tri_cuda_sparse_gauss, tri_cuda_sparse_fit, tri_cuda_sparse_nudge, tri_cuda_sparse_aim,
    tri_cuda_sparse_digits, tri_cuda_sparse_narrow, tri_cuda_sparse_count_ties,
    tri_cuda_sparse_share_ties, tri_cuda_sparse_take, tri_cuda_sparse_split,
    tri_cuda_sparse_coarse, tri_cuda_sparse_merge, tri_cuda_sparse_merge_dense,
    tri_cuda_sparse_deliver, tri_cuda_sparse_deliver_dense, tri_cuda_sparse_commit,
    tri_cuda_sparse_settle, tri_cuda_sparse_decay, tri_cuda_sparse_norm,
    tri_cuda_sparse_residual, tri_cuda_sparse_withdraw, tri_cuda_sparse_record,
    tri_cuda_sparse_chunk_select, tri_cuda_sparse_chunk_unpack, tri_cuda_sparse_chunk_merge,
};
