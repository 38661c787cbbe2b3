/* The ranks of one communicator that live in this process.
 *
 * They end together: NCCL frees nothing until every local rank was aborted or destroyed, and it
 * forbids touching one rank's handle while another thread frees it. So the local ranks share one
 * owner of the abort state and the ncclComm_t's: this struct. */
#ifndef TRI_NCCL_LOCAL_H
#define TRI_NCCL_LOCAL_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/base/abort.h"
#include "csrc/nccl/background.h"
#include "csrc/nccl/graphs.h"
#include "csrc/nccl/marks.h"
#include "csrc/nccl/order.h"
#include "tributary.h"

enum tri_nccl_stage {
    TRI_NCCL_OPEN,
    TRI_NCCL_CLOSING,    /* waiting for queued work; an abort still takes over */
    TRI_NCCL_DESTROYING, /* inside ncclCommDestroy: no other thread may touch the handles */
    TRI_NCCL_ABORTING,   /* a background job owns the handles */
    TRI_NCCL_GONE
};

/* Ranks of one process find each other by this key. Compared as bytes; unused fields are 0. */
struct tri_nccl_key {
    trib_id id;        /* for ranks that open by id, and those that adopt; else zeroes */
    uint64_t parent;   /* for children of a split: serial of the parent's local ranks; else 0 */
    uint32_t sequence; /* which split of that parent */
    int32_t color;
    uint32_t adopted; /* 1: the ncclComm_t's are the caller's, and never ended here (adopt.c) */
    uint32_t parent_adopted; /* 1: those of the parent are */
};
_Static_assert(sizeof(struct tri_nccl_key) == sizeof(trib_id) + 24, "a key has no padding");

/* Messages that one rank has sent to and received from another one. */
struct tri_nccl_p2p_counts {
    _Atomic uint64_t sent, received;
};

/* One rank. Its local ranks own it and free it. */
struct tri_transport {
    struct tri_nccl_local *local;
    /* Written once, by publish. Afterwards its owner reads it freely, the local ranks under their
     * lock. NULL for a communicator of one rank. */
    ncclComm_t comm;
    /* push.c: serves small calls; the same for all local ranks. NULL: NCCL serves all. Written
     * before the owner has the rank. */
    const struct tri_nccl_push *push;
    /* push's: for barriers; NULL without it. A copy: an aborter may free `push` when it is asked for. */
    void *word;
    struct tri_nccl_push *sharing;   /* push_share.c: not yet used; only its owner has it */
    struct tri_symmetric *symmetric; /* symmetric.c; its owner's, then the last reference's */
    bool keeps;                      /* that, for ever; likewise */
    /* leave.c: collectives, and messages by peer, that its owner has handed to NCCL. `p2p` is set
     * under local->lock; NULL before, and with one rank. `left`, guarded by local->lock: no more
     * calls follow. */
    _Atomic uint64_t calls;
    struct tri_nccl_p2p_counts *p2p;
    bool left;
    int32_t rank; /* -1 until the split has returned */
    int32_t size;
    int32_t device;
    unsigned long long capture; /* capture.c: the newest one counted; only its owner uses it */
    uint64_t staged; /* pull.c: calls of buffers that not all map; only its owner uses it */
    /* Not of every call. */
    struct tri_transport *next; /* next local rank; guarded by local->lock */
    struct tri_config config;   /* before NCCL gets it; of a local rank under local->lock */
    bool aborted;        /* ncclCommAbort was called for it; only the background job uses it */
    cudaStream_t stream; /* for waiting and polling; never captured */
    uint32_t splits;     /* number of splits so far; only its owner uses it */
    struct tri_nccl_order order; /* of one rank, or with push */
    struct tri_nccl_marks marks;
};

/* The local ranks of one communicator. */
struct tri_nccl_local {
    /* Immutable. */
    uint64_t serial;
    struct trib_abort *state;
    uint32_t *abort_flag;
    struct tri_nccl_graphs *graphs;

