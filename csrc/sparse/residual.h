/* A state's residual, copied for the caller. */
#ifndef TRI_SPARSE_RESIDUAL_H
#define TRI_SPARSE_RESIDUAL_H

#include "csrc/sparse/state.h"

/* The function of the header of the same name; `sparse` is not NULL. */
trib_status tri_sparse_residual(struct trib_sparse *sparse, void *out, trib_stream stream);

#endif
