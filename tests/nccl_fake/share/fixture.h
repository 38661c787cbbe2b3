/* Ranks in processes of their own that share memory, over the fake: the nccl backend as core uses it.
 * Here they are of one process, but none finds the others in it: whatever csrc/nccl/local.c would tell
 * them. */
#ifndef TRI_TESTS_NCCL_FAKE_SHARE_FIXTURE_H
#define TRI_TESTS_NCCL_FAKE_SHARE_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "kernels/push.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_push.h"
#include "tests/nccl_fake/fixture.h"
#include "tests/nccl_fake/served.h"
#include "tests/nccl_fake/streams.h"

enum {
    SHARE_N = 40,                /* elements of a small call */
    SHARE_LARGE = (2 << 20) + 1, /* and of one that NCCL serves */
    /* Bytes of a rank's buffer to send from, and of the one to receive in. */
    SHARE_HALF = TRI_PUSH_RANKS * SHARE_N * 4,
    SHARE_PEER_BYTES = 17 * FAKE_GRANULARITY, /* no multiple of what device FAKE_COARSE wants */
    SHARE_PLENTY_MS = 20000,
    SHARE_LATE_MS = 150
};

enum share_step { SHARE_OFFER, SHARE_ALLOCATE, SHARE_MAP, SHARE_TRY, SHARE_USE, SHARE_STEPS };

/* What each rank has, in an array by rank. */
struct share_ranks {
    int size;
    trib_id id;
    int32_t devices[TRI_PUSH_RANKS];
    struct tri_config configs[TRI_PUSH_RANKS];
    struct tri_transport *of[TRI_PUSH_RANKS]; /* NULL: none any more */
    trib_stream streams[TRI_PUSH_RANKS];
    char *data[TRI_PUSH_RANKS];  /* of two halves: to send from, and to receive in */
    bool absent[TRI_PUSH_RANKS]; /* takes no step, and its next one fails */

    bool threads; /* each takes its steps on a thread of its own, not only `try` */
    struct tri_words offers[TRI_PUSH_RANKS];
    int fds[TRI_PUSH_RANKS];              /* what it has exported; -1: nothing */
    enum share_step step;                 /* the last one that was taken, */
    trib_status statuses[TRI_PUSH_RANKS]; /* with that result, */
    char why[TRI_PUSH_RANKS][256];        /* and detail */

    struct served served; /* before the last share_counts */
};

/* A case, in which devices reach each other by NVLink. At its end nothing is left, nor are switches of
 * the fake that a case has turned. */
void share_begin(const char *name);
void share_end(void);

/* `size` ranks on devices 0 .. size - 1, with SHARE_PEER_BYTES; and once they have been changed, open
 * them, each in a process of its own. */
void share_prepare(struct share_ranks *ranks, int size);
bool share_open(struct share_ranks *ranks);
/* This thread's ranks are each in a process of their own: none finds the others by the key of all. */
void share_set_apart(bool is_apart);
/* Close and destroy what is there, every rank on a thread, and free the rest. */
void share_close(struct share_ranks *ranks);
/* One rank alone; returns the status of its close. */
trib_status share_finish(struct share_ranks *ranks, int rank, uint32_t timeout_ms);
void share_stop(const struct share_ranks *ranks, int rank);

/* One step of all ranks, as core takes it: before the next one on any. Has it succeeded on all? */
bool share_take(struct share_ranks *ranks, enum share_step step);
/* The steps up to that one, if all succeed. Returns whether they do; if not, ranks->step is the one that
 * failed. */
bool share_take_up_to(struct share_ranks *ranks, enum share_step step);
/* On all ranks; and what they have exported is closed. */
void share_drop(struct share_ranks *ranks);
/* All steps, or a drop after the one that failed. */
bool share(struct share_ranks *ranks);
/* How many ranks have failed in the last step; and do the details of all of them have these words? */
int share_failed(const struct share_ranks *ranks, const char *words);

/* `count` f32 of this rank, as core issues it: from the first half of its buffer to the second. */
trib_status share_call(const struct share_ranks *ranks, int rank, enum tri_kind kind, size_t count,
                       trib_stream stream);
/* All ranks, by this thread, on their streams: is the result of the call right? */
bool share_is_right(const struct share_ranks *ranks, enum tri_kind kind, size_t count);
bool share_wait(const struct share_ranks *ranks, int rank);
bool share_is_done(const struct share_ranks *ranks, int rank);
void share_fill(const struct share_ranks *ranks);
/* SHARE_N of all ranks: filled, called by this thread, checked. */
bool share_works(const struct share_ranks *ranks, enum tri_kind kind);
/* An allreduce of all ranks, a thread each, that NCCL serves if `count` is large, or if nothing is
 * shared. */
void share_call_nccl(struct share_ranks *ranks, size_t count);
/* Push serves a small allreduce, and NCCL one of `count` + 1 elements. */
void share_serves_up_to(struct share_ranks *ranks, size_t count);
/* Since the last time, NCCL has got `nccl` calls of ranks, and push has served `pushes` calls; -1:
 * whatever. */
bool share_counts(struct share_ranks *ranks, long nccl, long pushes);
/* Does each rank have memory for the others, or none of them? */
bool share_has_memory(const struct share_ranks *ranks, bool some);

#endif
