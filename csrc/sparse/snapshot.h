/* Export, import and reset of a state's residual, thresholds and schedule. */
#ifndef TRI_SPARSE_SNAPSHOT_H
#define TRI_SPARSE_SNAPSHOT_H

#include "csrc/sparse/state.h"

/* The functions of the header of the same name; pointers that must not be NULL are not NULL. */
uint64_t tri_sparse_export_bytes(const struct trib_sparse *sparse);
trib_status tri_sparse_export(struct trib_sparse *sparse, void *out, size_t bytes,
                              trib_stream stream);
trib_status tri_sparse_import(struct trib_sparse *sparse, const void *data, size_t bytes, bool adds,
                              trib_stream stream);
trib_status tri_sparse_reset(struct trib_sparse *sparse, trib_stream stream);

#endif
