/* topksa: top-k, split and allgather.
 *
 * Problem. With topka every rank receives all P lists: words grow with P although most of it
 * is added up. Here each index is added up in one place, and only sums are gathered.
 *
 * Paper. "TopkDSA" of Li and Hoefler, "Near-Optimal Sparse Allreduce for Distributed Deep Learning"
 * (PPoPP 2022), after the dynamic sparse allreduce of Renggli et al., "SparCML" (SC 2019).
 *
 *   1. acc = gradient + residual; the k largest of acc are chosen, exactly.
 *   2. Regions of equal size: rank r owns [r * n / P, (r + 1) * n / P).
 *   3. One small allgather: every rank's header, and where the bounds lie in its list. Fetched.
 *   4. Every rank sends its entries to their owners, to rank + 1 first, then rank + 2, ...
 *   5. Every owner adds up what it received, in rank order.
 *   6. One small allgather: how many sums every owner has. Fetched.
 *   7. If there are so many that dense regions are fewer words, each owner sends its region, zeros
 *      included, to all; else the sums are gathered as entries. With an index of i bytes and a
 *      value of v the two cost the same at n * v / (v + i) sums: half of n for f32, two thirds for
 *      f64.
 *   8. The result is the sum, or its average; the decision; the residual loses what was chosen.
 *
 * Cost, in words per rank (f32: an entry is two). 4: sent at most 2k, received at most
 * 2 (P-1) min(k, n/P); both are 2k(P-1)/P if entries are spread evenly over the regions. 7, with U
 * sums in all and u of them here: sent 2u(P-1), received 2(U - u), where k <= U <= min(Pk, n) if k
 * entries are not 0; dense: sent (n/P)(P-1), received n - n/P. So 4k(P-1)/P .. (2k + n)(P-1)/P when
 * evenly spread. Two waits for the stream.
 *
 * Invariant. Every chosen entry reaches one owner, is in one sum, and every sum is in the result,
 * also if it is 0; just the chosen entries leave the residual.
 *
 * Different from the published code, where:
 *  - the selection takes what is above the k-th magnitude, but k entries are cleared: the k-th was
 *    lost in every call. Here the k are chosen, sent and cleared;
 *  - the last region is n % (n / P) longer, wrong for small n. Here any n and P will do, n < P too;
 *  - the switch is at n/3. Here it is where the words are equal, and both sides give the same bits;
 *  - sums of the own part come first. Here they are in rank order, so they do not depend on the
 *    owner.
 * A result of entries never becomes dense: it would have to be searched for entries again on all
 * ranks. Then 7 costs up to 2n(P-1)/P. */
#include "csrc/sparse/published/topksa.h"

#include "csrc/sparse/algorithms/p2p_batch.h"
#include "csrc/sparse/link.h"

static size_t region_most(const struct tri_sparse_params *params)
{
    const size_t size = (size_t)params->size;
    return params->count / size + (params->count % size != 0);
}

size_t tri_topksa_entries(const struct tri_sparse_params *params)
{
    return tri_regions_entries(params, params->k, region_most(params));
}

size_t tri_topksa_selects(const struct tri_sparse_params *params)
{
    return params->k;
}

size_t tri_topksa_capacity(const struct tri_sparse_params *params)
{
    const size_t entries = (size_t)params->size * params->k;
    return entries < params->count ? entries : params->count;
}

void tri_topksa_lay_out(struct tri_topksa *own, struct tri_arena *arena,
                        const struct tri_sparse_params *params, bool dense)
{
    tri_regions_lay_out(&own->regions, arena, params, params->k, region_most(params));
    own->chosen = tri_regions_chosen(&own->regions, arena, params, params->k);
    own->gathered = tri_arena_entries(arena, tri_topksa_capacity(params), params->acc);
    own->sums = NULL;
    if (dense && !params->entries && params->result != params->acc)
        own->sums = tri_arena_take(arena, params->count * trib_dtype_size(params->acc));
}

/* True if dense regions take at most as many words as `sums` entries. */
static bool dense_is_less(const struct tri_sparse_params *params, uint64_t sums)
{
    const uint64_t value = trib_dtype_size(params->acc);
    return sums * (value + sizeof(uint32_t)) >= params->count * value;
}

