/* Many tensors in one collective: packed into buckets, reduced, spread back all or nothing. */
#ifndef TRI_LISTS_LIST_H
#define TRI_LISTS_LIST_H

#include "csrc/core/group.h"
#include "csrc/lists/plan.h"

/* Check and queue a list call of any of its operations. */
trib_status tri_list(struct trib_comm *comm, const struct tri_list *list);

/* The same on every rank of a group: `list` is what they have in common, rank i's tensors are
 * tensors[i], its stream streams[i]. */
trib_status tri_group_list(struct trib_group *group, const struct tri_list *list,
                           const trib_tensor *const *tensors, const trib_stream *streams);

/* Read what a single call may want, then as tri_list. */
trib_status tri_allreduce_list_with(struct trib_comm *comm, struct tri_list *list,
                                    const trib_call_options *options);

/* Check the weight and fill in the rest, then as tri_list (average.c). */
trib_status tri_weighted_average(struct trib_comm *comm, const trib_tensor *tensors, size_t n,
                                 float weight, const float *device_weight, float *device_total,
                                 trib_stream stream);

/* Every argument of a list (check.c). */
trib_status tri_list_check(struct trib_comm *comm, const struct tri_list *list);

#endif
