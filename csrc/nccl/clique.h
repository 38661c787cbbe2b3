/* The ranks of one communicator that live in this process.
 *
 * They stop together: NCCL frees nothing until every local rank was aborted or destroyed, and it
 * forbids touching one rank's handle while another thread frees it. So the clique, not the rank,
 * owns the abort state, the ncclComm_t's and the end of both. */
#ifndef TRI_NCCL_CLIQUE_H
#define TRI_NCCL_CLIQUE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/abort.h"
#include "csrc/nccl/reaper.h"
#include "tributary.h"

struct tri_nccl_mail; /* leave.h */

enum tri_nccl_stage {
    TRI_NCCL_OPEN,
    TRI_NCCL_CLOSING,    /* waiting for what is queued; an abort still takes over */
    TRI_NCCL_DESTROYING, /* inside ncclCommDestroy: nobody else may touch the handles */
    TRI_NCCL_ABORTING,   /* the reaper's */
    TRI_NCCL_GONE
};

/* By what ranks of one process find each other. Compared as bytes; unused fields are 0. */
struct tri_nccl_key {
    trib_id id;        /* ranks that come by id; else zeroes */
    uint64_t parent;   /* children of a split: serial of the parent's clique; else 0 */
    uint32_t sequence; /* which split of that parent */
    int32_t color;
};
_Static_assert(sizeof(struct tri_nccl_key) == sizeof(trib_id) + 16, "a key has no padding");

/* One rank. Owned by its clique, and freed with it. */
struct tri_transport {
    struct tri_transport *next; /* in the clique; guarded by its lock */
    struct tri_nccl_clique *clique;
    int32_t rank; /* -1 until a split has told */
    int32_t size;
    int32_t device;
    /* Written once, by publish; read by its owner afterwards, and by the clique under its lock.
     * NULL: a communicator of one rank has none. */
    ncclComm_t comm;
    bool flagged;        /* the reaper's: ncclCommAbort was called for it */
    cudaStream_t stream; /* for waiting and for poll; never captured */
    uint32_t splits;     /* its owner's: number of splits so far */
    /* solo.c: the point on its stream where the newest call ended, if there was one. */
    cudaEvent_t event;
    bool queued;
    /* leave.c: collectives, and messages by rank, that its owner has handed to NCCL; `mail` is set
     * under the clique's lock, and NULL before, and where there is one rank. `left`, guarded by the
     * clique's lock: there will be no more. */
    _Atomic uint64_t calls;
    struct tri_nccl_mail *mail;
    bool left;
};

struct tri_nccl_clique {
    /* Immutable. */
    uint64_t serial;
    struct trib_abort *state;
    uint32_t *word;
    struct tri_nccl_key key;

    /* The reaper's, once it is posted (reap.c): when it begins to complain of calls that have not
     * come back, and whether it did. */
    struct tri_nccl_errand errand;
    uint64_t patience;
    bool warned;

    /* Guarded by the registry's lock in clique.c. */
    struct tri_nccl_clique *next;
    bool listed;

    /* Of every transport not yet destroyed, and of every helper thread and errand. Atomic, because an abort
     * adds one and must not wait for the registry's lock: only who is sure of a reference that
     * stays adds another, so it needs no lock. Joining, which takes one from the list, and letting
     * go hold the registry's lock. */
    _Atomic int references;

    _Atomic bool left; /* a rank has; see leave.c */

    /* Guards the fields below and the `comm`s while they are published. NCCL is called under it
     * only to ask for asynchronous errors and to raise abort flags: both take microseconds. CUDA is
     * not called under it, because it may wait for a device, and an abort takes this lock. Order:
     * the registry's lock, then this; an abort state's own lock, then this. */
    pthread_mutex_t lock;
    enum tri_nccl_stage stage;
    struct tri_transport *ranks; /* complete, and free to read, once the stage is not OPEN */
    int32_t joined;
    int32_t closed;
};

/* A clique with one rank of it. With `key`, ranks of one key come into one clique, until settle;
 * with NULL it is a clique of its own. `rank` -1: not known yet. Adds a reference, the transport's.
 * Keeps the deadline whatever the devices do. */
trib_status tri_nccl_join(struct tri_transport **out, const struct tri_nccl_key *key, int32_t rank,
                          int32_t size, int32_t device, uint64_t deadline_ns);
/* Another rank of the clique of `first`, known to nobody else yet. Adds a reference. */
trib_status tri_nccl_join_same(struct tri_transport **out, struct tri_transport *first,
                               int32_t rank, int32_t device);

/* All ranks of this process have come, or never will: its key is free again. Idempotent. */
void tri_nccl_settle(struct tri_nccl_clique *clique);

/* From now on an abort aborts `comm` too. The caller is inside the gate. */
void tri_nccl_publish(struct tri_transport *transport, ncclComm_t comm);

/* What a rank needs besides its ncclComm_t. */
trib_status tri_nccl_equip(struct tri_transport *transport);
/* Give it back. When nothing runs on it any more. */
void tri_nccl_strip(struct tri_nccl_clique *clique);

/* Stop the clique with this thread's detail; returns the status of whoever stopped it first. */
trib_status tri_nccl_stop(struct tri_nccl_clique *clique, trib_status status);

/* Move from one stage to another; false if the stage was not `from`. */
bool tri_nccl_advance(struct tri_nccl_clique *clique, enum tri_nccl_stage from,
                      enum tri_nccl_stage to);

void tri_nccl_retain(struct tri_nccl_clique *clique);
void tri_nccl_release(struct tri_nccl_clique *clique);

/* tri_transport_ops.poll */
void tri_nccl_poll(struct tri_transport *transport);

/* The hooks of a clique's abort state (reap.c, poll.c): context is the clique. */
void tri_nccl_on_abort(void *context);
trib_status tri_nccl_on_poll(void *context);

/* Destroy, in the background, a clique in stage DESTROYING on which everything has run (reap.c). */
void tri_nccl_retire(struct tri_nccl_clique *clique);

#endif
