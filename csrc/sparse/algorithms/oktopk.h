/* oktopk: what its exact mode (oktopk.c) and published/oktopk_published.c share. */
#ifndef TRI_SPARSE_ALGORITHMS_OKTOPK_H
#define TRI_SPARSE_ALGORITHMS_OKTOPK_H

#include "csrc/sparse/algorithms/cut.h"
#include "csrc/sparse/algorithms/regions.h"

struct tri_oktopk {
    struct tri_regions regions;
    struct tri_cut_scratch cut;
    struct tri_entries chosen; /* L */
    struct tri_entries kept;   /* of the sums here, what is in G */
    struct tri_entries block;  /* this rank's block of G */
    struct tri_entries all;    /* G */
};

/* All but `kept`. `most`: that one rank chooses, and that G has. */
void tri_oktopk_lay_out(struct tri_oktopk *own, struct tri_arena *arena,
                        const struct tri_sparse_params *params, uint32_t most);

/* G on all ranks, from the counts[r] sums that each rank has kept, for which `all` has room; in equal
 * blocks if `balance`. */
trib_status tri_oktopk_gather(struct tri_run *run, struct tri_oktopk *own, uint32_t *counts,
                              bool balance);

/* The result is G; the decision; the residual loses what is in L and in G. */
trib_status tri_oktopk_finish(struct tri_run *run, struct tri_oktopk *own);

#endif
