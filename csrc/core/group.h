/* All ranks of one process, driven by one thread: one communicator per rank. */
#ifndef TRI_CORE_GROUP_H
#define TRI_CORE_GROUP_H

#include "csrc/base/team.h"
#include "csrc/core/communicator.h"
#include "csrc/core/operation.h"

struct trib_group {
    int32_t size;
    struct trib_comm **comms; /* of the ranks */
    struct tri_call *calls;   /* room for one call per rank */
    struct tri_team *team;    /* group_run.c: a thread per rank; NULL before the first use */
    bool running;             /* it runs a function */
};

/* The public functions of these names; pointers that must not be NULL are not NULL. */
trib_status tri_group_create(struct trib_group **out, const int32_t *devices, int32_t size,
                             const trib_options *options);
/* allreduce or broadcast, by itself or in a batch of the group. `call` holds what is the same on all
 * ranks. */
trib_status tri_group_collective(struct trib_group *group, int operation,
                                 const struct tri_call *call, const void *const *send,
                                 void *const *recv, const trib_stream *streams);
trib_status tri_group_batch_begin(struct trib_group *group);
trib_status tri_group_batch_end(struct trib_group *group);
/* `status` of a call of the group that failed before it reached a rank's batch: it fails those that
 * are open. Returns `status`. */
trib_status tri_group_fail(struct trib_group *group, trib_status status);
trib_status tri_group_status(struct trib_group *group);
trib_status tri_group_wait(struct trib_group *group, const trib_stream *streams,
                           uint32_t timeout_ms);
trib_status tri_group_split(struct trib_comm **out, struct trib_group *group);
trib_status tri_group_destroy(struct trib_group *group);

#endif
