/* A worker's way through a call of pull, one access to shared memory at a time.
 *
 * A worker is what a block is on a GPU. What is next, and what follows from it, is decided here, once. Who
 * performs the accesses decides when: pull.c at once, a model checker in every order that there is. */
#ifndef TRI_CPU_PULL_STEPS_H
#define TRI_CPU_PULL_STEPS_H

#include "kernels/pull.h"

enum tri_pull_act {
    TRI_PULL_READ,    /* found: the word at `at`, with acquire */
    TRI_PULL_WRITE,   /* the word at `at` becomes `value` */
    TRI_PULL_RELEASE, /* the same, once all that the worker has written before can be seen */
    TRI_PULL_ADD,     /* add `value` to the word at `at`, as a release, atomically */
    TRI_PULL_SWAP,    /* if the word at `at` is `expected` it becomes `value`; found: what it was */
    TRI_PULL_OR, /* the word at `at` gets the bits of `value`; found: what it was. Atomic, release */
    TRI_PULL_LOAD,  /* `bytes` bytes from `at` to `data` */
    TRI_PULL_STORE, /* the other way */
    TRI_PULL_END    /* nothing is left to do */
};

struct tri_pull_access {
    enum tri_pull_act act;
    void *at, *data;
    uint64_t value, expected;
    size_t bytes;
};

enum tri_pull_phase {
    TRI_PULL_TO_BEGIN,
    TRI_PULL_TO_SEND, /* to each peer: the pointers, then the turn */
    TRI_PULL_TO_RECV,
    TRI_PULL_TO_TELL,
    TRI_PULL_TO_TAKE, /* of each peer: the turn, then the pointers */
    TRI_PULL_TO_FIND_SEND,
    TRI_PULL_TO_FIND_RECV,
    TRI_PULL_TO_STAGE, /* a unit out of own send, and into scratch */
    TRI_PULL_TO_STAGE_IT,
    TRI_PULL_TO_FETCH, /* a unit out of own scratch, and into recv: a peer's result */
    TRI_PULL_TO_FETCH_IT,
    TRI_PULL_TO_FOLD, /* a unit of each rank, or of one to copy, and the result to each goal */
    TRI_PULL_TO_STORE,
    TRI_PULL_TO_COME, /* to a later barrier: to each peer, of each peer */
    TRI_PULL_TO_AWAIT,
    TRI_PULL_TO_COUNT,
    TRI_PULL_TO_LEAVE, /* a call that is given up: each peer */
    TRI_PULL_TO_PART,
    TRI_PULL_AT_END
};

/* Its members are those of pull_steps.c. Two workers at the same point of the same call have the same
 * bytes. */
struct tri_pull_worker {
    const struct tri_pull *job;
    const struct tri_pull_rank *self;
    size_t index, workers; /* this one, of so many of its rank */
    const char *send[TRI_PULL_RANKS];
    char *recv[TRI_PULL_RANKS];
    uint64_t turn, expected;
    uint64_t next;     /* the turn of the barrier behind which no twin is at our buffers */
    size_t round;      /* in pieces: pieces before */
    size_t first, end; /* elements of a block: the unit's first, and where the round ends */
    size_t slot;       /* in pieces: where the piece began */
    uint32_t phase;    /* enum tri_pull_phase */
    int32_t at;        /* the peer's distance, or the rank */
    uint32_t taken;    /* a call that is given up: peers that have our buffers, a bit by distance */
    int32_t copied;    /* of the round: parts or results that are moved; of a copy, ranks whose part is */
    uint32_t staged, ended; /* bools: the second, whether the last barrier is what is next */
    uint32_t left;          /* bool: the call is given up */
    _Alignas(16) unsigned char part[TRI_PULL_RANKS][TRI_PULL_UNIT];
};

void tri_pull_begin(struct tri_pull_worker *worker, const struct tri_pull *job,
                    const struct tri_pull_rank *self, size_t index, size_t workers);
/* The access that is next. */
struct tri_pull_access tri_pull_next(struct tri_pull_worker *worker);
/* It has been performed. False if it is to be performed again: a twin has not come yet. */
bool tri_pull_performed(struct tri_pull_worker *worker, uint64_t found);
/* May the worker give up the call? It waits at a barrier. */
bool tri_pull_waits(const struct tri_pull_worker *worker);
/* It does. Some accesses are left. */
void tri_pull_give_up(struct tri_pull_worker *worker);

#endif
