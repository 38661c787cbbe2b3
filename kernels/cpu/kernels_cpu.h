/* The cpu table: the plain meaning of every kernel, and the arithmetic of the host backend. */
#ifndef TRI_KERNELS_CPU_H
#define TRI_KERNELS_CPU_H

#include "kernels/kernels.h"

extern const struct tri_kernels tri_kernels_cpu;

/* Its members, in the files of the same name. Contracts: kernels.h. */
trib_status tri_cpu_pack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                         const struct tri_weight *weight, trib_stream stream);
trib_status tri_cpu_commit(const struct tri_commit *commit, trib_stream stream);
trib_status tri_cpu_forget(const struct tri_revocable *calls, size_t n, trib_stream stream);
trib_status tri_cpu_unpack(const struct tri_slice *slices, size_t n,
                           const struct tri_bucket *bucket, int weighted, const uint32_t *decision,
                           trib_stream stream);
trib_status tri_cpu_reduce(void *const *dst, size_t ndst, const struct tri_reduction *reduction,
                           size_t count, trib_stream stream);
trib_status tri_cpu_scale(void *dst, const void *src, size_t count, trib_dtype dtype,
                          const struct tri_factor *factor, trib_stream stream);
trib_status tri_cpu_push(const struct tri_push *call, trib_stream stream);
trib_status tri_cpu_pull(const struct tri_pull *call, trib_stream stream);

#endif
