/* The cuda table of the sparse kernels. */
#ifndef TRI_CUDA_SPARSE_CUDA_H
#define TRI_CUDA_SPARSE_CUDA_H

#include "kernels/sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct tri_sparse_kernels tri_sparse_kernels_cuda;

/* The scratch of select alone: it is most of what is needed. */
size_t tri_cuda_sparse_select_scratch(size_t count, uint32_t k, trib_dtype dtype);

/* Its members, in the files of the same stem. Contracts: kernels/sparse.h. The current device is
 * the stream's. The only failure is TRIB_ERR_CUDA: a launch was refused, and what had been queued
 * before it stays queued. */
trib_status tri_cuda_sparse_accumulate(const struct tri_accumulator *acc,
                                       struct tri_signing signing, trib_stream stream);
trib_status tri_cuda_sparse_accumulate_clipped(const struct tri_accumulator *acc, double limit,
                                               void *scratch, trib_stream stream);
trib_status tri_cuda_sparse_select(const struct tri_accumulator *acc,
                                   const struct tri_selection *selection,
                                   const struct tri_entries *out, void *scratch,
                                   trib_stream stream);
trib_status tri_cuda_sparse_index_select(const struct tri_accumulator *acc,
                                         const struct tri_entries *entries, trib_stream stream);
trib_status tri_cuda_sparse_gauss(const struct tri_accumulator *acc, double z, void *threshold,
                                  void *scratch, trib_stream stream);
trib_status tri_cuda_sparse_fit(const struct tri_accumulator *acc, const struct tri_fit *fit,
                                const void *start, void *threshold, void *scratch,
                                trib_stream stream);
trib_status tri_cuda_sparse_adjust_threshold(void *kept, const void *threshold, trib_dtype dtype,
                                             const uint32_t *count, const struct tri_fit *fit,
                                             const uint32_t *decision, trib_stream stream);
trib_status tri_cuda_sparse_radix_init(struct tri_cut *cut, uint32_t k, const void *threshold,
                                       trib_dtype dtype, trib_stream stream);
trib_status tri_cuda_sparse_radix_histogram(const struct tri_entries *entries,
                                            const struct tri_cut *cut, int round,
                                            uint32_t *histogram, trib_stream stream);
trib_status tri_cuda_sparse_radix_refine(struct tri_cut *cut, int round, const uint32_t *histogram,
                                         trib_dtype dtype, trib_stream stream);
trib_status tri_cuda_sparse_count_ties(const struct tri_entries *entries, const struct tri_cut *cut,
                                       uint32_t *ties, void *scratch, trib_stream stream);
trib_status tri_cuda_sparse_share_ties(struct tri_cut *cut, const uint32_t *ties, int32_t rank,
                                       trib_stream stream);
trib_status tri_cuda_sparse_radix_partition(const struct tri_entries *entries,
                                            const struct tri_cut *cut,
                                            const struct tri_entries *kept,
                                            const struct tri_entries *dropped, void *scratch,
                                            trib_stream stream);
trib_status tri_cuda_sparse_lower_bound(const struct tri_entries *entries, const uint64_t *bounds,
                                        int32_t n, uint32_t *positions, trib_stream stream);
trib_status tri_cuda_sparse_index_histogram(const struct tri_entries *entries, uint32_t width,
                                            uint32_t *bins, uint32_t nbins, trib_stream stream);
trib_status tri_cuda_sparse_find_starts(const struct tri_entries *entries, size_t count,
                                        trib_stream stream);
trib_status tri_cuda_sparse_merge(const struct tri_merge *merge, const struct tri_entries *out,
                                  void *scratch, trib_stream stream);
trib_status tri_cuda_sparse_merge_dense(const struct tri_merge *merge, const struct tri_result *out,
                                        void *scratch, trib_stream stream);
trib_status tri_cuda_sparse_decide(const struct tri_decide *job, trib_stream stream);
trib_status tri_cuda_sparse_residual_update(const struct tri_accumulator *acc,
                                            const struct tri_entries *entries, enum tri_update how,
                                            const struct tri_entries *among,
                                            const uint32_t *decision, uint32_t *matched,
                                            trib_stream stream);
trib_status tri_cuda_sparse_decay(const struct tri_accumulator *acc, double factor,
                                  const uint32_t *decision, trib_stream stream);
trib_status tri_cuda_sparse_norm(const struct tri_accumulator *acc, double *norm, void *scratch,
                                 trib_stream stream);
trib_status tri_cuda_sparse_residual(const struct tri_accumulator *acc, void *out,
                                     trib_stream stream);
trib_status tri_cuda_sparse_write_entries(const struct tri_entries *entries, uint32_t *index,
                                          uint32_t *count, const struct tri_result *out,
                                          trib_stream stream);
trib_status tri_cuda_sparse_write_dense(const void *sum, trib_dtype dtype, size_t count,
                                        const struct tri_result *out, trib_stream stream);
trib_status tri_cuda_sparse_clear_result(const struct tri_clearing *result,
                                         const uint32_t *decision, trib_stream stream);
trib_status tri_cuda_sparse_record(const struct tri_record *record, trib_stream stream);
trib_status tri_cuda_sparse_chunk_select(const struct tri_accumulator *acc, bool accumulate,
                                         bool clear, const struct tri_chunks *out,
                                         struct tri_signing signing, void *scratch,
                                         trib_stream stream);
trib_status tri_cuda_sparse_chunk_unpack(const struct tri_chunks *chunks, size_t count,
                                         const struct tri_entries *out, void *scratch,
                                         trib_stream stream);
trib_status tri_cuda_sparse_chunk_merge(const struct tri_chunks *ranks, int32_t n, size_t count,
                                        const struct tri_result *out, trib_stream stream);

#ifdef __cplusplus
}
#endif

#endif
