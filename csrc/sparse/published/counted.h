/* Lists of any length, shared by topkaopt, gaussiank and gaussiankconcat. A rank chooses all
 * entries above a threshold; the headers carry the counts, which every host fetches; then all
 * entries travel, and the result contains all of them. */
#ifndef TRI_SPARSE_PUBLISHED_COUNTED_H
#define TRI_SPARSE_PUBLISHED_COUNTED_H

#include "csrc/sparse/run.h"

struct tri_counted {
    /* Device memory. */
    struct tri_header *headers; /* one per rank, and behind them room for one value of acc's type */
    struct tri_entries chosen;  /* by this rank; their count is its header's */
    struct tri_entries merged;  /* where the result is entries */

    /* Host memory, after tri_counted_fetch. */
    uint32_t counts[TRI_MAX_LISTS];
    bool consistent; /* by the headers the call is applied: the same on all ranks */
};

void tri_counted_lay_out(struct tri_counted *counted, struct tri_arena *arena,
                         const struct tri_sparse_params *params);

/* Of an algorithm: all lists together, and the most entries of a result. */
size_t tri_counted_entries(const struct tri_sparse_params *params);
size_t tri_counted_capacity(const struct tri_sparse_params *params);

/* This rank's header, for select; and the value that is fetched together with the headers. */
struct tri_header *tri_counted_header(const struct tri_counted *counted, const struct tri_run *run);
void *tri_counted_value(const struct tri_counted *counted, const struct tri_run *run);

/* All headers to all ranks, and what they say to host memory; so too the value, if not NULL. Waits
 * for the stream. */
trib_status tri_counted_fetch(struct tri_run *run, struct tri_counted *counted, double *value);

/* If the headers agree: all entries to all ranks, together in `gathered` (of the algorithm, with
 * room for tri_counted_entries). Then, in any case, finish. */
trib_status tri_counted_gather(struct tri_run *run, struct tri_counted *counted,
                               const struct tri_entries *gathered, bool cleared);

/* The result is the sum of `lists`, one per rank; the decision; the residual loses what was chosen,
 * unless select has `cleared` it. Without lists (NULL) the call is not applied. */
trib_status tri_counted_finish(struct tri_run *run, struct tri_counted *counted,
                               const struct tri_entries *lists, bool cleared);

#endif
