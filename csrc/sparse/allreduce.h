/* One call of a sparse allreduce, from the caller to the stream. */
#ifndef TRI_SPARSE_ALLREDUCE_H
#define TRI_SPARSE_ALLREDUCE_H

#include "csrc/sparse/state.h"

/* The arguments of one call; of the caller's memory it refers to the buffers alone. */
struct tri_sparse_call {
    struct trib_sparse *sparse;
    uint64_t step;
    void *gradient;
    void *dense;     /* or */
    uint32_t *index; /* with value and count */
    void *value;
    uint32_t *count;
    trib_stream stream;
};

/* The caller sets the buffers and the stream of `call`. `operation`: TRI_SPARSE_ALLREDUCE or
 * ..._ENTRIES. */
trib_status tri_sparse_allreduce(struct trib_sparse *sparse, int operation,
                                 struct tri_sparse_call *call);

/* Its checks alone, which queue nothing. */
trib_status tri_sparse_check_call(const struct trib_sparse *sparse, int operation,
                                  const struct tri_sparse_call *call);

/* The most entries of a result. */
uint64_t tri_sparse_capacity(const struct trib_sparse *sparse);

#endif
