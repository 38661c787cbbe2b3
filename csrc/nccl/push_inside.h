/* What push.c and push_trial.c share: the memory of a communicator's push, and a launch in it.
 *
 * There are two lanes, each with a scratch and a control of its own on every rank: calls that run, and
 * those that graphs captured. So a replay may run beside a call that no graph captured. */
#ifndef TRI_NCCL_PUSH_INSIDE_H
#define TRI_NCCL_PUSH_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/nccl/device.h"
#include "csrc/nccl/local.h"
#include "csrc/nccl/peer_memory.h"
#include "kernels/push.h"

enum tri_nccl_lane { TRI_NCCL_RUNS, TRI_NCCL_CAPTURED, TRI_NCCL_LANES };

enum { TRI_NCCL_TRIED = 32 }; /* elements of the trial */

/* Memory of one rank that only its own device uses. */
struct tri_nccl_push_own {
    _Alignas(128) struct tri_push_control control; /* of a lane */
    _Alignas(128) float sent[TRI_NCCL_TRIED];      /* the trial's */
    float received[TRI_NCCL_TRIED];
};

struct tri_nccl_pull;
struct tri_nccl_push {
    struct tri_nccl_peer_memory scratch[TRI_PUSH_RANKS]; /* one lane's behind the other's */
    struct tri_nccl_push_own *own[TRI_PUSH_RANKS];       /* of each lane */
    int32_t size;
    size_t capacity;            /* chunks of a slot, and the most that a call may have */
    struct tri_nccl_pull *pull; /* NULL: there is none */
};

/* All ranks, by rank. */
struct tri_nccl_push_ranks {
    struct tri_transport *of[TRI_PUSH_RANKS];
    int32_t devices[TRI_PUSH_RANKS];
    struct tri_nccl_device_guard *guard;
};

/* push.c. The rank's device becomes current. */
bool tri_nccl_push_switch(const struct tri_nccl_push_ranks *ranks, int32_t rank);
void *tri_nccl_push_scratch(const struct tri_nccl_push *push, int32_t rank,
                            enum tri_nccl_lane lane);
trib_status tri_nccl_push_launch(const struct tri_nccl_push *push, int32_t rank,
                                 enum tri_nccl_lane lane, const struct tri_call *call,
                                 uint32_t *abort_flag, uint64_t patience_ns);

/* A launch of the trial's call of `rank`, whose device is current. */
typedef trib_status tri_nccl_launch(const void *of, int32_t rank, enum tri_nccl_lane lane,
                                    const struct tri_call *call, uint32_t *abort_flag,
                                    uint64_t patience_ns);

/* push_trial.c. Make `own` of all ranks as it is before the first call, then one allreduce of all ranks in
 * each lane, by `launch` with `of`: some drivers report that devices reach each other, and lose what
 * they write. NULL, or what went wrong. */
const char *tri_nccl_push_try(const struct tri_nccl_push *push,
                              const struct tri_nccl_push_ranks *ranks, tri_nccl_launch *launch,
                              const void *of, uint32_t *abort_flag);

#endif
