/* The kernels of the CPU, each behind a place to inject at. */
#include "kernels/cpu/kernels_cpu.h"
#include "tests/injection/places.h"

static const struct tri_kernels *const real_kernels = &tri_kernels_cpu;
#define real_sparse (real_kernels->sparse)

#define KERNEL(member, parameters, arguments)                                                      \
    FAILS(kernels, member, TRIB_ERR_CUDA, parameters, arguments)
#define SPARSE(member, parameters, arguments)                                                      \
    FAILS(sparse, member, TRIB_ERR_CUDA, parameters, arguments)

/* clang-format off */
KERNEL(pack,
       (const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket, const struct tri_weight *weight, trib_stream stream),
       (slices, n, bucket, weight, stream))
KERNEL(commit,
       (const struct tri_commit *commit, trib_stream stream),
       (commit, stream))
KERNEL(forget,
       (const struct tri_revocable *calls, size_t n, trib_stream stream),
       (calls, n, stream))
KERNEL(unpack,
       (const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket, int weighted, const uint32_t *decision, trib_stream stream),
       (slices, n, bucket, weighted, decision, stream))
SPARSE(accumulate,
       (const struct tri_accumulator *acc, struct tri_signing signing, trib_stream stream),
       (acc, signing, stream))
SPARSE(accumulate_clipped,
       (const struct tri_accumulator *acc, double limit, void *scratch, trib_stream stream),
       (acc, limit, scratch, stream))
SPARSE(select,
       (const struct tri_accumulator *acc, const struct tri_selection *selection, const struct tri_entries *out, void *scratch, trib_stream stream),
       (acc, selection, out, scratch, stream))
SPARSE(index_select,
       (const struct tri_accumulator *acc, const struct tri_entries *entries, trib_stream stream),
       (acc, entries, stream))
SPARSE(gauss,
       (const struct tri_accumulator *acc, double z, void *threshold, void *scratch, trib_stream stream),
       (acc, z, threshold, scratch, stream))
SPARSE(fit,
       (const struct tri_accumulator *acc, const struct tri_fit *fit, const void *start, void *threshold, void *scratch, trib_stream stream),
       (acc, fit, start, threshold, scratch, stream))
SPARSE(adjust_threshold,
       (void *kept, const void *threshold, trib_dtype dtype, const uint32_t *count, const struct tri_fit *fit, const uint32_t *decision, trib_stream stream),
       (kept, threshold, dtype, count, fit, decision, stream))
SPARSE(radix_init,
       (struct tri_cut *cut, uint32_t k, const void *threshold, trib_dtype dtype, trib_stream stream),
       (cut, k, threshold, dtype, stream))
SPARSE(radix_histogram,
       (const struct tri_entries *entries, const struct tri_cut *cut, int round, uint32_t *histogram, trib_stream stream),
       (entries, cut, round, histogram, stream))
SPARSE(radix_refine,
       (struct tri_cut *cut, int round, const uint32_t *histogram, trib_dtype dtype, trib_stream stream),
       (cut, round, histogram, dtype, stream))
SPARSE(count_ties,
       (const struct tri_entries *entries, const struct tri_cut *cut, uint32_t *ties, void *scratch, trib_stream stream),
       (entries, cut, ties, scratch, stream))
SPARSE(share_ties,
       (struct tri_cut *cut, const uint32_t *ties, int32_t rank, trib_stream stream),
       (cut, ties, rank, stream))
SPARSE(radix_partition,
       (const struct tri_entries *entries, const struct tri_cut *cut, const struct tri_entries *kept, const struct tri_entries *dropped, void *scratch, trib_stream stream),
       (entries, cut, kept, dropped, scratch, stream))
SPARSE(lower_bound,
       (const struct tri_entries *entries, const uint64_t *bounds, int32_t n, uint32_t *positions, trib_stream stream),
       (entries, bounds, n, positions, stream))
SPARSE(index_histogram,
       (const struct tri_entries *entries, uint32_t width, uint32_t *bins, uint32_t nbins, trib_stream stream),
       (entries, width, bins, nbins, stream))
