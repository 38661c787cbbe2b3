/* oktopk with constants: the mode of the published code, with thresholds that it uses again.
 *
 * Problem. algorithms/oktopk.c has it, and the exact mode. An exact choice reads acc several times;
 * a threshold of an earlier call needs no search.
 *
 * Paper. Li and Hoefler, "Near-Optimal Sparse Allreduce for Distributed Deep Learning" (PPoPP
 * 2022), and its published code (constants "vgg", "lstm", "bert": constants.c).
 *
 *   1. Every 32nd (bert 128th) call L is the k largest of acc, and its smallest magnitude becomes
 *      the local threshold. In between L is what lies above the threshold, raised before by up to
 *      five steps while that is far too much (not bert).
 *   2. Every 64th call the regions are made anew: each rank proposes bounds between which its own
 *      entries are evenly spread, and the bounds are the means of the ranks' bounds.
 *   3. As step 3 of the exact mode.
 *   4. Every 32nd (128th) call G is the k largest sums, and the k-th magnitude becomes the global
 *      threshold. In between G is what lies above it.
 *   5. Balance, bert alone; the blocks are gathered.
 *   6. As in the exact mode. Then both thresholds move by a step if L or G had too many or too few
 *      entries.
 * After TRI_IDLE_CALLS calls in a row with an empty L, a rank's next L is exact, as in 1; with an
 * empty G, the next G is, as in 4. A first call, and one after k was set or a state was imported or
 * reset, does all of it anew, whatever its number: a rank without a threshold says so in its row,
 * and all ranks cut exactly with it. The paper's dense warm-up is the caller's: set the density to
 * 1 for as long, which is dense (algorithm.h).
 *
 * Cost: 6k(P-1)/P words if L and G have k entries, all in balance. They may have up to 4k + 1024
 * (tri_limit). At the start they do, for the first threshold was made of gradients alone: with
 * "bert", which does not raise it before it is used and makes small steps, L does for about 35
 * calls, and three times as many words are sent; with "vgg" and "lstm" L has 3k in two calls. Two
 * waits for the stream, and two more where regions are made anew.
 *
 * Invariant. As in the exact mode.
 *
 * Different from the published code: all that the exact mode differs in; and there
 *  - one rank, an empty selection, and fewer entries than ranks are errors or collapse all regions
 *    (here such a rank proposes equal regions); bounds are added up in 32 bits (here 64);
 *  - if there are fewer sums than k, the smallest is the threshold (here the next call cuts again);
 *  - a threshold that has become too high, for gradients have become smaller, applies nothing until
 *    the next exact call (here no longer than TRI_IDLE_CALLS calls). */
#include <string.h>

#include "csrc/sparse/algorithms/balance.h"
#include "csrc/sparse/algorithms/oktopk.h"
#include "csrc/sparse/link.h"
#include "csrc/sparse/published/constants.h"

enum { THRESHOLDS = 2 * sizeof(uint64_t) };

/* Flags of a row: its rank asks all ranks for new bounds, or for an exact cut of the sums. */
enum { FLAG_BOUNDS = 1u << 0, FLAG_EXACT_SUMS = 1u << 1 };

struct persistent_host {
    uint32_t begun; /* the thresholds are numbers */
    /* And the local one is not 0, as far as the host has seen (if it is: topkaopt.c, keep). */
    uint32_t has_local;
    struct tri_idle local, global; /* L here, G everywhere */
};

struct oktopk {
    struct tri_oktopk both;

    /* Thresholds of acc's type, on the device; 0: none yet. Only an applied call changes them. */
    char *thresholds;               /* local and global, 8 bytes each */
    void *local, *global;           /* in them */
    void *used_local, *used_global; /* of this call */

    uint32_t *rank_bounds; /* proposed by each rank, size per rank; on the device, and */
    uint32_t fetched[TRI_MAX_LISTS * TRI_MAX_LISTS]; /* on the host */
    bool has_bounds;
    struct persistent_host persistent;
};

