/* topksa, which gaussianksa runs without its dense half. */
#ifndef TRI_SPARSE_PUBLISHED_TOPKSA_H
#define TRI_SPARSE_PUBLISHED_TOPKSA_H

#include "csrc/sparse/algorithms/regions.h"

struct tri_topksa {
    struct tri_regions regions;
    struct tri_entries chosen, gathered;
    void *sums; /* dense, of acc's type; NULL if the result is of that type, or never dense */
};

/* `dense`: the second half of a call may be. */
void tri_topksa_lay_out(struct tri_topksa *own, struct tri_arena *arena,
                        const struct tri_sparse_params *params, bool dense);
size_t tri_topksa_entries(const struct tri_sparse_params *params);
size_t tri_topksa_selects(const struct tri_sparse_params *params);
size_t tri_topksa_capacity(const struct tri_sparse_params *params);
trib_status tri_topksa_run(struct tri_run *run, struct tri_topksa *own, bool dense);

#endif
