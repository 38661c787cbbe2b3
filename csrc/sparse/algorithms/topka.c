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
 *   2. One allgather of the packets.
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
#include "csrc/sparse/link.h"

struct topka {
    struct tri_packet packets; /* one per rank */
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

static void lay_out(void *own, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct topka *topka = own;
    const bool merges = params->entries && params->size > 1;
    topka->packets = tri_arena_packets(arena, (size_t)params->size, params->k, params->wire);
    topka->merged = tri_arena_entries(arena, merges ? capacity(params) : 0, params->acc);
}

/* Every rank's packet to all, in place: the packets are in rank order. */
static trib_status exchange(struct tri_run *run, const struct topka *topka)
{
    const struct tri_packet *packets = &topka->packets;
    const size_t bytes = tri_packet_bytes(packets->capacity, packets->dtype);
    const size_t payload = tri_entries_bytes(packets->capacity, packets->dtype);
    const struct tri_header *own = tri_packet_header(packets, (size_t)run->params->rank);
    return tri_link_allgather(run, own, tri_packet_header(packets, 0), bytes, payload);
}

static trib_status decide(struct tri_run *run, const struct topka *topka,
                          const struct tri_entries *chosen)
{
    const struct tri_packet *packets = &topka->packets;
    TRI_TRY(tri_run_decide(run, tri_packet_header(packets, 0),
                           tri_packet_bytes(packets->capacity, packets->dtype), packets->capacity));
    return tri_run_apply(run, chosen, tri_run_clears(run));
}

static trib_status topka_run(struct tri_run *run, void *own)
{
    const struct topka *topka = own;
    const size_t rank = (size_t)run->params->rank;
    const struct tri_entries chosen = tri_packet_entries(&topka->packets, rank);
    struct tri_entries lists[TRI_MAX_LISTS];
    for (int32_t i = 0; i < run->params->size; i++)
        lists[i] = tri_packet_entries(&topka->packets, (size_t)i);
    TRI_TRY(tri_run_select(run, tri_packet_header(&topka->packets, rank), &chosen,
                           tri_run_clears(run)));
    TRI_TRY(exchange(run, topka));
    TRI_TRY(tri_run_result(run, lists, run->params->size, &topka->merged));
    return decide(run, topka, &chosen);
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
