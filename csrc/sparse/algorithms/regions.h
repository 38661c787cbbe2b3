/* Regions: [0, count) cut into one range per rank, its owner. Every rank sends its entries to the
 * owners of their indices; each owner adds up what it receives, in rank order. The algorithm
 * chooses the bounds, the same on all ranks. */
#ifndef TRI_SPARSE_ALGORITHMS_REGIONS_H
#define TRI_SPARSE_ALGORITHMS_REGIONS_H

#include "csrc/sparse/run.h"

/* All ranks' rows reach all ranks before entries travel. A multiple of 64 bytes. */
struct tri_regions_row {
    struct tri_header header;
    uint32_t flags;                        /* the algorithm's */
    uint32_t positions[TRI_MAX_LISTS + 1]; /* how many of its entries lie below each bound */
    uint64_t user_data[2];                 /* the algorithm's */
    uint32_t reserved[10];
};

struct tri_regions {
    /* Host memory. */
    uint64_t bounds[TRI_MAX_LISTS + 1]; /* rank r owns [bounds[r], bounds[r + 1]); the caller's */
    struct tri_regions_row rows[TRI_MAX_LISTS]; /* after exchange_rows: of each rank */
    uint32_t flags;                             /* after exchange_rows: of any rank */
    uint32_t most;                              /* entries that a rank may have chosen */
    struct tri_entries parts[TRI_MAX_LISTS];    /* after reduce: of this region, from each rank */

    /* Device memory. */
    struct tri_regions_row *device_rows;
    uint32_t *counts;           /* one per rank */
    struct tri_entries arrived; /* from the other ranks, one after the other */
    struct tri_entries merged;  /* the sums of this rank's region */
};

/* At most: `chosen` entries of a rank, `region` elements of a region. */
void tri_regions_lay_out(struct tri_regions *regions, struct tri_arena *arena,
                         const struct tri_sparse_params *params, size_t chosen, size_t region);
/* At most so many entries are in all lists of one region, and in the sums of all regions. */
size_t tri_regions_entries(const struct tri_sparse_params *params, size_t chosen, size_t region);

/* Room for this rank's own entries. Their count is the header's. */
struct tri_entries tri_regions_chosen(const struct tri_regions *regions, struct tri_arena *arena,
                                      const struct tri_sparse_params *params, size_t chosen);
/* This rank's header, for select. */
struct tri_header *tri_regions_header(const struct tri_regions *regions, const struct tri_run *run);

/* Regions of equal size: [r * count / size, (r + 1) * count / size). */
void tri_regions_equal(struct tri_regions *regions, const struct tri_sparse_params *params);

/* All ranks' rows to all ranks: this one's says where `entries` lie, and has the flags and the
 * header. Waits for the stream. */
trib_status tri_regions_exchange_rows(struct tri_run *run, struct tri_regions *regions,
                                      const struct tri_entries *entries, uint32_t flags);

/* True if the headers allow the call to be applied; otherwise it ends here. The same on all ranks.
 * An abort, or a result that overflows, may still prevent it. */
bool tri_regions_consistent(const struct tri_regions *regions, const struct tri_run *run);

/* The end of a call that is not consistent: the result is 0, and decide does not apply the call. */
trib_status tri_regions_skip(struct tri_run *run, const struct tri_regions *regions);

trib_status tri_regions_decide(struct tri_run *run, const struct tri_regions *regions);

/* After exchange_rows, of the same entries: all entries to their owners; parts and merged of this
 * region. Fails before anything travels if a row cannot be of a list that the bounds cut. */
trib_status tri_regions_reduce(struct tri_run *run, struct tri_regions *regions,
                               const struct tri_entries *entries);

/* counts[r] (host memory) = how many `entries` rank r has: at most their capacity, which is the same
 * on all ranks, and together at most `room`; otherwise it fails. Waits for the stream. */
trib_status tri_regions_count(struct tri_run *run, const struct tri_regions *regions,
                              const struct tri_entries *entries, size_t room, uint32_t *counts);

#endif
