/* The local ranks of one communicator, and the state that they share.
 *
 * A transport (one rank) is an element of struct tri_host_local, which is reference-counted: one
 * reference for each transport that is not destroyed and one for each submission that has not run.
 * So a submission that is stuck in a stream keeps the memory that it will use, and destroy never
 * waits. */
#ifndef TRI_HOST_LOCAL_H
#define TRI_HOST_LOCAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "csrc/backend.h"
#include "csrc/host/eventcount.h"
#include "csrc/host/ops.h"

enum {
    TRI_CACHE_LINE = 64,
    TRI_STAGE_BYTES = 4096,   /* the largest staged call; see collectives.c */
    TRI_PIECE_BYTES = 1 << 20 /* copied or reduced between two loads of the abort flag */
};

struct tri_host_local;
struct tri_message;
struct tri_host_list; /* list.c */

/* One rank. */
struct tri_transport {
    /* For the calling thread. */
    struct tri_host_local *local;
    int32_t rank;
    int32_t device;
    uint64_t submitted;              /* submissions so far */
    struct tri_symmetric *symmetric; /* symmetric.c; its owner's, then the last reference's */

    /* For the thread that runs this rank's submissions, one at a time. */
    _Alignas(TRI_CACHE_LINE) _Atomic uint64_t completed; /* submissions that have run */
    _Atomic bool running;                                /* a submission runs */
    _Atomic bool closed;                                 /* this rank makes no more submissions */
    _Atomic uint32_t barriers;                           /* barriers that this rank has reached */
    uint64_t collectives;                                /* so far, without sends and receives */
    struct tri_call last;             /* the last call; the others read it once this rank left */
    struct tri_eventcount eventcount; /* for completed, running, unreceived and messages */

    /* Written by this rank, read by the others. */
    _Alignas(TRI_CACHE_LINE) struct tri_call posted[2]; /* double-buffered, as are the next three */
    const struct tri_host_list *list[2]; /* NULL, or the list of which `posted` is the first call */
    double factor[2];                    /* of the posted call: one element of its dtype */
    unsigned char *staged[2];            /* data of the posted call, up to TRI_STAGE_BYTES */
    _Atomic bool accessing;      /* this rank reads or writes the buffers of other ranks now */
    _Atomic uint32_t unreceived; /* messages posted and not received; receivers decrement it */

    /* Messages for this rank, by sender: written by the sender, then by this rank. */
    _Alignas(TRI_CACHE_LINE) _Atomic(struct tri_message *) messages[TRI_HOST_MAX_RANKS];
};

/* One rank's arguments and result in a rendezvous. */
struct tri_rendezvous_slot {
    bool taken;
    int32_t color;
    int32_t key;
    int32_t device;
    _Atomic bool completed;    /* `out` and `status` are set; true only while taken */
    struct tri_transport *out; /* NULL for color -1, or on failure */
    trib_status status;
};

/* A rendezvous (rendezvous.h): `size` ranks join; the last one creates the new communicators, and
 * each rank takes its own transport. A rank whose wait fails gives its slot back. The lock guards
 * all fields but `completed` and the eventcount. All zero but `size`: no rank has joined. */
struct tri_rendezvous {
    int32_t size;
    int32_t waiting;                  /* slots taken and not completed */
    int32_t taken;                    /* slots taken */
    struct tri_eventcount eventcount; /* for completed */
    struct tri_rendezvous_slot slots[TRI_HOST_MAX_RANKS];
};

struct tri_host_local {
    int32_t size;
    _Atomic uint32_t references;
    struct trib_abort *abort;
    uint32_t abort_flag; /* not 0 after an abort (base/stopped.h); see tri_host_local_live */
    uint64_t aborted_ns; /* when; the abort state calls all that use it, one at a time */
    unsigned char *stage;
    struct tri_rendezvous split;
    _Atomic int32_t closed;        /* ranks that have closed */
    struct tri_eventcount closing; /* for `completed` of every rank */

    _Atomic uint64_t
        decided; /* list.c: the newest list that the ranks have decided about, and how */

    _Alignas(TRI_CACHE_LINE) _Atomic int32_t arrived; /* ranks at the barrier */
    _Alignas(TRI_CACHE_LINE) _Atomic uint32_t phase;  /* barriers completed */
    _Atomic uint32_t late_logged;     /* 1 + the last phase in which a rank logged late ranks */
    _Atomic uint64_t left;            /* bit 1 << rank for each rank that has left; see leave.h */
    struct tri_eventcount eventcount; /* for phase, accessing and left */

    struct tri_transport ranks[];
};

/* The ranks of a new communicator, with one reference for each, or NULL when memory is short. */
struct tri_host_local *tri_host_local_create(const int32_t *devices, int32_t size);
void tri_host_local_retain(struct tri_host_local *local);
void tri_host_local_release(struct tri_host_local *local);

/* The number of submissions that have not run, and the first rank that has one. All ranks have
 * closed, so `submitted` is final. */
uint64_t tri_host_local_pending(const struct tri_host_local *local, int32_t *out_rank);

/* False after an abort. Sequentially consistent; once it is false, `abort` has the status. */
bool tri_host_local_live(const struct tri_host_local *local);

/* Notify all threads that wait for a rank of this communicator. */
void tri_host_local_notify(struct tri_host_local *local);

/* Between begin and end, the other ranks' buffers stay valid, even after an abort: a rank that ends
 * a collective early waits in tri_host_local_finish_abort until no rank accesses them. After an
 * abort begin returns false, and end must not follow. */
bool tri_host_local_access_begin(struct tri_transport *self);
void tri_host_local_access_end(struct tri_transport *self);

/* memcpy between begin and end; does nothing if dst == src. False if an abort interrupted it. */
bool tri_host_local_copy(const struct tri_host_local *local, void *dst, const void *src,
                         size_t bytes);

/* After an abort: wait, not for long, until no rank accesses this rank's buffers. Returns the
 * status of the abort. */
trib_status tri_host_local_finish_abort(struct tri_transport *self);

/* Abort with `status` and this thread's detail, unless aborted already; then finish_abort. */
trib_status tri_host_local_fail(struct tri_transport *self, trib_status status);

#endif
