/* A model of pull: all orders in which the steps of its ranks can take effect, tried one by one.
 *
 * The steps are those of kernels/cpu/pull_steps.c, the code of the cpu table. The model has the memory
 * and decides when an access takes effect:
 *  - what a worker writes is on its way until the model lets it arrive, in any order with what else is on
 *    its way, but behind what the same worker wrote before to the same place; a release arrives behind all
 *    that its worker wrote before; all of a call arrives before the next call of the same rank begins;
 *  - a worker that reads finds what is in memory, or what it has itself on its way there;
 *  - if there are aborts, a worker that waits at a barrier may give up at any time.
 * When the call of a rank has ended, both of its buffers are overwritten at once.
 *
 * What must hold: every result is right; nobody accesses a buffer of a rank that has not begun the call, or
 * has ended it, whether given up or not; somebody can always go on until all calls have ended. */
#ifndef TRI_TESTS_PULL_MODEL_H
#define TRI_TESTS_PULL_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/pull.h"

enum { MODEL_RANKS = 3, MODEL_WORKERS = 2, MODEL_CALLS = 4, MODEL_ELEMENTS = 12 };

/* What is done wrong. */
enum model_bug {
    MODEL_RIGHT,
    MODEL_RELAXED,  /* releases do not wait for what was written before */
    MODEL_NO_FIRST, /* nobody waits at the first barrier */
    MODEL_NO_LAST,  /* nor at the last */
    MODEL_NO_PIECE, /* nor between pieces */
    MODEL_ONE_HALF, /* both halves of scratch are one */
    MODEL_ALONE,    /* who gives up does not wait for twins that have its buffers */
    MODEL_DEAF      /* who comes late takes buffers of a twin that has left */
};

struct model_call {
    size_t count; /* of u32 */
    enum tri_pull_way way;
    size_t workers;
    unsigned in_place, unmapped; /* bits, by rank */
    enum tri_pull_kind kind;     /* the root is the last rank */
};

struct model {
    int ranks;
    size_t n;
    struct model_call calls[MODEL_CALLS];
    bool aborts;
    enum model_bug bug;
    size_t most;  /* states, at most so many */
    size_t walks; /* 0: all states; otherwise so many random ways from beginning to end */
};

struct model_report {
    size_t states;
    size_t deepest;    /* steps */
    bool whole;        /* the limit was not met */
    const char *wrong; /* NULL: nothing */
};

struct model_report model_explore(const struct model *model);

#endif
