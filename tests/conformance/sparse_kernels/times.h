/* How long sparse kernels take, beside copies of as many bytes. Nothing here passes or fails. */
#ifndef TRI_TESTS_CONFORMANCE_SPARSE_KERNELS_TIMES_H
#define TRI_TESTS_CONFORMANCE_SPARSE_KERNELS_TIMES_H

#include "tests/conformance/kernels/kernels.h"

enum { TIMES_RUNS = 30, TIMES_WARM_UP = 8 };

/* Sort the times of TIMES_RUNS runs. */
void times_sort(double *times);

/* One thread and two of the cpu table. */
void sparse_kernels_cpu_times(const struct tri_sparse_kernels *kernels);
/* The cuda table, on its stream. */
void sparse_kernels_cuda_times(const struct kernels_place *place);

#endif
