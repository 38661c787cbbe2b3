/* A model of push: all orders in which the steps of its ranks can take effect, tried one by one.
 *
 * The steps are those of kernels/cpu/push_steps.c, the code of the cpu table. The model has the memory
 * and decides when an access takes effect:
 *  - a granule that is stored into a peer's scratch is on its way until the model lets it arrive, in
 *    any order with others (two for one granule arrive in theirs), even after the call has ended;
 *  - an EMPTY that a worker puts back is on its way too, at most until its rank begins its next call;
 *  - a worker that polls reads what is in memory, and goes on if that is full.
 * Everything is tried, so each rank is at some time later than the others by as much as can be.
 *
 * What must hold: a result is that of its own call, on every rank; a granule that arrives finds EMPTY
 * in its place; somebody can always go on until all calls have ended; then all is EMPTY again. */
#ifndef TRI_TESTS_PUSH_MODEL_H
#define TRI_TESTS_PUSH_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/push.h"

enum { MODEL_RANKS = 3, MODEL_WORKERS = 2, MODEL_CALLS = 7, MODEL_CHUNKS = 4 };

/* What is done wrong. */
enum model_bug {
    MODEL_RIGHT,
    MODEL_EARLY_EPOCH,  /* the first worker of a call begins the next epoch, not the last */
    MODEL_ONE_BUFFER,   /* both buffers are one */
    MODEL_NOT_RESTORED, /* EMPTY is not put back */
    MODEL_LATE_RESTORE, /* a rank begins its next call with EMPTYs on their way */
    MODEL_SILENT, /* who has nothing to send in a broadcast sends nothing; nobody waits for it */
    MODEL_NOT_CANONICAL, /* a granule of all ones is sent as it is */
    MODEL_HALF_A_CHUNK,  /* the first granule of a chunk speaks for the second */
    MODEL_BUGS
};

/* The kinds but allreduce are of wide granules; `count` is of elements of 4 bytes. */
struct model_call {
    size_t count;
    size_t workers[MODEL_RANKS];
    enum tri_push_kind kind;
    int root;
};

struct model {
    int ranks;
    size_t n;
    struct model_call calls[MODEL_CALLS];
    trib_dtype dtype; /* F32 or I32 */
    bool nans;        /* every element that is sent has all bits 1 */
    enum model_bug bug;
    size_t most;  /* states, at most so many */
    size_t depth; /* steps from the beginning, at most so many; 0: all */
};

struct model_report {
    size_t states;
    size_t deepest;    /* steps */
    bool whole;        /* neither limit was met */
    const char *wrong; /* NULL: nothing */
};

struct model_report model_explore(const struct model *model);

#endif
