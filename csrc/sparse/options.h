/* Reads trib_sparse_options: checks them, and fills in the defaults. */
#ifndef TRI_SPARSE_OPTIONS_H
#define TRI_SPARSE_OPTIONS_H

#include "csrc/core/communicator.h"
#include "csrc/sparse/algorithm.h"

struct tri_sparse_settings {
    struct tri_sparse_params params;
    const struct tri_algorithm *algorithm; /* NULL: auto */
    uint32_t flags, norm_every;
};

/* Check that the communicator can have states; the same on all ranks. Here and below details name
 * the caller `operation`. */
trib_status tri_sparse_check_comm(const struct trib_comm *comm, int operation);

/* Calls tri_sparse_check_comm, too. */
trib_status tri_sparse_settings_read(struct tri_sparse_settings *out, const struct trib_comm *comm,
                                     int operation, size_t count, trib_dtype dtype,
                                     const trib_sparse_options *options);

/* k of `count` elements at this density, as in trib_sparse_options. */
trib_status tri_sparse_density(uint32_t *out, const struct trib_comm *comm, int operation,
                               size_t count, double density);

#endif
