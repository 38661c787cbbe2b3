/* topka2: top-k of each rank, then the top-k of the sum.
 *
 * Problem. With topka the result has up to Pk entries. Here it has at most k on any number of
 * ranks, for users that store or apply it sparsely.
 *
 * Paper. A variant of the "TopkA" of Ok-Topk's published code (Li and Hoefler, PPoPP 2022).
 *
 *   1. acc = gradient + residual; the k largest of acc are chosen, exactly.
 *   2. One allgather of a packet per rank: header, k indices, k values.
 *   3. Every rank adds up the P lists in rank order: the union U, the same bits everywhere.
 *   4. Of U the k largest sums are kept: G. A sum of 0 is not.
 *   5. The result is G, or its average.
 *   6. The decision; the residual loses what this rank chose where it is in G, and keeps the rest.
 *
 * Cost: 2k(P-1) words per rank, sent and received (1.5k(P-1) with bf16), in one collective; U is
 * cut on every rank, which reads its at most Pk entries a few times. Fixed sizes, no wait.
 *
 * Invariant. At an index of G every rank that chose it clears the value that it sent, and the
 * result has the sum of just these values. Everywhere else nothing has left any residual, for
 * choosing clears nothing.
 *
 * Different from the published code, where chosen entries leave the residual at once, as a product
 * with a mask of zeros and ones, and are added back if they lost: an infinity that was chosen left
 * a NaN (infinity times 0) behind for ever. */
#include "csrc/sparse/algorithms/cut.h"
#include "csrc/sparse/link.h"

struct topka2 {
    struct tri_packet packets; /* one per rank */
    struct tri_entries merged; /* U */
    struct tri_entries kept;   /* G */
    struct tri_cut_scratch scratch;
};

static size_t lists_entries(const struct tri_sparse_params *params)
{
    return (size_t)params->size * params->k;
}

static size_t capacity(const struct tri_sparse_params *params)
{
    return params->k;
}

static void lay_out(void *memory, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct topka2 *own = memory;
    const size_t all = lists_entries(params);
    own->packets = tri_arena_packets(arena, (size_t)params->size, params->k, params->wire);
    own->merged = tri_arena_entries(arena, all < params->count ? all : params->count, params->acc);
    own->kept = tri_arena_entries(arena, params->k, params->acc);
    tri_cut_lay_out(&own->scratch, arena, params);
}

/* Steps 1 to 3. */
static trib_status select_and_merge(struct tri_run *run, struct topka2 *own)
{
    const struct tri_sparse_params *params = run->params;
    struct tri_header *header = tri_packet_header(&own->packets, (size_t)params->rank);
    struct tri_entries lists[TRI_MAX_LISTS];
    for (int32_t r = 0; r < params->size; r++)
        lists[r] = tri_packet_entries(&own->packets, (size_t)r);
    TRI_TRY(tri_run_select(run, header, &lists[params->rank], false));
    TRI_TRY(tri_link_allgather(run, header, own->packets.data,
                               tri_packet_bytes(params->k, params->wire),
                               tri_entries_bytes(params->k, params->wire)));
    const struct tri_merge merge = tri_run_merge(run, lists, params->size, 0, params->count);
    return run->kernels->merge(&merge, &own->merged, run->scratch, run->stream);
}

static trib_status topka2_run(struct tri_run *run, void *memory)
{
    struct topka2 *own = memory;
    const struct tri_sparse_params *params = run->params;
    const struct tri_entries chosen = tri_packet_entries(&own->packets, (size_t)params->rank);
    TRI_TRY(select_and_merge(run, own));
    TRI_TRY(tri_cut_local(run, &own->scratch, &own->merged, params->k, &own->kept, NULL));
    TRI_TRY(tri_run_result(run, &own->kept, 1, NULL));
    TRI_TRY(tri_run_decide(run, own->packets.data, tri_packet_bytes(params->k, params->wire),
                           params->k));
    run->scalars.selected = chosen.count;
    return tri_run_update_residual(run, &chosen, &own->kept);
}

const struct tri_algorithm tri_sparse_topka2 = {
    .name = "topka2",
    .own_bytes = sizeof(struct topka2),
    .lay_out = lay_out,
    .entries = lists_entries,
    .capacity = capacity,
    .run = topka2_run,
    .selects = capacity,
};
