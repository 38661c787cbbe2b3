/* Sparse allreduces of all ranks of a group. */
#ifndef TRI_SPARSE_GROUP_H
#define TRI_SPARSE_GROUP_H

#include "csrc/core/group.h"
#include "csrc/sparse/state.h"

/* The public functions of these names; the pointers are not NULL, but `streams` may be. */
trib_status tri_group_sparse_create(struct trib_sparse **out, struct trib_group *group,
                                    size_t count, trib_dtype dtype,
                                    const trib_sparse_options *options);
trib_status tri_group_sparse_allreduce(struct trib_group *group, struct trib_sparse *const *sparse,
                                       void *const *gradient, void *const *result,
                                       const trib_stream *streams);

#endif
