/* trib_kernels: how long the kernels take by themselves, beside copies of as many bytes. */
#ifndef TRI_BENCHES_KERNELS_H
#define TRI_BENCHES_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "benches/arguments.h"

struct kernels_options {
    size_t counts[BENCH_MAX_LIST];
    double densities[BENCH_MAX_LIST];
    int ncounts, ndensities;
    double momentum; /* of rows beside those without; 0: no such rows */
};

/* The cpu table's select, with everything it does to the residual, on one thread and on two. */
void kernels_time_cpu(const struct kernels_options *options);

/* The cuda table, on device 0: pack and unpack of lists, then the sparse kernels. */
void kernels_time_cuda(const struct kernels_options *options);

/* A pseudo-random normal number. */
double kernels_normal(void);

#endif
