/* What every backend must do, through the public API alone. A backend gets the whole suite with one
 * line: backend_host_test.c and backend_nccl_test.c are its instances.
 *
 * Every call is made by every rank on guarded memory full of poison, with inputs whose result is
 * exact (reference.h), and all of the memory is compared afterwards, guards and inputs included. */
#ifndef TRI_TESTS_CONFORMANCE_BACKEND_H
#define TRI_TESTS_CONFORMANCE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/team.h"

/* How much of it. */
enum backend_depth {
    BACKEND_WHOLE, /* every root, every count */
    BACKEND_QUICK, /* every kind, type and reduction; fewer roots and counts */
    BACKEND_LIGHT  /* every kind, few types */
};

/* What the ranks have of each other's memory (PEERS). */
enum backend_reach {
    BACKEND_REACHES_NONE,
    BACKEND_REACHES_SMALL, /* for small calls: push */
    BACKEND_REACHES_ALL    /* for large ones, too: pull */
};

struct suite {
    struct team team;
    enum backend_reach reach; /* when they were made */
    enum backend_depth depth;
    const char *how; /* the communicators were made by "id", "group", ... */
    uint64_t seed;   /* another one for each case, so that no stale result passes */
};

/* Every test of the suite for `size` ranks. */
void backend_suite(const char *backend, int size, enum backend_depth depth);
/* BACKEND_QUICK if the environment has TRIB_TEST_QUICK, else BACKEND_WHOLE. */
enum backend_depth backend_depth(void);
/* Collectives compared so far, each rank's part counted. */
uint64_t backend_compared(void);

/* ------------------------------------------------------------------- parts, for backend.c */

/* Sequences to walk: 0 or more numbers and their count. */
struct counts {
    size_t n, at[8];
};
struct counts backend_counts(const struct suite *suite, trib_dtype dtype);
/* Is `root` to be tried in the `turn`th round? Every root is, over a few rounds. */
bool backend_root(const struct suite *suite, int root, int turn);
bool backend_dtype(const struct suite *suite, trib_dtype dtype);

/* Wait for the rank's stream and compare both buffers (NULL: none). */
bool backend_compare(struct suite *suite, int rank, struct guarded *send, struct guarded *recv,
                     const char *what);
/* After a call that failed on this rank alone the others would wait for ever: abort. Returns
 * `good`. */
bool backend_go_on(struct suite *suite, int rank, bool good);

void backend_collectives(struct suite *suite); /* of one count: allreduce to scatter */
void backend_variants(struct suite *suite); /* of those with options, by the name of each variant */
void backend_rounding(struct suite *suite); /* of floats, against the exact results */
void backend_points(struct suite *suite);   /* send, recv, barrier, allgatherv, alltoallv, batch */
void backend_batches(struct suite *suite);  /* that end together */
void backend_lists(struct suite *suite);    /* lists and weighted averages */
void backend_factors(struct suite *suite);  /* calls with a factor */
void backend_reducers(struct suite *suite);
void backend_reducer_buckets(struct suite *suite);
void backend_reducers_in_place(struct suite *suite);
void backend_weighted_reducers(struct suite *suite);
void backend_sparse_reducers(struct suite *suite);
void backend_symmetric(struct suite *suite); /* memory of all ranks */
void backend_streams(struct suite *suite);   /* order, events, the default stream */
void backend_groups(const char *backend, int size, enum backend_depth depth);
void backend_group_averages(const char *backend, int size);
void backend_splits(struct suite *suite);
void backend_closing(const char *backend, int size);

#endif
