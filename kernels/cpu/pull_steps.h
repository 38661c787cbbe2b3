/* A worker's way through a call of pull, one access to shared memory at a time.
 *
 * A worker is what a block is on a GPU. What is next, and what follows from it, is decided here, once. Who
 * performs the accesses decides when: pull.c at once, a model checker in every order that there is. */
#ifndef TRI_CPU_PULL_STEPS_H
#define TRI_CPU_PULL_STEPS_H

#include "kernels/cpu/pull_worker.h"

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
