/* Many tensors in one collective: packed into buckets, reduced, unpacked all or none. */
#ifndef TRI_LISTS_LIST_H
#define TRI_LISTS_LIST_H

#include "csrc/core/group.h"
#include "csrc/lists/plan.h"

/* Check and queue a list call of any of its operations. */
trib_status tri_list(struct trib_comm *comm, const struct tri_list *list);

/* The same on every rank of a group: `list` holds what is the same on all ranks, tensors[i] and
 * streams[i] are rank i's. */
trib_status tri_group_list(struct trib_group *group, const struct tri_list *list,
                           const trib_tensor *const *tensors, const trib_stream *streams);

/* Read `options` into the list, then tri_list. */
trib_status tri_allreduce_list_with(struct trib_comm *comm, struct tri_list *list,
                                    const trib_call_options *options);

/* Make a list of the arguments, then tri_list (average.c). */
trib_status tri_weighted_average(struct trib_comm *comm, const trib_tensor *tensors, size_t n,
                                 float weight, const float *device_weight, float *device_total,
                                 trib_stream stream);

/* Check every argument of a list (check.c). */
trib_status tri_list_check(struct trib_comm *comm, const struct tri_list *list);

#endif
