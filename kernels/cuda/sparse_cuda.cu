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
    scratch_bytes,
    tri_cuda_sparse_accumulate,
    tri_cuda_sparse_accumulate_clipped,
    tri_cuda_sparse_select,
    tri_cuda_sparse_index_select,
    tri_cuda_sparse_gauss,
    tri_cuda_sparse_fit,
    tri_cuda_sparse_adjust_threshold,
    tri_cuda_sparse_radix_init,
    tri_cuda_sparse_radix_histogram,
    tri_cuda_sparse_radix_refine,
    tri_cuda_sparse_count_ties,
    tri_cuda_sparse_share_ties,
    tri_cuda_sparse_radix_partition,
    tri_cuda_sparse_lower_bound,
    tri_cuda_sparse_index_histogram,
    tri_cuda_sparse_find_starts,
    tri_cuda_sparse_merge,
    tri_cuda_sparse_merge_dense,
    tri_cuda_sparse_write_entries,
    tri_cuda_sparse_write_dense,
    tri_cuda_sparse_decide,
    tri_cuda_sparse_residual_update,
    tri_cuda_sparse_decay,
    tri_cuda_sparse_norm,
    tri_cuda_sparse_residual,
    tri_cuda_sparse_clear_result,
    tri_cuda_sparse_record,
    tri_cuda_sparse_chunk_select,
    tri_cuda_sparse_chunk_unpack,
    tri_cuda_sparse_chunk_merge,
};
