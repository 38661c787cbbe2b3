/* Choosing by the Gaussian estimate: what gaussiank and gaussiankconcat share. */
#ifndef TRI_SPARSE_PUBLISHED_GAUSSIAN_H
#define TRI_SPARSE_PUBLISHED_GAUSSIAN_H

#include "csrc/sparse/published/counted.h"

struct tri_gaussian {
    struct tri_counted counted;
    void *estimate; /* of acc's type, on the device */
    struct tri_idle idle;
};

void tri_gaussian_lay_out(struct tri_gaussian *gaussian, struct tri_arena *arena,
                          const struct tri_sparse_params *params);

/* acc is made; what lies above the estimate, once it has been moved, is chosen, and not cleared
 * (the k largest if nothing has for TRI_IDLE_CALLS calls); the numbers of all ranks are in
 * counted.counts. Waits for the stream. */
trib_status tri_gaussian_choose(struct tri_run *run, struct tri_gaussian *gaussian);

/* For struct tri_algorithm. */
struct tri_persistent tri_gaussian_persistent(struct tri_gaussian *gaussian);
bool tri_gaussian_valid(const void *device, const void *host,
                        const struct tri_sparse_params *params);

/* x with Phi(x) = p, Phi the distribution function of the normal distribution; 0 < p < 1. */
double tri_gaussian_quantile(double p);

#endif
