/* A communicator whose ranks are all on one device, and its calls of pull. */
#ifndef TRI_TESTS_CONFORMANCE_PULL_WORLD_H
#define TRI_TESTS_CONFORMANCE_PULL_WORLD_H

#include "tests/conformance/kernels/kernels.h"

enum { PULL_NOBODY = -1 };

/* A communicator: its scratch lies in the arena, its controls do not, for they outlast a call. */
struct pull_world {
    struct arena *arena;
    uint32_t *abort_flag;
    int size;
    size_t scratch_bytes;
    size_t scratch[TRI_PULL_RANKS], send[TRI_PULL_RANKS], recv[TRI_PULL_RANKS];
    struct list lists[TRI_PULL_RANKS];
    float weights[TRI_PULL_RANKS];
    size_t weights_at[TRI_PULL_RANKS];
    struct tri_pull_control *control[TRI_PULL_RANKS], *found;
};

/* One call of it. */
struct pull_case {
    trib_dtype dtype;
    trib_op op;
    size_t count; /* of a list: whatever its bucket has */
    enum tri_pull_way way;
    int blocks, unmapped; /* a rank, or PULL_NOBODY */
    bool in_place;        /* every other rank */
    bool alike;           /* buffers of all ranks lie alike in 16 bytes */
    enum kernels_numbers numbers;
    enum tri_pull_kind kind;
    int root;
    /* Every rank has a list of so many, whose bucket is reduced: some packed, some in a table. 0: none. */
    size_t slices;
    bool weighted; /* they are, f32 or f64 */
};

void pull_open(struct pull_world *w, struct arena *arena);
void pull_close(struct pull_world *w);
/* Controls as before the first call, and no abort. */
void pull_renew(struct pull_world *w);

/* Buffers, or lists, and scratch for every rank. */
void pull_place(struct pull_world *w, const struct pull_case *c);
/* The call in them, `here` of each rank. */
struct tri_pull pull_job(const struct pull_world *w, const struct pull_case *c,
                         struct tri_pull_rank *here);
/* All of it: placed, made, and every byte compared. */
void pull_call(struct pull_world *w, const struct pull_case *of);

#endif