SPARSE(find_starts,
       (const struct tri_entries *entries, size_t count, trib_stream stream),
       (entries, count, stream))
SPARSE(merge,
       (const struct tri_merge *merge, const struct tri_entries *out, void *scratch, trib_stream stream),
       (merge, out, scratch, stream))
SPARSE(merge_dense,
       (const struct tri_merge *merge, const struct tri_result *out, void *scratch, trib_stream stream),
       (merge, out, scratch, stream))
SPARSE(write_entries,
       (const struct tri_entries *entries, uint32_t *index, uint32_t *count, const struct tri_result *out, trib_stream stream),
       (entries, index, count, out, stream))
SPARSE(write_dense,
       (const void *sum, trib_dtype dtype, size_t count, const struct tri_result *out, trib_stream stream),
       (sum, dtype, count, out, stream))
SPARSE(decide,
       (const struct tri_decide *decide, trib_stream stream),
       (decide, stream))
SPARSE(residual_update,
       (const struct tri_accumulator *acc, const struct tri_entries *entries, enum tri_update update, const struct tri_entries *among, const uint32_t *decision, uint32_t *matched, trib_stream stream),
       (acc, entries, update, among, decision, matched, stream))
SPARSE(decay,
       (const struct tri_accumulator *acc, double factor, const uint32_t *decision, trib_stream stream),
       (acc, factor, decision, stream))
SPARSE(norm,
       (const struct tri_accumulator *acc, double *norm, void *scratch, trib_stream stream),
       (acc, norm, scratch, stream))
SPARSE(residual,
       (const struct tri_accumulator *acc, void *out, trib_stream stream),
       (acc, out, stream))
SPARSE(clear_result,
       (const struct tri_clearing *result, const uint32_t *decision, trib_stream stream),
       (result, decision, stream))
SPARSE(record,
       (const struct tri_record *record, trib_stream stream),
       (record, stream))
SPARSE(chunk_select,
       (const struct tri_accumulator *acc, bool accumulate, bool clear, const struct tri_chunks *out, struct tri_signing signing, void *scratch, trib_stream stream),
       (acc, accumulate, clear, out, signing, scratch, stream))
SPARSE(chunk_unpack,
       (const struct tri_chunks *chunks, size_t count, const struct tri_entries *out, void *scratch, trib_stream stream),
       (chunks, count, out, scratch, stream))
SPARSE(chunk_merge,
       (const struct tri_chunks *ranks, int32_t n, size_t count, const struct tri_result *out, trib_stream stream),
       (ranks, n, count, out, stream))
/* clang-format on */

/* reduce and scale stay as they are: the host backend calls its own. A member that is not named
 * here has no place. */
const struct tri_kernels *injection_kernels(void)
{
    static struct tri_sparse_kernels sparse;
    static struct tri_kernels kernels;
    sparse = *real_sparse;
#define PUT(member) sparse.member = sparse_##member
    PUT(accumulate), PUT(accumulate_clipped), PUT(select), PUT(index_select), PUT(gauss), PUT(fit),
        PUT(adjust_threshold);
    PUT(radix_init), PUT(radix_histogram), PUT(radix_refine), PUT(count_ties), PUT(share_ties);
    PUT(radix_partition), PUT(lower_bound), PUT(index_histogram), PUT(find_starts);
    PUT(merge), PUT(merge_dense);
    PUT(write_entries), PUT(write_dense), PUT(decide), PUT(residual_update), PUT(decay);
    PUT(norm), PUT(residual), PUT(clear_result), PUT(record);
    PUT(chunk_select), PUT(chunk_unpack), PUT(chunk_merge);
#undef PUT
    kernels = *real_kernels;
    kernels.pack = kernels_pack;
    kernels.commit = kernels_commit;
    kernels.forget = kernels_forget;
    kernels.unpack = kernels_unpack;
    kernels.sparse = &sparse;
    return &kernels;
}
