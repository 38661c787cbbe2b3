/* The table of kernels for programs that run the whole library over the fake: tri_kernels_cuda, of
 * kernels/cuda/kernels_cuda.h, over the CPU's. */
#ifndef TRI_TESTS_NCCL_FAKE_KERNELS_H
#define TRI_TESTS_NCCL_FAKE_KERNELS_H

#include "kernels/kernels.h"

extern const struct tri_kernels tri_kernels_cpu;

/* Tables of slices, since the program began: how many were written, and how often one was read. */
struct fake_tables {
    int written, read;
};
struct fake_tables fake_tables(void);
/* The slices of a table, which a kernel on that stream reads; the caller frees them. */
struct tri_slice *fake_slices_in(const void *table, size_t n, const struct tri_bucket *bucket,
                                 trib_stream stream);

#endif
