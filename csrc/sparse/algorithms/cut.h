/* Exact cuts of entries: the k largest of one rank's list, or of all ranks' lists together. */
#ifndef TRI_SPARSE_ALGORITHMS_CUT_H
#define TRI_SPARSE_ALGORITHMS_CUT_H

#include "csrc/sparse/run.h"

/* Device memory for cuts. */
struct tri_cut_scratch {
    struct tri_cut *cut;
    uint32_t *histogram; /* TRI_CUT_DIGITS */
    uint32_t *ties;      /* one per rank */
};
void tri_cut_lay_out(struct tri_cut_scratch *scratch, struct tri_arena *arena,
                     const struct tri_sparse_params *params);

/* kept = the k largest of `entries`; dropped (may be NULL) = the others. */
trib_status tri_cut_local(struct tri_run *run, const struct tri_cut_scratch *scratch,
                          const struct tri_entries *entries, uint32_t k,
                          const struct tri_entries *kept, const struct tri_entries *dropped);

/* kept = those of this rank's `entries` that are among the k largest of all ranks' entries, whose
 * indices lie in ascending regions, rank after rank. The histograms are added up over the ranks;
 * no entries travel. Afterwards scratch->cut->key is the smallest key that is kept (0 if all
 * are). */
trib_status tri_cut_global(struct tri_run *run, const struct tri_cut_scratch *scratch,
                           const struct tri_entries *entries, uint32_t k,
                           const struct tri_entries *kept);

/* kept = those above *threshold (device, of the entries' type). */
trib_status tri_cut_above(struct tri_run *run, const struct tri_cut_scratch *scratch,
                          const struct tri_entries *entries, const void *threshold,
                          const struct tri_entries *kept);

#endif
