/* The cpu table of the sparse kernels. */
#include "kernels/cpu/sparse_cpu.h"

static size_t scratch_bytes(size_t count, uint32_t k, size_t entries, trib_dtype dtype)
{
    (void)entries;
    return tri_cpu_sparse_select_scratch(count, k, dtype);
}

const struct tri_sparse_kernels tri_sparse_kernels_cpu = {
    .scratch_bytes = scratch_bytes,
    .accumulate = tri_cpu_sparse_accumulate,
    .accumulate_clipped = tri_cpu_sparse_accumulate_clipped,
    .select = tri_cpu_sparse_select,
    .index_select = tri_cpu_sparse_index_select,
    .gauss = tri_cpu_sparse_gauss,
    .fit = tri_cpu_sparse_fit,
    .adjust_threshold = tri_cpu_sparse_adjust_threshold,
    .radix_init = tri_cpu_sparse_radix_init,
    .radix_histogram = tri_cpu_sparse_radix_histogram,
    .radix_refine = tri_cpu_sparse_radix_refine,
    .count_ties = tri_cpu_sparse_count_ties,
    .share_ties = tri_cpu_sparse_share_ties,
    .radix_partition = tri_cpu_sparse_radix_partition,
    .lower_bound = tri_cpu_sparse_lower_bound,
    .index_histogram = tri_cpu_sparse_index_histogram,
    .find_starts = tri_cpu_sparse_find_starts,
    .merge = tri_cpu_sparse_merge,
    .merge_dense = tri_cpu_sparse_merge_dense,
    .write_entries = tri_cpu_sparse_write_entries,
    .write_dense = tri_cpu_sparse_write_dense,
    .decide = tri_cpu_sparse_decide,
    .residual_update = tri_cpu_sparse_residual_update,
    .decay = tri_cpu_sparse_decay,
    .norm = tri_cpu_sparse_norm,
    .residual = tri_cpu_sparse_residual,
    .clear_result = tri_cpu_sparse_clear_result,
    .record = tri_cpu_sparse_record,
    .chunk_select = tri_cpu_sparse_chunk_select,
    .chunk_unpack = tri_cpu_sparse_chunk_unpack,
    .chunk_merge = tri_cpu_sparse_chunk_merge,
};
