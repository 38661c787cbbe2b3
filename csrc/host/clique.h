/* A clique: the ranks of one communicator, and what they share.
 *
 * A transport (one rank) is a part of its clique, and the clique is counted: one reference for
 * every transport that is not destroyed and one for every submission that has not run. So a
 * submission that is stuck in a stream keeps what it will touch, and destroy never waits. */
#ifndef TRI_HOST_CLIQUE_H
#define TRI_HOST_CLIQUE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "csrc/backend.h"
#include "csrc/host/eventcount.h"
#include "csrc/host/rendezvous.h"

enum {
    TRI_LINE = 64,            /* bytes of a cache line: ranks write to lines of their own */
    TRI_STAGE_BYTES = 4096,   /* a call that sends no more is staged; see collectives.c */
    TRI_PIECE_BYTES = 1 << 20 /* between two looks at the abort word */
};

struct tri_clique;
struct tri_parcel;

/* One rank. */
struct tri_transport {
    /* For the thread that calls. */
    struct tri_clique *clique;
    int32_t rank;
    int32_t device;
    uint64_t issued; /* submissions made */

    /* For whoever runs this rank's submissions, one thread at a time. */
    _Alignas(TRI_LINE) _Atomic uint64_t served; /* submissions that have run */
    _Atomic bool serving;                       /* one is running */
    _Atomic bool closed;                        /* this rank makes no more of them */
    _Atomic uint32_t barriers;                  /* those that it has come to */
    uint64_t rounds;                            /* collectives that used `posted` so far */
    struct tri_call last; /* what it did last; for the others once it has left */
    struct tri_eventcount eventcount; /* for served, serving, unsent, and this rank's parcels */

    /* Written by this rank, read by the others. */
    _Alignas(TRI_LINE) struct tri_call posted[2]; /* what it called; two in turn */
    double factor[2];                             /* of what is posted: an element of its dtype */
    unsigned char *staged[2];                     /* TRI_STAGE_BYTES each, beside `posted` */
    _Atomic bool touching;   /* it reads or writes memory of other ranks' callers now */
    _Atomic uint32_t unsent; /* its parcels that were not taken yet; takers count down */

    /* Parcels for this rank, by sender: written by the sender, then by this rank. */
    _Alignas(TRI_LINE) _Atomic(struct tri_parcel *) parcels[TRI_HOST_MAX_RANKS];
};

struct tri_clique {
    int32_t size;
    _Atomic uint32_t references;
    struct trib_abort *abort;
    uint32_t word; /* 1 after an abort; see tri_clique_live */
    unsigned char *stage;
    struct tri_meeting split; /* where its ranks meet to split */
    _Atomic int32_t closed;   /* ranks that will make no more calls */
    struct tri_eventcount closing;  /* for every rank's `served` */

    _Alignas(TRI_LINE) _Atomic int32_t arrived; /* ranks at the barrier */
    _Alignas(TRI_LINE) _Atomic uint32_t phase;  /* barriers completed */
    _Atomic uint32_t late; /* 1 + the last phase of which was said that a rank is late */
    _Atomic uint64_t left; /* a bit for each rank that has left; see absent.h */
    struct tri_eventcount eventcount;  /* for phase, touching and left */

    struct tri_transport ranks[];
};

/* A clique with a reference for each of its ranks, or NULL when memory is short. */
struct tri_clique *tri_clique_create(const int32_t *devices, int32_t size);
void tri_clique_retain(struct tri_clique *clique);
void tri_clique_release(struct tri_clique *clique);

/* False after an abort. Sequentially consistent; after false, the status of `abort` is there. */
bool tri_clique_live(const struct tri_clique *clique);

/* Everybody who waits for a rank of this clique looks again. */
void tri_clique_wake(struct tri_clique *clique);

/* Wait for all ranks, at the beginning or at the end of `call`. False if the clique was aborted
 * first, or is now, since a rank has left. */
enum tri_end { TRI_BEGINS, TRI_ENDS };
bool tri_clique_barrier(struct tri_transport *self, const struct tri_call *call, enum tri_end end);

/* Between begin and end, the other ranks' buffers stay, even if the clique is aborted: a rank that
 * leaves a collective early waits in tri_clique_leave until nobody touches. begin is false, and end
 * must not follow, after an abort. */
bool tri_clique_touch_begin(struct tri_transport *self);
void tri_clique_touch_end(struct tri_transport *self);

/* memcpy, or nothing if both are the same place; between begin and end. False if the clique was
 * aborted meanwhile. */
bool tri_clique_copy(const struct tri_clique *clique, void *dst, const void *src, size_t bytes);

/* The clique was aborted: wait, not for long, until no rank touches this rank's buffers. Returns
 * the status of the abort. */
trib_status tri_clique_leave(struct tri_transport *self);

/* Abort with this thread's detail, or because another rank was first; then leave. */
trib_status tri_clique_fail(struct tri_transport *self, trib_status status);

#endif
