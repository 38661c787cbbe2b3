/* How far a worker of pull has got in a call: see pull_steps.h. */
#ifndef TRI_CPU_PULL_WORKER_H
#define TRI_CPU_PULL_WORKER_H

#include "kernels/pull.h"

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

/* Its members are those of pull_steps.c and pull_elements.c. Two workers at the same point of the same call have the same
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
    int32_t
        copied; /* of the round: parts or results that are moved; of a copy, ranks whose part is */
    uint32_t staged, ended; /* bools: the second, whether the last barrier is what is next */
    uint32_t left;          /* bool: the call is given up */
    _Alignas(16) unsigned char part[TRI_PULL_RANKS][TRI_PULL_UNIT];
};

#endif
