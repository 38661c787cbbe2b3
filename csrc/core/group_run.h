/* What waits for other ranks, on every rank of a group at once. */
#ifndef TRI_CORE_GROUP_RUN_H
#define TRI_CORE_GROUP_RUN_H

#include "csrc/core/group.h"

/* trib_group_run: `function` for every rank, each on a thread of its own, which the group keeps. */
trib_status tri_group_run(struct trib_group *group, int operation,
                          trib_status (*function)(struct trib_comm *comm, int32_t rank,
                                                  void *argument),
                          void *argument);

#endif
