/* topka: exact top-k of every rank, all of them to all.
 *
 * Problem. Add up, over the ranks, what each rank finds largest of its own acc, with one message of
 * fixed size from each rank and no wait of the host.
 *
 * Paper. "TopkA" in the comparison of Li and Hoefler, "Near-Optimal Sparse Allreduce for
 * Distributed Deep Learning" (PPoPP 2022): top-k with error feedback and an allgather, as in Aji
 * and Heafield, "Sparse Communication for Distributed Gradient Descent" (EMNLP 2017), and in most
 * libraries.
 *
 *   1. acc = gradient + residual; the k largest of acc are chosen straight into this rank's packet,
 *      behind its header.
 *   2. One allgather of the packets, or of the headers alone where the ranks reach each other's memory
 *      (gather.h).
 *   3. The result is the sum of the P lists, in rank order.
 *   4. The decision, by the headers and the result.
 *   5. The residual loses what was chosen; in separate mode in step 1 already, because acc becomes
 *      the residual only by the decision.
 *
 * Cost. 2k(P-1) words per rank (f32), one collective, memory for P packets. The result holds up to
 * Pk entries. No size depends on data, so a CUDA graph can capture the call.
 *
 * Invariant. Every entry in a packet is in the result and has left the residual of its rank;
 * nothing else moved.
 *
 * Different from the published code, where:
 *  - the residual is made as acc * mask, so an infinity that was chosen leaves a NaN behind for
 *    ever. Here nothing is applied, and the residual stays, if anything is not finite anywhere;
 *  - buffers keep the size of the first call, which a larger k later runs over. Here k is of the
 *    state, and all ranks change it together;
 *  - indices are of 64 bits, or floats, on the wire. Here of 32 bits, beside values of 32 or 16;
 *  - values are scattered by atomics or in the order of arrival. Here the order is that of the
 *    ranks. */
#include "csrc/sparse/gather.h"

struct topka {
    struct tri_gathering packets;
    struct tri_entries merged; /* where the result is entries */
};

static size_t selects(const struct tri_sparse_params *params)
{
    return params->k;
}

static size_t entries(const struct tri_sparse_params *params)
{
    return (size_t)params->size * params->k;
}

static size_t capacity(const struct tri_sparse_params *params)
{
    return entries(params) < params->count ? entries(params) : params->count;
}

static size_t bytes_of(const struct tri_sparse_params *params)
{
    return tri_packet_bytes(params->k, params->wire);
}

static bool is_near(const struct tri_sparse_params *params)
{
    return tri_gathers_near(params, bytes_of(params));
}

static void lay_out(void *own, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct topka *topka = own;
    const bool merges = params->entries && params->size > 1;
    topka->packets = tri_arena_gathering(arena, params, bytes_of(params), is_near(params),
                                         tri_starts(params->count) * sizeof(uint32_t));
    topka->merged = tri_arena_entries(arena, merges ? capacity(params) : 0, params->acc);
}

/* The packet of a rank as this one reads it. Its starts lie behind its entries. */
static struct tri_packet packet_of(const struct tri_run *run, const struct topka *topka,
                                   int32_t rank)
{
    return (struct tri_packet){.data = tri_gathered(run, &topka->packets, rank),
                               .capacity = run->params->k,
                               .dtype = run->params->wire};
}

static struct tri_entries entries_of(const struct tri_run *run, const struct topka *topka,
                                     int32_t rank)
{
    const struct tri_packet packet = packet_of(run, topka, rank);
    const size_t bytes = bytes_of(run->params);
    struct tri_entries entries = tri_packet_entries(&packet, 0);
    if (is_near(run->params))
        entries.starts = (uint32_t *)(void *)(packet.data + bytes);
    return entries;
}

static trib_status choose(struct tri_run *run, const struct topka *topka,
                          const struct tri_entries *chosen)
{
    const struct tri_packet packet = packet_of(run, topka, run->params->rank);
    TRI_TRY(tri_run_select(run, tri_packet_header(&packet, 0), chosen, tri_run_clears(run)));
    return chosen->starts == NULL
               ? TRIB_OK
               : run->kernels->find_starts(chosen, run->params->count, run->stream);
}

static trib_status topka_run(struct tri_run *run, void *own)
{
    const struct topka *topka = own;
    const struct tri_sparse_params *params = run->params;
    struct tri_entries lists[TRI_MAX_LISTS];
    for (int32_t i = 0; i < params->size; i++)
        lists[i] = entries_of(run, topka, i);
    const struct tri_entries *chosen = &lists[params->rank];
    TRI_TRY(choose(run, topka, chosen));
    TRI_TRY(tri_gather(run, &topka->packets, tri_entries_bytes(params->k, params->wire)));
    TRI_TRY(tri_run_result(run, lists, params->size, &topka->merged));
    TRI_TRY(tri_gather_decide(run, &topka->packets, params->k));
    TRI_TRY(tri_gather_end(run, &topka->packets));
    return tri_run_apply(run, chosen, tri_run_clears(run));
}

const struct tri_algorithm tri_sparse_topka = {
    .name = "topka",
    .own_bytes = sizeof(struct topka),
    .lay_out = lay_out,
    .entries = entries,
    .capacity = capacity,
    .run = topka_run,
    .selects = selects,
};