    _Atomic bool left; /* some rank has left; see leave.c */

    struct tri_nccl_key key; /* immutable */

    /* Private to the job once it is posted (teardown.c): when to warn about calls still in flight,
     * and whether it did. */
    struct tri_nccl_job job;
    uint64_t warn_at_ns; /* adopted, or made from such: from when on not to wait for them here */
    bool warned;

    /* Guarded by the registry lock in local.c. */
    struct tri_nccl_local *next;
    bool listed;

    /* One for each transport not yet destroyed, each task and each job. Atomic because an abort
     * adds one and must not wait for the registry lock. Adding one needs no lock: the caller
     * already holds a reference that stays. Finding the ranks in the list, and dropping a
     * reference, take the registry lock. */
    _Atomic int references;

    /* Guards the fields below, and each `comm` while it is published. NCCL calls under it only
     * query asynchronous errors and raise abort flags, which takes microseconds. No CUDA call is
     * made under it: CUDA may wait for a device, and an abort takes this lock. Lock order: the
     * registry lock, then this; an abort state's own lock, then this. */
    pthread_mutex_t lock;
    enum tri_nccl_stage stage;
    struct tri_transport *ranks; /* complete, and read without the lock, once not OPEN */
    int32_t joined;
    int32_t closed;
    uint64_t explained_ns; /* poll.c: an error of NCCL's counts from then on; 0: none yet */
    int32_t met;           /* push.c: ranks that have everything but `push` */

    /* push.c: the last rank that came writes `push`, and then this. */
    _Atomic bool push_made;
    struct tri_nccl_push *push;
    bool kept; /* push.c: some of its calls may never end; the job writes it */
};

/* Add a rank, and a reference for it. The first adds it to `local`, which the caller keeps alive.
 * The second adds it to the local ranks of `key`; if there are none, or `key` is NULL, it adds it
 * to `made` and sets *out_used. Both refuse what NCCL would answer with a hang or an unexplained
 * error, and every rank after an abort. */
trib_status tri_nccl_add_rank(struct tri_nccl_local *local, struct tri_transport *transport);
trib_status tri_nccl_add_rank_by_key(struct tri_nccl_local *made, const struct tri_nccl_key *key,
                                     struct tri_transport *transport, bool *out_used);

/* What the caller chose for the rank. */
void tri_nccl_configure(struct tri_transport *transport, const struct tri_config *config);
/* May calls wait for other ranks in spite of an abort? */
bool tri_nccl_is_unabortable(struct tri_nccl_local *local);

/* No more ranks of this process join; the key is free again. Idempotent. */
void tri_nccl_end_joining(struct tri_nccl_local *local);

/* From now on an abort also aborts `comm`. The caller is registered with the abort state. */
void tri_nccl_publish(struct tri_transport *transport, ncclComm_t comm);

/* Allocate everything else that a rank needs besides its ncclComm_t. */
trib_status tri_nccl_alloc_resources(struct tri_transport *transport);
/* Free it, when no work uses it any more. */
void tri_nccl_free_resources(struct tri_nccl_local *local);

/* Abort the local ranks with `status` and this thread's detail. Returns the status of the first
 * abort. */
trib_status tri_nccl_raise_abort(struct tri_nccl_local *local, trib_status status);

/* Move from one stage to another; false if the stage was not `from`. */
bool tri_nccl_advance(struct tri_nccl_local *local, enum tri_nccl_stage from,
                      enum tri_nccl_stage to);

/* Have they symmetric memory? They make no calls any more. */
bool tri_nccl_has_symmetric(const struct tri_nccl_local *local);

void tri_nccl_retain(struct tri_nccl_local *local);
/* For tri_nccl_release (teardown.h). Drop a reference unless it is the last one (with `last_too`,
 * even then). Returns true if it was the last one. */
bool tri_nccl_drop_reference(struct tri_nccl_local *local, bool last_too);
/* When no reference is left, or no rank was ever added. */
void tri_nccl_free_local(struct tri_nccl_local *local);

#endif
