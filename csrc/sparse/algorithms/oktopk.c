/* oktopk: near-optimal sparse allreduce.
 *
 * Problem. The sums of P lists of k entries are up to Pk entries, and gathering them costs words
 * that grow with P, wherever they are added up. Only about k of the sums matter: so the owners
 * choose again among the sums, and only those are gathered.
 *
 * Paper. Li and Hoefler, "Near-Optimal Sparse Allreduce for Distributed Deep Learning" (PPoPP
 * 2022). This is the exact mode; published/oktopk_published.c is the paper's, with thresholds that
 * are used again and again, where options.constants names a set of constants.
 *
 *   1. acc = gradient + residual; L = the k largest of acc, exactly.
 *   2. Regions: the ranks add up a histogram of their indices (4096 bins), and every rank computes
 *      from it the same bounds, between which equally many entries lie. Fetched.
 *   3. Counts and headers in one small allgather. Fetched. Entries to their owners, which add up in
 *      rank order.
 *   4. G = the k largest of all sums, exactly: histograms of their magnitudes' digits are added up
 *      over the ranks (cut.h); the sums themselves stay where they are. Counts in one small
 *      allgather. Fetched.
 *   5. Balance: G is one list, in index order, rank after rank; every rank gets an equal block of
 *      it. The blocks are gathered.
 *   6. The result is G, or its average; the decision; the residual loses what is in L and in G.
 *
 * Cost, in words of f32 entries (two each). With s entries of L outside this rank's region, and t
 * entries that the others have chosen in it, a rank sends at most
 *     2s + 2(k - floor(k/P)) + 2(P-1)ceil(k/P)       and receives at most
 *     2t + 2ceil(k/P) + 2(k - floor(k/P)),
 * by the exchange, the balance step and the gathering. Always s <= k, so no more than about 6k is
 * ever sent; t <= (P-1)k. Regions are balanced for s and t to be about k(P-1)/P; where they are no
 * more than that, neither sum is more than 6k(P-1)/P, but for the rounding of blocks (2P words).
 * Histograms are 16 KiB and three (f64: six) times 8 KiB per call: bytes, but no words. Three waits
 * for the stream.
 *
 * Invariant. Each entry of L is in one sum. A sum in G leaves the residual of exactly those ranks
 * that have contributed to it; a sum that is not in G, or is 0, stays with all of them.
 *
 * Different from the published code, where:
 *  - every 32nd call gathers all sums on all ranks to cut them: 15k words at 8 ranks, 38k at 32.
 *    Here the digits are added up;
 *  - BERT and LSTM look up L in G by a search that needs G in index order, which it is not in just
 *    those calls: the update is applied and kept. Here G is always in index order;
 *  - indices travel as float32, wrong above 2^24 (here u32);
 *  - exact steps choose the k-1 above the k-th magnitude (here the k largest);
 *  - a NaN is never sent and stays for ever (here the call is not applied). */
#include "csrc/sparse/algorithms/oktopk.h"

#include "csrc/sparse/algorithms/balance.h"
#include "csrc/sparse/link.h"

enum { BINS = 4096 };

struct oktopk {
    struct tri_oktopk both;
    uint32_t *bins;         /* on the device, and */
    uint32_t fetched[BINS]; /* on the host, of all ranks */
};

static size_t k_of(const struct tri_sparse_params *params)
{
    return params->k;
}

static size_t entries_of(const struct tri_sparse_params *params)
{
    return tri_regions_entries(params, params->k, params->count);
}

static void lay_out(void *memory, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct oktopk *own = memory;
    tri_oktopk_lay_out(&own->both, arena, params, params->k);
    own->both.kept = tri_arena_entries(arena, params->k, params->acc);
    own->bins = tri_arena_take(arena, BINS * sizeof *own->bins);
}

/* ---- both modes */

void tri_oktopk_lay_out(struct tri_oktopk *own, struct tri_arena *arena,
                        const struct tri_sparse_params *params, uint32_t most)
{
    tri_regions_lay_out(&own->regions, arena, params, most, params->count);
    tri_cut_lay_out(&own->cut, arena, params);
    own->chosen = tri_regions_chosen(&own->regions, arena, params, most);
    own->all = tri_arena_entries(arena, most, params->acc);
    own->block = tri_arena_entries(arena, most / (size_t)params->size + 1, params->acc);
}

trib_status tri_oktopk_gather(struct tri_run *run, struct tri_oktopk *own, uint32_t *counts,
                              bool balance)
{
    const struct tri_entries *send = &own->kept;
    if (balance) {
        TRI_TRY(tri_balance_blocks(run, &own->kept, counts, &own->block));
        send = &own->block;
    }
    return tri_link_allgather_entries(run, send, counts, &own->all);
}

trib_status tri_oktopk_finish(struct tri_run *run, struct tri_oktopk *own)
{
    TRI_TRY(tri_run_result(run, &own->all, 1, NULL));
    TRI_TRY(tri_regions_decide(run, &own->regions));
    run->scalars.selected = own->chosen.count;
    return tri_run_update_residual(run, &own->chosen, &own->all);
}

/* ---- the exact mode */

static trib_status balance_regions(struct tri_run *run, struct oktopk *own)
{
    const size_t count = run->params->count;
    const uint32_t width = (uint32_t)(count / BINS + (count % BINS != 0 || count == 0));
    TRI_TRY(run->kernels->index_histogram(&own->both.chosen, width, own->bins, BINS, run->stream));
    TRI_TRY(tri_link_allreduce(run, own->bins, BINS, TRIB_U32, false));
    TRI_TRY(tri_run_fetch(run, own->fetched, own->bins, sizeof own->fetched));
    tri_balance_bounds(own->both.regions.bounds, run->params->size, count, own->fetched, BINS,
                       width);
    return TRIB_OK;
}

static trib_status reduce(struct tri_run *run, struct oktopk *own)
{
    uint32_t counts[TRI_MAX_LISTS];
    TRI_TRY(tri_regions_reduce(run, &own->both.regions, &own->both.chosen));
    TRI_TRY(tri_cut_global(run, &own->both.cut, &own->both.regions.merged, run->params->k,
                           &own->both.kept));
    TRI_TRY(tri_regions_count(run, &own->both.regions, &own->both.kept, own->both.all.capacity,
                              counts));
    return tri_oktopk_gather(run, &own->both, counts, true);
}

static trib_status oktopk_run(struct tri_run *run, void *memory)
{
    struct oktopk *own = memory;
    struct tri_regions *regions = &own->both.regions;
    TRI_TRY(tri_run_select(run, tri_regions_header(regions, run), &own->both.chosen, false));
    TRI_TRY(balance_regions(run, own));
    TRI_TRY(tri_regions_exchange_rows(run, regions, &own->both.chosen, 0));
    if (!tri_regions_consistent(regions, run))
        return tri_regions_skip(run, regions);
    TRI_TRY(reduce(run, own));
    return tri_oktopk_finish(run, &own->both);
}

const struct tri_algorithm tri_sparse_oktopk = {
    .name = "oktopk",
    .waits = true,
    .own_bytes = sizeof(struct oktopk),
    .lay_out = lay_out,
    .entries = entries_of,
    .capacity = k_of,
    .run = oktopk_run,
    .selects = k_of,
    .published = &tri_sparse_oktopk_published,
};
