/* What a state keeps of its tensor from call to call, for those who move it. */
#ifndef TRI_SPARSE_KEPT_H
#define TRI_SPARSE_KEPT_H

#include "csrc/sparse/state.h"

/* `count` elements of acc's type each, in device memory; NULL where the state keeps none. */
struct tri_kept {
    char *residual, *velocity;
};

/* As they are now. Waits until every call queued before has run, on any stream. They stay where they
 * are until the next call. */
trib_status tri_kept_find(struct tri_kept *out, const struct trib_sparse *sparse,
                          trib_stream stream);

/* Add `bytes` of host memory, unaligned, to elements of `sum`, in acc's type. Waits. `operation`
 * is for errors. */
trib_status tri_kept_add(const struct trib_sparse *sparse, int operation, char *sum,
                         const char *data, size_t bytes, trib_stream stream);

#endif
