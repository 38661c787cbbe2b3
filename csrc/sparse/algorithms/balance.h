/* Even shares: regions of equally many entries, and one list in blocks of equal length. */
#ifndef TRI_SPARSE_ALGORITHMS_BALANCE_H
#define TRI_SPARSE_ALGORITHMS_BALANCE_H

#include "csrc/sparse/run.h"

/* Bounds (size + 1) of [0, count) between which equally many entries lie. bins[b] entries have an
 * index / width of b; within a bin they are taken to be spread evenly, so a region holds total /
 * size entries, give or take what lies in the two bins that its bounds cut. No entries: equal
 * regions. */
void tri_balance_bounds(uint64_t *bounds, int32_t size, size_t count, const uint32_t *bins,
                        uint32_t nbins, uint32_t width);

/* Bounds that are the means of the ranks' own, rounded down: rank r's `size` own ones are at own +
 * r * size, the first of them unused. Fails, and sets none, unless they ascend up to the count. */
trib_status tri_balance_mean(const struct tri_run *run, uint64_t *bounds, const uint32_t *own);

/* counts[r] entries of rank r, as tri_regions_count has checked them, are one list, rank after rank. Moves them so that every rank holds
 * its block of it, into `block`; blocks differ by one entry at most, lower ranks have the longer
 * ones. counts[r] becomes the length of rank r's block. */
trib_status tri_balance_blocks(struct tri_run *run, const struct tri_entries *entries,
                               uint32_t *counts, const struct tri_entries *block);

#endif
