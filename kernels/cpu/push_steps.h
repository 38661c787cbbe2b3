/* A worker's way through a call of push, one access to shared memory at a time.
 *
 * What is next, and what follows from it, is decided here, once. Who performs the accesses decides
 * when: push.c at once, a model checker in every order that there is. */
#ifndef TRI_CPU_PUSH_STEPS_H
#define TRI_CPU_PUSH_STEPS_H

#include "kernels/push.h"

enum tri_push_act {
    TRI_PUSH_READ,    /* read the word at `at`; found: that */
    TRI_PUSH_ARRIVE,  /* add `value` to the word at `at`, atomically; found: what it was before */
    TRI_PUSH_STORE,   /* store the granule `value` at `at`, in a peer's scratch */
    TRI_PUSH_POLL,    /* read the granule at `at` until it is full; found: that */
    TRI_PUSH_RESTORE, /* store the granule `value`, EMPTY, at `at` */
    TRI_PUSH_END      /* nothing is left to do */
};

struct tri_push_access {
    enum tri_push_act act;
    void *at;
    uint64_t value;
};

/* Its members are those of push_steps.c. Two workers at the same point of the same call have the same
 * bytes. */
struct tri_push_worker {
    const struct tri_push *job;
    const struct tri_push_rank *self;
    size_t index, workers; /* this one, of so many of its rank in this call */
    size_t chunk, granule;
    int distance; /* to the peer, in ranks */
    uint32_t epoch;
    enum tri_push_act act;
    uint32_t add;    /* by an arrival */
    uint32_t shares; /* bool: two shot, the shares of the result are what is moved */
    /* The elements of the chunk, from every rank. */
    _Alignas(16) unsigned char part[TRI_PUSH_RANKS][TRI_PUSH_CHUNK];
};

/* Bytes of a granule, and its value if EMPTY. */
size_t tri_push_granule_bytes(trib_dtype dtype);
uint64_t tri_push_empty(trib_dtype dtype);

void tri_push_begin(struct tri_push_worker *worker, const struct tri_push *job,
                    const struct tri_push_rank *self, size_t index, size_t workers);
/* The access that is next. */
struct tri_push_access tri_push_next(const struct tri_push_worker *worker);
/* It has been performed. May write a chunk of the result. */
void tri_push_performed(struct tri_push_worker *worker, uint64_t found);

#endif
