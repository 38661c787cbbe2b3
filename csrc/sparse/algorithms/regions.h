/* Regions: [0, count) cut into one range a rank, its owner. Every rank sends its entries to the
 * owners of their indices, and each owner adds up what has come, in rank order. Which bounds there
 * are is the algorithm's business; they have to be the same on all ranks. */
#ifndef TRI_SPARSE_ALGORITHMS_REGIONS_H
#define TRI_SPARSE_ALGORITHMS_REGIONS_H

#include "csrc/sparse/run.h"

/* What every rank tells every other before entries travel. A multiple of 64 bytes. */
struct tri_regions_row {
    struct tri_header header;
    uint32_t wishes;                       /* bits of the algorithm's own */
    uint32_t positions[TRI_MAX_LISTS + 1]; /* how many of its entries lie below each bound */
    uint64_t note[2];                      /* of the algorithm's own */
    uint32_t reserved[10];
};

struct tri_regions {
    /* Host memory. */
    uint64_t bounds[TRI_MAX_LISTS + 1]; /* rank r owns [bounds[r], bounds[r + 1]); the caller's */
    struct tri_regions_row told[TRI_MAX_LISTS]; /* after meet, by each rank */
    uint32_t wishes;                            /* after meet, of all ranks together */
    struct tri_entries parts[TRI_MAX_LISTS];    /* after reduce: of this region, from each rank */

    /* Device memory. */
    struct tri_regions_row *rows;
    uint32_t *counts;           /* one a rank */
    struct tri_entries arrived; /* from the other ranks, one after the other */
    struct tri_entries merged;  /* the sums of this rank's region */
};

/* `chosen`: the most entries that a rank has; `region`: the most elements that a region has. */
void tri_regions_lay_out(struct tri_regions *regions, struct tri_arena *arena,
                         const struct tri_sparse_params *params, size_t chosen, size_t region);
/* The most entries that the lists of one region, or the sums of all regions, hold together. */
size_t tri_regions_entries(const struct tri_sparse_params *params, size_t chosen, size_t region);

/* Room for this rank's own entries. Their count is the header's. */
struct tri_entries tri_regions_chosen(const struct tri_regions *regions, struct tri_arena *arena,
                                      const struct tri_sparse_params *params, size_t chosen);
/* This rank's header, for select. */
struct tri_header *tri_regions_header(const struct tri_regions *regions, const struct tri_run *run);

/* Regions of equal size: [r * count / size, (r + 1) * count / size). */
void tri_regions_equal(struct tri_regions *regions, const struct tri_sparse_params *params);

/* Where `entries` lie, this rank's `wishes` and its header to all ranks, and theirs here. Waits for
 * the stream. */
trib_status tri_regions_meet(struct tri_run *run, struct tri_regions *regions,
                             const struct tri_entries *entries, uint32_t wishes);

/* Whether the call is applied, as far as the headers tell: the same on all ranks, and so whether to
 * go on. Only an abort can still prevent it. */
bool tri_regions_agree(const struct tri_regions *regions, const struct tri_run *run);

/* The end of a call that is not applied: commit says so, and the result is 0. */
trib_status tri_regions_give_up(struct tri_run *run, const struct tri_regions *regions);

trib_status tri_regions_commit(struct tri_run *run, const struct tri_regions *regions);

/* After meet, of the same entries: all entries to their owners; parts and merged of this region. */
trib_status tri_regions_reduce(struct tri_run *run, struct tri_regions *regions,
                               const struct tri_entries *entries);

/* counts[r] (host memory) = how many `entries` rank r has. Waits for the stream. */
trib_status tri_regions_count(struct tri_run *run, const struct tri_regions *regions,
                              const struct tri_entries *entries, uint32_t *counts);

#endif