/* All regions to all ranks: each may have another length, so rank by rank. */
static trib_status allgather_regions(struct tri_run *run, const uint64_t *bounds, char *sums)
{
    const int32_t rank = run->params->rank, size = run->params->size;
    const size_t element = trib_dtype_size(run->params->acc);
    struct tri_p2p_batch batch = {.nsends = 0, .nreceives = 0};
    for (int32_t distance = 1; distance < size; distance++) {
        const int32_t to = (rank + distance) % size, from = (rank + size - distance) % size;
        tri_p2p_batch_send_bytes(&batch, to, sums + bounds[rank] * element,
                                 (size_t)(bounds[rank + 1] - bounds[rank]) * element);
        tri_p2p_batch_receive_bytes(&batch, from, sums + bounds[from] * element,
                                    (size_t)(bounds[from + 1] - bounds[from]) * element);
    }
    return tri_p2p_batch_exchange(run, &batch);
}

/* All sums, dense, on all ranks. */
static trib_status gather_dense(struct tri_run *run, struct tri_topksa *own, void *sums)
{
    const struct tri_regions *regions = &own->regions;
    const uint64_t first = regions->bounds[run->params->rank];
    const uint64_t end = regions->bounds[run->params->rank + 1];
    char *region = (char *)sums + first * trib_dtype_size(run->params->acc);
    const struct tri_result out = {.data = region, .dtype = run->params->acc, .divisor = 1};
    const struct tri_merge merge =
        tri_run_merge(run, regions->parts, run->params->size, (size_t)first, (size_t)end);
    TRI_TRY(run->kernels->merge_dense(&merge, &out, run->scratch, run->stream));
    return allgather_regions(run, regions->bounds, sums);
}

/* Everything that was chosen is in the result. */
static trib_status decide(struct tri_run *run, struct tri_topksa *own)
{
    TRI_TRY(tri_regions_decide(run, &own->regions));
    return tri_run_apply(run, &own->chosen, tri_run_clears(run));
}

static trib_status finish_dense(struct tri_run *run, struct tri_topksa *own)
{
    void *sums = own->sums != NULL ? own->sums : run->dense;
    TRI_TRY(gather_dense(run, own, sums));
    TRI_TRY(tri_run_result_dense(run, sums, run->params->acc));
    return decide(run, own);
}

static trib_status finish_entries(struct tri_run *run, struct tri_topksa *own,
                                  const uint32_t *counts)
{
    TRI_TRY(tri_link_allgather_entries(run, &own->regions.merged, counts, &own->gathered));
    TRI_TRY(tri_run_result(run, &own->gathered, 1, NULL));
    return decide(run, own);
}

trib_status tri_topksa_run(struct tri_run *run, struct tri_topksa *own, bool dense)
{
    struct tri_regions *regions = &own->regions;
    uint32_t counts[TRI_MAX_LISTS];
    uint64_t sums = 0;
    tri_regions_equal(regions, run->params);
    TRI_TRY(
        tri_run_select(run, tri_regions_header(regions, run), &own->chosen, tri_run_clears(run)));
    TRI_TRY(tri_regions_exchange_rows(run, regions, &own->chosen, 0));
    if (!tri_regions_consistent(regions, run))
        return tri_regions_skip(run, regions);
    TRI_TRY(tri_regions_reduce(run, regions, &own->chosen));
    TRI_TRY(tri_regions_count(run, regions, &regions->merged, own->gathered.capacity, counts));
    for (int32_t r = 0; r < run->params->size; r++)
        sums += counts[r];
    if (dense && !run->params->entries && dense_is_less(run->params, sums))
        return finish_dense(run, own);
    return finish_entries(run, own, counts);
}

static void lay_out(void *own, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    tri_topksa_lay_out(own, arena, params, true);
}

static trib_status topksa_run(struct tri_run *run, void *own)
{
    return tri_topksa_run(run, own, true);
}

const struct tri_algorithm tri_sparse_topksa = {
    .name = "topksa",
    .waits = true,
    .own_bytes = sizeof(struct tri_topksa),
    .lay_out = lay_out,
    .entries = tri_topksa_entries,
    .capacity = tri_topksa_capacity,
    .run = topksa_run,
    .selects = tri_topksa_selects,
};
