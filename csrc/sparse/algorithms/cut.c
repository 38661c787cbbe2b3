/* Exact cuts of entries: digit by digit, as a radix sort would, but only as far as the one digit in
 * which the last wanted entry lies. */
#include "csrc/sparse/algorithms/cut.h"

#include "csrc/sparse/link.h"

void tri_cut_lay_out(struct tri_cut_scratch *scratch, struct tri_arena *arena,
                     const struct tri_sparse_params *params)
{
    scratch->cut = tri_arena_take(arena, sizeof *scratch->cut);
    scratch->histogram = tri_arena_take(arena, TRI_CUT_DIGITS * sizeof *scratch->histogram);
    scratch->ties = tri_arena_take(arena, (size_t)params->size * sizeof *scratch->ties);
}

/* The end of the k largest: of these entries, or, `global`, of those of all ranks. */
static trib_status find(struct tri_run *run, const struct tri_cut_scratch *scratch,
                        const struct tri_entries *entries, uint32_t k, bool global)
{
    const struct tri_sparse_kernels *kernels = run->kernels;
    TRI_TRY(kernels->radix_init(scratch->cut, k, NULL, entries->dtype, run->stream));
    for (int round = 0; round < tri_cut_rounds(entries->dtype); round++) {
        TRI_TRY(kernels->radix_histogram(entries, scratch->cut, round, scratch->histogram,
                                         run->stream));
        if (global)
            TRI_TRY(tri_link_allreduce(run, scratch->histogram, TRI_CUT_DIGITS, TRIB_U32, false));
        TRI_TRY(kernels->radix_refine(scratch->cut, round, scratch->histogram, entries->dtype,
                                      run->stream));
    }
    return TRIB_OK;
}

trib_status tri_cut_local(struct tri_run *run, const struct tri_cut_scratch *scratch,
                          const struct tri_entries *entries, uint32_t k,
                          const struct tri_entries *kept, const struct tri_entries *dropped)
{
    TRI_TRY(find(run, scratch, entries, k, false));
    return run->kernels->radix_partition(entries, scratch->cut, kept, dropped, run->scratch,
                                         run->stream);
}

/* Of the entries that are equal to the key, lower ranks' come first. */
static trib_status share(struct tri_run *run, const struct tri_cut_scratch *scratch,
                         const struct tri_entries *entries)
{
    const struct tri_sparse_kernels *kernels = run->kernels;
    const int32_t rank = run->params->rank;
    uint32_t *own = &scratch->ties[rank];
    TRI_TRY(kernels->count_ties(entries, scratch->cut, own, run->scratch, run->stream));
    TRI_TRY(tri_link_allgather(run, own, scratch->ties, sizeof *own, 0));
    return kernels->share_ties(scratch->cut, scratch->ties, rank, run->stream);
}

trib_status tri_cut_global(struct tri_run *run, const struct tri_cut_scratch *scratch,
                           const struct tri_entries *entries, uint32_t k,
                           const struct tri_entries *kept)
{
    TRI_TRY(find(run, scratch, entries, k, true));
    TRI_TRY(share(run, scratch, entries));
    return run->kernels->radix_partition(entries, scratch->cut, kept, NULL, run->scratch,
                                         run->stream);
}

trib_status tri_cut_above(struct tri_run *run, const struct tri_cut_scratch *scratch,
                          const struct tri_entries *entries, const void *threshold,
                          const struct tri_entries *kept)
{
    TRI_TRY(run->kernels->radix_init(scratch->cut, 0, threshold, entries->dtype, run->stream));
    return run->kernels->radix_partition(entries, scratch->cut, kept, NULL, run->scratch,
                                         run->stream);
}