static size_t capacity_of(const struct tri_sparse_params *params)
{
    return tri_limit(params);
}

static size_t entries_of(const struct tri_sparse_params *params)
{
    return tri_regions_entries(params, tri_limit(params), params->count);
}

static void lay_out(void *memory, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct oktopk *own = memory;
    const size_t size = (size_t)params->size;
    tri_oktopk_lay_out(&own->both, arena, params, tri_limit(params));
    own->both.kept = tri_arena_entries(arena, own->both.regions.merged.capacity, params->acc);
    own->thresholds = tri_arena_take(arena, THRESHOLDS);
    own->local = own->thresholds;
    own->global = own->thresholds == NULL ? NULL : own->thresholds + THRESHOLDS / 2;
    own->used_local = tri_arena_take(arena, sizeof(uint64_t));
    own->used_global = tri_arena_take(arena, sizeof(uint64_t));
    own->rank_bounds = tri_arena_take(arena, size * size * sizeof *own->rank_bounds);
}

/* The threshold that L is chosen above: as it was kept, or raised, and then acc has been made. */
static trib_status raise_local(struct tri_run *run, struct oktopk *own,
                               struct tri_selection *selection)
{
    const struct tri_sparse_params *params = run->params;
    const struct tri_fit clamp = tri_rule_fit(&params->constants->clamp, params->k);
    selection->threshold = own->local;
    if (clamp.raise_steps == 0)
        return TRIB_OK;
    TRI_TRY(run->kernels->accumulate(&run->acc, selection->signing, run->stream));
    TRI_TRY(run->kernels->fit(&run->acc, &clamp, own->local, own->used_local, run->scratch,
                              run->stream));
    selection->threshold = own->used_local;
    selection->accumulate = false;
    selection->signing.header = NULL;
    return TRIB_OK;
}

/* L. *used is the threshold that it has made, or was chosen above. */
static trib_status choose(struct tri_run *run, struct oktopk *own, bool exact, const void **used)
{
    const struct tri_sparse_params *params = run->params;
    struct tri_header *header = tri_regions_header(&own->both.regions, run);
    struct tri_selection selection = {
        .count = params->count,
        .k = exact ? params->k : tri_limit(params),
        .accumulate = !params->in_place,
        .signing = tri_run_signing(run, header),
        .kth = exact ? own->used_local : NULL,
        .fallbacks = run->scalars.fallbacks,
    };
    if (!exact)
        TRI_TRY(raise_local(run, own, &selection));
    *used = exact ? own->used_local : selection.threshold;
    return run->kernels->select(&run->acc, &selection, &own->both.chosen, run->scratch,
                                run->stream);
}

/* All ranks get to know where L lies, the thresholds, and the flags. */
static trib_status exchange_rows(struct tri_run *run, struct oktopk *own)
{
    const struct tri_constants *constants = run->params->constants;
    const bool bounds = !own->has_bounds || run->step % constants->regions_every == 0;
    const bool exact =
        run->step % constants->exact_every == 0 || tri_idle_too_long(&own->persistent.global);
    TRI_TRY(tri_run_put(run, own->both.regions.device_rows[run->params->rank].user_data,
                        own->thresholds, THRESHOLDS));
    if (!own->has_bounds)
        tri_regions_equal(&own->both.regions, run->params);
    return tri_regions_exchange_rows(run, &own->both.regions, &own->both.chosen,
                                     (bounds ? FLAG_BOUNDS : 0) | (exact ? FLAG_EXACT_SUMS : 0));
}

/* The bounds that this rank proposes, between which its `n` entries are evenly spread; equal
 * regions if it has fewer entries than there are ranks. */
static trib_status propose(struct tri_run *run, struct oktopk *own, uint32_t n, uint32_t *mine)
{
    const uint32_t size = (uint32_t)run->params->size, part = n / size;
    uint32_t equal[TRI_MAX_LISTS];
    if (part == 0) {
        for (uint32_t b = 0; b < size; b++)
            equal[b] = (uint32_t)((uint64_t)run->params->count * b / size);
        return tri_run_put(run, mine, equal, size * sizeof *mine);
    }
    for (uint32_t b = 0; b < size; b++)
        TRI_TRY(
            tri_run_put(run, &mine[b], &own->both.chosen.index[(size_t)b * part], sizeof *mine));
    return TRIB_OK;
}

