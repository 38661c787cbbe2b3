/* The cuda table: kernels queued on CUDA streams. It has no reduce: NCCL reduces. */
#ifndef TRI_KERNELS_CUDA_H
#define TRI_KERNELS_CUDA_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct tri_kernels tri_kernels_cuda;

/* Its members, in the files of the same name. Contracts: kernels.h. The current device is the
 * stream's. The only failure is TRIB_ERR_CUDA: a launch was refused, and what had been queued
 * before it stays queued. */
trib_status tri_cuda_pack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                          const struct tri_weight *weight, trib_stream stream);
trib_status tri_cuda_commit(const struct tri_commit *commit, trib_stream stream);
trib_status tri_cuda_forget(const struct tri_revocable *calls, size_t n, trib_stream stream);
trib_status tri_cuda_unpack(const struct tri_slice *slices, size_t n,
                            const struct tri_bucket *bucket, int weighted, const uint32_t *decision,
                            trib_stream stream);
trib_status tri_cuda_keep(void *table, const struct tri_slice *slices, size_t n,
                          const struct tri_bucket *bucket, trib_stream stream);
trib_status tri_cuda_pack_kept(const void *table, size_t n, const struct tri_bucket *bucket,
                               const struct tri_weight *weight, trib_stream stream);
trib_status tri_cuda_unpack_kept(const void *table, size_t n, const struct tri_bucket *bucket,
                                 int weighted, const uint32_t *decision, trib_stream stream);
trib_status tri_cuda_scale(void *dst, const void *src, size_t count, trib_dtype dtype,
                           const struct tri_factor *factor, trib_stream stream);
trib_status tri_cuda_push(const struct tri_push *call, trib_stream stream);
trib_status tri_cuda_pull(const struct tri_pull *call, trib_stream stream);

#ifdef __cplusplus
}
#endif

#endif
