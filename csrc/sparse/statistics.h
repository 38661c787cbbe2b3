/* A state's status and statistics, without waiting for its stream. */
#ifndef TRI_SPARSE_STATISTICS_H
#define TRI_SPARSE_STATISTICS_H

#include "csrc/sparse/state.h"

/* The functions of the header of the same name. `out->size` has been checked. */
trib_status tri_sparse_status(struct trib_sparse *sparse);
void tri_sparse_statistics(trib_sparse_statistics *out, const struct trib_sparse *sparse);

#endif
