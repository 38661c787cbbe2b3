/* The cpu table of the sparse kernels. */
#include "kernels/cpu/sparse_cpu.h"
#include "kernels/cpu/top.h"

/* Only select and chunk_select want any. */
static size_t scratch_bytes(size_t count, uint32_t k, size_t entries, trib_dtype dtype)
{
    (void)entries;
    return tri_top_bytes(count, k, dtype);
}

const struct tri_sparse_kernels tri_sparse_kernels_cpu = {
    .scratch_bytes = scratch_bytes,
    .accumulate = tri_cpu_sparse_accumulate,
    .select = tri_cpu_sparse_select,
    .gather = tri_cpu_sparse_gather,
    .gauss = tri_cpu_sparse_gauss,
    .fit = tri_cpu_sparse_fit,
    .nudge = tri_cpu_sparse_nudge,
    .aim = tri_cpu_sparse_aim,
    .digits = tri_cpu_sparse_digits,
    .narrow = tri_cpu_sparse_narrow,
    .count_ties = tri_cpu_sparse_count_ties,
    .share_ties = tri_cpu_sparse_share_ties,
    .take = tri_cpu_sparse_take,
    .split = tri_cpu_sparse_split,
    .coarse = tri_cpu_sparse_coarse,
    .merge = tri_cpu_sparse_merge,
    .merge_dense = tri_cpu_sparse_merge_dense,
    .deliver = tri_cpu_sparse_deliver,
    .deliver_dense = tri_cpu_sparse_deliver_dense,
    .commit = tri_cpu_sparse_commit,
    .settle = tri_cpu_sparse_settle,
    .decay = tri_cpu_sparse_decay,
    .norm = tri_cpu_sparse_norm,
    .residual = tri_cpu_sparse_residual,
    .withdraw = tri_cpu_sparse_withdraw,
    .record = tri_cpu_sparse_record,
    .chunk_select = tri_cpu_sparse_chunk_select,
    .chunk_unpack = tri_cpu_sparse_chunk_unpack,
    .chunk_merge = tri_cpu_sparse_chunk_merge,
};
