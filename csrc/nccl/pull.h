/* Large allreduces, reduce_scatters, allgathers, alltoalls and broadcasts by the pull kernels: beside push,
 * which frees it, and inside one process makes it. Between processes the communicator
 * makes its memory, which is symmetric. */
#ifndef TRI_NCCL_PULL_H
#define TRI_NCCL_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/nccl/push_inside.h"

/* What the pull of a communicator needs. Immutable once there. */
struct tri_nccl_pull;

/* Bytes of a rank's device that pull takes, and what must be left for push: of more ranks than were measured, which
 * pull serves by name alone, more than there is by default. */
enum {
    TRI_NCCL_PULL_BYTES = 32 << 20,
    TRI_NCCL_PULL_LEAVES = 8 << 20,
    TRI_NCCL_PULL_LEAVES_BY_NAME = 32 << 20
};

/* Are the ranks of `push` to have pull, if `budget` bytes are for both on each rank's device? */
bool tri_nccl_pull_is_for(const struct tri_nccl_push *push, size_t budget);

/* For the ranks of `push`, which works. All have come, and none of them makes a call yet. Tried once, with
 * what push was tried with. NULL if there is none, for which the log says why. Some device is current. */
struct tri_nccl_pull *tri_nccl_pull_make(const struct tri_nccl_push *push,
                                         const struct tri_nccl_push_ranks *ranks,
                                         uint32_t *abort_flag);

/* The same for ranks in processes of their own, of which this one is on `device`, in two steps of all ranks. begin: is
 * there room for it? NULL, or why not: then *out is NULL. finish: that of each rank in `memory`, all zeros, becomes its
 * own, and is tried there, too. NULL, or what went wrong. */
const char *tri_nccl_pull_begin(struct tri_nccl_pull **out, const struct tri_nccl_push *push,
                                int32_t device);
const char *tri_nccl_pull_finish(struct tri_nccl_pull *pull, const struct tri_nccl_push *push,
                                 const struct tri_symmetric *memory,
                                 const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag);
/* After begin: no call has used it, and its memory stays the caller's. NULL: nothing. */
void tri_nccl_pull_give_up(struct tri_nccl_pull *pull);

/* All calls of all ranks have ended. Some device is current. */
void tri_nccl_pull_free(struct tri_nccl_pull *pull);
/* Nobody knows whether they have: the memory stays for ever, and so does its place on the devices. */
void tri_nccl_pull_keep(struct tri_nccl_pull *pull);

/* Can pull serve the call, the only one of its transport in a batch; and does it, unless it has another
 * variant? The same on all ranks. */
bool tri_nccl_pull_can(const struct tri_call *call);
bool tri_nccl_pull_serves(const struct tri_call *call);
/* Does it serve the call better in buffers that all ranks map than in others, which it stages or leaves to NCCL? The
 * same on all ranks. */
bool tri_nccl_pull_prefers_mapped(const struct tri_call *call);

/* Queue a call that pull serves. Its device is current. */
trib_status tri_nccl_pull_call(const struct tri_call *call);
/* Which of its buffers, "send" or "recv", that peers access do not all ranks map? NULL: none. Its device is
 * current. */
const char *tri_nccl_pull_stages(const struct tri_call *call);
/* How many had a buffer of this rank's that not all ranks map. */
uint64_t tri_nccl_pull_staged(const struct tri_transport *transport);

#endif