/* New regions, and the place of L in them. The means are the same on all ranks. */
static trib_status move_regions(struct tri_run *run, struct oktopk *own)
{
    struct tri_regions *regions = &own->both.regions;
    const int32_t rank = run->params->rank, size = run->params->size;
    const size_t bytes = (size_t)size * sizeof *own->rank_bounds;
    const uint32_t flags = regions->rows[rank].flags;
    uint32_t *mine = own->rank_bounds + (size_t)rank * (size_t)size;
    TRI_TRY(propose(run, own, regions->rows[rank].header.count, mine));
    TRI_TRY(tri_link_allgather(run, mine, own->rank_bounds, bytes, 0));
    TRI_TRY(tri_run_fetch(run, own->fetched, own->rank_bounds, (size_t)size * bytes));
    TRI_TRY(tri_balance_mean(run, regions->bounds, own->fetched));
    own->has_bounds = true;
    return tri_regions_exchange_rows(run, regions, &own->both.chosen, flags);
}

/* True if G is cut exactly: one of the ranks has no threshold, it is time, or G was long empty. */
static bool exact_sums(struct tri_run *run, const struct oktopk *own)
{
    for (int32_t r = 0; r < run->params->size; r++)
        if (own->both.regions.rows[r].user_data[1] == 0)
            return true;
    if ((own->both.regions.flags & FLAG_EXACT_SUMS) == 0)
        return false;
    run->fallbacks += run->step % run->params->constants->exact_every != 0;
    return true;
}

/* True if L is chosen exactly, for the same reasons. */
static bool exact_choice(struct tri_run *run, const struct oktopk *own)
{
    if (!own->persistent.has_local || run->step % run->params->constants->exact_every == 0)
        return true;
    run->fallbacks += tri_idle_too_long(&own->persistent.local);
    return tri_idle_too_long(&own->persistent.local);
}

/* The smallest magnitude of the k largest sums is the key of the cut, which is its bits: the low
 * bytes of a number that both host and device store with those first. 0 if there are fewer than k,
 * and with k = 0, where the key is no number. */
static trib_status cut_exactly(struct tri_run *run, struct oktopk *own, uint32_t *counts)
{
    static const uint64_t none;
    const void *least = run->params->k == 0 ? &none : &own->both.cut.cut->key;
    TRI_TRY(tri_cut_global(run, &own->both.cut, &own->both.regions.merged, run->params->k,
                           &own->both.kept));
    TRI_TRY(tri_run_put(run, own->used_global, least, trib_dtype_size(run->params->acc)));
    return tri_regions_count(run, &own->both.regions, &own->both.kept, own->both.all.capacity,
                             counts);
}

static uint64_t sum(const uint32_t *counts, int32_t n)
{
    uint64_t sum = 0;
    for (int32_t r = 0; r < n; r++)
        sum += counts[r];
    return sum;
}

/* The sums above the threshold; of more than tri_limit, the largest of all ranks' sums. */
static trib_status cut_above(struct tri_run *run, struct oktopk *own, uint32_t *counts)
{
    const struct tri_entries *sums = &own->both.regions.merged;
    const uint32_t limit = tri_limit(run->params);
    TRI_TRY(tri_cut_above(run, &own->both.cut, sums, own->global, &own->both.kept));
    TRI_TRY(tri_regions_count(run, &own->both.regions, &own->both.kept, SIZE_MAX, counts));
    if (sum(counts, run->params->size) <= limit)
        return TRIB_OK;
    TRI_TRY(tri_cut_global(run, &own->both.cut, sums, limit, &own->both.kept));
    return tri_regions_count(run, &own->both.regions, &own->both.kept, limit, counts);
}

