/* What the files of push share: its memory, and a launch in it.
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

enum {
    TRI_NCCL_TRIED = 32,  /* elements of the trial */
    TRI_NCCL_MEASURED = 4 /* ranks: with no more the limits of push and pull were measured */
};

/* Memory of one rank that only its own device uses. */
struct tri_nccl_push_own {
    _Alignas(128) struct tri_push_control control; /* of a lane */
    _Alignas(128) float sent[TRI_NCCL_TRIED];      /* the trial's */
    float received[TRI_NCCL_TRIED];
};

/* Who serves what (limits.h): up to how many KiB of a call's longer buffer. In one shot a rank sends all of its
 * part to each peer, so the limit is the lower the more there are. Of f64 and integers that push reduces,
 * whose granules are wide, one_shot and push are half of it. */
struct tri_nccl_limits {
    uint32_t one_shot;             /* push makes an allreduce in one shot up to here, then in two */
    uint32_t push;                 /* push serves up to here */
    uint32_t pull_above;           /* what push does not serve is NCCL's up to here */
    uint32_t pull;                 /* then pull's up to here, then NCCL's */
    uint32_t staged_above, staged; /* these two of buffers that are staged, between processes */
};

/* The most that push serves, in chunks of what a rank sends to each peer. A copy sends twice its bytes. */
struct tri_nccl_push_most {
    size_t one_shot;      /* of an allreduce in one shot */
    size_t of[TRI_KINDS]; /* of an allreduce as if it were made in one shot */
};

struct tri_nccl_pull;
struct tri_nccl_push {
    struct tri_nccl_peer_memory scratch[TRI_PUSH_RANKS]; /* one lane's behind the other's */
    struct tri_nccl_push_own *own[TRI_PUSH_RANKS];       /* of each lane */
    int32_t size;
    size_t capacity; /* chunks of a slot */
    struct tri_nccl_push_most most;
    size_t granularity;           /* of memory that all devices map */
    int32_t multiprocessors;      /* of the device that has the fewest; 0: not known */
    bool nvlink;                  /* between every two devices */
    bool apart;                   /* each rank is in a process of its own */
    bool wants_pull;              /* if so: it has not been tried; only the owner uses it, */
    struct tri_nccl_pull *coming; /* and what is tried; NULL: nothing */
    struct tri_nccl_pull *pull;   /* NULL: there is none */
};

/* By rank. Those of other processes have neither. */
struct tri_nccl_push_ranks {
    struct tri_transport *of[TRI_PUSH_RANKS]; /* NULL: in another process */
    int32_t devices[TRI_PUSH_RANKS];
    struct tri_nccl_device_guard *guard;
};

/* ----------------------------------------------------------------------------------------- push.c */

void *tri_nccl_push_scratch(const struct tri_nccl_push *push, int32_t rank,
                            enum tri_nccl_lane lane);

/* Only of kinds that push has a kernel for: of an allreduce TRI_PUSH_ALLREDUCE. */
enum tri_push_kind tri_nccl_push_kind(enum tri_kind kind);

/* Is it of a kind for which push and pull have kernels? */
bool tri_nccl_push_has_kernel(const struct tri_call *call);

/* A launch of `rank`'s call, whose device is current, with the memory `of`. */
typedef trib_status tri_nccl_launch(const void *of, int32_t rank, enum tri_nccl_lane lane,
                                    const struct tri_call *call, uint32_t *abort_flag,
                                    uint64_t patience_ns);

/* That of push: `of` is a struct tri_nccl_push. */
tri_nccl_launch tri_nccl_push_launch;

/* ---------------------------------------------------------------------------------- push_memory.c */

#define TRI_NCCL_NO_PEERS "`peer_bytes` is TRIB_NO_PEERS"

/* NULL, or why there is no push of this communicator wherever its ranks are: NCCL_P2P_DISABLE tells NCCL that
 * devices do not reach each other, and then it is so here, too. */
const char *tri_nccl_push_refusal(const struct tri_nccl_local *local);

/* The rank's device becomes current. */
bool tri_nccl_push_switch(const struct tri_nccl_push_ranks *ranks, int32_t rank);

/* Of a device; 0: CUDA does not tell. */
int32_t tri_nccl_multiprocessors(int32_t device);

/* Set the capacity and the limits of a push, of which size, granularity and nvlink are known, and whose
 * scratch takes at most `budget` bytes of a device. Returns the size of the scratch of a rank, a multiple of
 * the granularity; 0: nothing fits. */
size_t tri_nccl_push_lay_out(struct tri_nccl_push *push, size_t budget);

/* Allocate push->own[rank] on the current device. */
cudaError_t tri_nccl_push_alloc_own(struct tri_nccl_push *push, int32_t rank);

/* Make the memory of the ranks of this process as it is before the first call. */
cudaError_t tri_nccl_push_empty(const struct tri_nccl_push *push,
                                const struct tri_nccl_push_ranks *ranks);

/* When all ranks have their memory: try it, and let the calls of the ranks of this process have an order,
 * from the first one on. NULL, or what went wrong. */
const char *tri_nccl_push_prove(const struct tri_nccl_push *push,
                                const struct tri_nccl_push_ranks *ranks, uint32_t *abort_flag);

/* Free what is there of its memory, but not `push`. Some device is current. */
void tri_nccl_push_release(struct tri_nccl_push *push);

/* The rank has it from now on; NULL: none. */
void tri_nccl_push_give(struct tri_transport *transport, const struct tri_nccl_push *push);
/* How large it is, for debugging. */
void tri_nccl_push_log(const struct tri_nccl_push *push);

/* ----------------------------------------------------------------------------------- push_trial.c */

/* One allreduce of all ranks in each lane, by `launch` with `of`, of what the trial has in `own`: some
 * drivers report that devices reach each other, and lose what they write. NULL, or what went wrong. No
 * kernel of this process runs any more then. */
const char *tri_nccl_push_try(const struct tri_nccl_push *push,
                              const struct tri_nccl_push_ranks *ranks, tri_nccl_launch *launch,
                              const void *of, uint32_t *abort_flag);

#endif