static trib_status reduce(struct tri_run *run, struct oktopk *own, bool exact)
{
    uint32_t counts[TRI_MAX_LISTS];
    TRI_TRY(tri_regions_reduce(run, &own->both.regions, &own->both.chosen));
    TRI_TRY(exact ? cut_exactly(run, own, counts) : cut_above(run, own, counts));
    tri_idle_count(&own->persistent.global, sum(counts, run->params->size));
    return tri_oktopk_gather(run, &own->both, counts, run->params->constants->balance);
}

/* The thresholds of the next call. The global one is the same on all ranks, for so are the key and
 * the number of sums in G that it is made of. */
static trib_status keep_thresholds(struct tri_run *run, struct oktopk *own, const void *used,
                                   bool exact)
{
    const struct tri_sparse_params *params = run->params;
    const struct tri_fit local = tri_rule_fit(&params->constants->local, params->k);
    const struct tri_fit global = tri_rule_fit(&params->constants->global, params->k);
    TRI_TRY(run->kernels->adjust_threshold(own->local, used, params->acc, own->both.chosen.count,
                                           &local, run->scalars.decision, run->stream));
    return run->kernels->adjust_threshold(own->global, exact ? own->used_global : own->global,
                                          params->acc, own->both.all.count, exact ? NULL : &global,
                                          run->scalars.decision, run->stream);
}

/* Thresholds that are not there yet are 0, whatever the memory held. */
static trib_status begin(struct tri_run *run, struct oktopk *own)
{
    static const uint64_t none[2];
    if (own->persistent.begun)
        return TRIB_OK;
    own->persistent.begun = 1;
    return tri_run_put(run, own->thresholds, none, THRESHOLDS);
}

static trib_status oktopk_published_run(struct tri_run *run, void *memory)
{
    struct oktopk *own = memory;
    struct tri_regions *regions = &own->both.regions;
    const struct tri_regions_row *row = &regions->rows[run->params->rank];
    const bool exact = exact_choice(run, own);
    const void *used = NULL;
    TRI_TRY(begin(run, own));
    TRI_TRY(choose(run, own, exact, &used));
    TRI_TRY(exchange_rows(run, own));
    if (!tri_regions_consistent(regions, run))
        return tri_regions_skip(run, regions);
    if ((regions->flags & FLAG_BOUNDS) != 0)
        TRI_TRY(move_regions(run, own));
    const bool exactly = exact_sums(run, own);
    TRI_TRY(reduce(run, own, exactly));
    TRI_TRY(tri_oktopk_finish(run, &own->both));
    tri_idle_count(&own->persistent.local, row->header.count);
    own->persistent.has_local = exact ? row->header.count > 0 : row->user_data[0] != 0;
    return keep_thresholds(run, own, used, exactly);
}

/* Bounds are made anew, for they have to be the same on all ranks. They change no result. */
static struct tri_persistent persistent(void *memory)
{
    struct oktopk *own = memory;
    return (struct tri_persistent){.device = own->thresholds,
                                   .host = &own->persistent,
                                   .device_bytes = THRESHOLDS,
                                   .host_bytes = sizeof own->persistent};
}

static bool valid(const void *device, const void *host, const struct tri_sparse_params *params)
{
    struct persistent_host saved;
    memcpy(&saved, host, sizeof saved);
    return saved.begun <= 1 && saved.has_local <= saved.begun && tri_valid_idle(&saved.local) &&
           tri_valid_idle(&saved.global) &&
           (saved.begun == 0 ||
            (tri_valid_threshold(device, params) &&
             tri_valid_threshold((const char *)device + THRESHOLDS / 2, params)));
}

const struct tri_algorithm tri_sparse_oktopk_published = {
    .name = "oktopk",
    .waits = true,
    .own_bytes = sizeof(struct oktopk),
    .lay_out = lay_out,
    .entries = entries_of,
    .capacity = capacity_of,
    .run = oktopk_published_run,
    .selects = capacity_of,
    .persistent = persistent,
    .valid = valid,
};
