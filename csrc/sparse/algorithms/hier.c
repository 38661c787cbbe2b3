/* hier: dense inside each host, sparse between hosts.
 *
 * Problem. Inside a host links are fast, and between hosts they are not. If every rank sends what it
 * finds largest to all others, a host's network carries a list for each of its ranks, and what is
 * small on each rank, but not in the sum of a host's ranks, waits. Here the ranks of a host first add
 * up, and a host sends its k largest once, however many ranks it has.
 *
 * Paper. "HiTopKComm" of Shi et al., "Towards Scalable Distributed Training of Deep Learning on
 * Public Cloud Clusters" (MLSys 2021).
 *
 *   1. acc = gradient + residual, all of it on every rank.
 *   2. Shards: a host with L ranks cuts the tensor into L ranges of s = n / L elements, rounded down to
 *      a multiple of 4; the i-th of them is its i-th rank's, and the last one's has what is left, too.
 *      A reduce_scatter inside the host leaves the sum of each shard with its rank. What is left goes
 *      to the last rank by messages, which that adds up in rank order.
 *   3. Of the sum on its shard, each rank chooses its share of k: K = k len / n entries (the shares of
 *      a host are k together), at least one. They and a header are its packet, which no rank applies
 *      if an abort may have ended the reduce_scatter early.
 *   4. The packet goes to one rank of every other host, and from there to the ranks of that host
 *      (routes.h); so all ranks have all packets.
 *   5. The result is the sum of all lists, in rank order.
 *   6. The decision, by all headers and the result.
 *   7. The residual becomes the sum of step 2 on the own shard, less what was chosen, and 0 elsewhere.
 *      With momentum every rank of the host masks what any of them chose.
 *
 * Cost. In words per rank with H hosts of L ranks each, f32: n (L-1)/L for the shards, 2 K (H-1)
 * between hosts, and 2 K H (L-1) inside, where K = k / L: between hosts a network carries 2k(H-1),
 * where topka has 2kL(P-L). A reduce_scatter, then two exchanges of sends and receives, one after the
 * other (three if n is no multiple of 4L); memory for P packets, and in place for n / L to n elements.
 * Fixed sizes: a CUDA graph can capture it.
 *
 * Inside a host packets are passed on as they are, not the sums of a shard: they are fewer bytes
 * while H k < n / 2 (f32), and where they are more, dense is the better algorithm anyway. And so
 * shards need not be the same on all hosts: any numbers of ranks, each with an equal part of its
 * host's work.
 *
 * The reduce_scatter is a collective of the host's ranks (core/inside.h), so the kernels that read
 * peers' memory serve it where a host's GPUs have them. A backend that has no such collectives takes
 * messages for all of step 2: as many words, and memory for (L+1)/L n elements. Either way the sums have
 * the order of the ranks, unless NCCL adds up more than two.
 *
 * Invariant. The sum of all acc of a host is on its shards; what a packet has is in the result and
 * has left its shard; nothing else moved but inside a host, to the rank of its shard.
 *
 * A residual may hold mass anywhere before a call, as after an import, a smaller k or another
 * algorithm (a state keeps n elements of it, not a shard's): step 1 takes it in.
 *
 * On one host it is a reduce-scatter, top-k of the sum and an allgather; where every host has one
 * rank it is topka, by messages.
 *
 * Different from the paper: selection is exact; the residual is that of the host's sum, not of each
 * rank; and the result is gathered as entries. */
#include "csrc/base/size.h"
#include "csrc/sparse/algorithms/routes.h"
#include "csrc/sparse/algorithms/sums.h"
#include "csrc/sparse/link.h"

struct hier {
    struct tri_routes routes;
    struct tri_sums sums;      /* of this rank's host */
    struct tri_packet packets; /* in slots, each with room for the most entries of any rank */
    uint32_t k[TRI_MAX_LISTS]; /* each rank's share */
    struct tri_entries merged; /* where the result is entries */
};

/* -------------------------------------------------------------------------------------- shares */

/* At most the shard's length, because k is at most n. */
static uint32_t share(const struct tri_sparse_params *params, const struct tri_routes *routes,
                      int32_t rank)
{
    const int32_t ranks = routes->ranks[params->host_of[rank]];
    const struct tri_shard shard = tri_shard_of(params, ranks, routes->index[rank]);
    const uint64_t first = shard.first, end = first + shard.length, n = params->count;
    if (params->k == 0 || first == end)
        return 0;
    const uint64_t part = params->k * end / n - params->k * first / n;
    return part == 0 ? 1 : (uint32_t)part;
}

static size_t shares(const struct tri_sparse_params *params)
{
    struct tri_routes routes;
    size_t sum = 0;
    tri_routes_make(&routes, params);
    for (int32_t rank = 0; rank < params->size; rank++)
        sum += share(params, &routes, rank);
    return sum;
}

static size_t capacity(const struct tri_sparse_params *params)
{
    return tri_least(shares(params), params->count);
}

static uint64_t own_share(const struct tri_sparse_params *params)
{
    struct tri_routes routes;
    tri_routes_make(&routes, params);
    return share(params, &routes, params->rank);
}

static size_t selects(const struct tri_sparse_params *params)
{
    return own_share(params);
}

static void lay_out(void *own, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct hier *hier = own;
    const struct tri_routes *routes = &hier->routes;
    uint32_t most = 0;
    tri_routes_make(&hier->routes, params);
    for (int32_t rank = 0; rank < params->size; rank++) {
        hier->k[rank] = share(params, routes, rank);
        most = hier->k[rank] > most ? hier->k[rank] : most;
    }
    hier->packets = tri_arena_packets(arena, (size_t)params->size, most, params->wire);
    tri_sums_lay_out(&hier->sums, arena, params, routes);
    hier->merged = tri_arena_entries(
        arena, params->entries && params->size > 1 ? capacity(params) : 0, params->acc);
}

/* The packet of a rank, as if there were no other. */
static struct tri_packet packet_of(const struct hier *hier, int32_t rank)
{
    const size_t slot = (size_t)hier->routes.slot[rank];
    return (struct tri_packet){.data = (char *)tri_packet_header(&hier->packets, slot),
                               .capacity = hier->k[rank],
                               .dtype = hier->packets.dtype};
}

static struct tri_entries list_of(const struct hier *hier, int32_t rank)
{
    const struct tri_packet packet = packet_of(hier, rank);
    return tri_packet_entries(&packet, 0);
}

static struct tri_header *own_header(const struct tri_run *run, const struct hier *hier)
{
    return tri_packet_header(&hier->packets, (size_t)hier->routes.slot[run->params->rank]);
}

/* Sums may overflow though all acc are finite. Then an infinity is chosen, and the result has it;
 * unless none is chosen. */
static trib_status choose(struct tri_run *run, const struct hier *hier)
{
    const struct tri_accumulator acc = tri_sums_acc(run, &hier->sums);
    const struct tri_entries out = list_of(hier, run->params->rank);
    const struct tri_selection selection = {
        .first = hier->sums.shard.first,
        .count = hier->sums.shard.length,
        .k = hier->k[run->params->rank],
        .signing = tri_run_signing(run, run->params->k == 0 ? own_header(run, hier) : NULL),
        .fallbacks = run->scalars.fallbacks,
    };
    return run->kernels->select(&acc, &selection, &out, run->scratch, run->stream);
}

static trib_status apply(struct tri_run *run, const struct hier *hier)
{
    const struct tri_entries own = list_of(hier, run->params->rank);
    TRI_TRY(tri_sums_move(run, &hier->sums));
    TRI_TRY(tri_run_apply(run, &own, false));
    for (int32_t i = 0; i < hier->routes.mates; i++) {
        const struct tri_entries list = list_of(hier, hier->routes.mate[i]);
        if (hier->routes.mate[i] != run->params->rank)
            TRI_TRY(tri_run_mask(run, &list));
    }
    return TRIB_OK;
}

/* ----------------------------------------------------------------------------------- the packets */

/* Append a packet to the messages, or to the last of them if that goes the same way and ends where
 * this packet begins. */
static void add_packet(struct tri_message *messages, size_t *n, int32_t peer,
                       const struct tri_packet *packet)
{
    const size_t bytes = tri_packet_bytes(packet->capacity, packet->dtype);
    const size_t payload = tri_entries_bytes(packet->capacity, packet->dtype);
    struct tri_message *last = *n == 0 ? NULL : &messages[*n - 1];
    if (last != NULL && last->peer == peer && (char *)last->data + last->bytes == packet->data) {
        last->bytes += bytes;
        last->payload += payload;
        return;
    }
    messages[(*n)++] = (struct tri_message){peer, packet->data, bytes, payload};
}

/* What mate i brings. */
static void add_brought(struct tri_message *messages, size_t *n, int32_t peer,
                        const struct hier *hier, int32_t i)
{
    for (int32_t slot = hier->routes.begin[i]; slot < hier->routes.begin[i + 1]; slot++) {
        const struct tri_packet packet = packet_of(hier, hier->routes.rank_at[slot]);
        add_packet(messages, n, peer, &packet);
    }
}

static trib_status exchange_between(struct tri_run *run, const struct hier *hier)
{
    const struct tri_routes *routes = &hier->routes;
    const int32_t rank = run->params->rank, own = routes->index[rank];
    const struct tri_packet mine = packet_of(hier, rank);
    struct tri_message sends[TRI_MAX_LISTS], receives[TRI_MAX_LISTS];
    size_t nsends = 0, nreceives = 0;
    for (int32_t host = 0; host < routes->hosts; host++)
        if (routes->takes[host] != rank)
            add_packet(sends, &nsends, routes->takes[host], &mine);
    for (int32_t slot = routes->begin[own] + 1; slot < routes->begin[own + 1]; slot++) {
        const int32_t from = routes->rank_at[slot];
        const struct tri_packet packet = packet_of(hier, from);
        add_packet(receives, &nreceives, from, &packet);
    }
    return tri_link_exchange(run, sends, nsends, receives, nreceives);
}

/* At most 2 * TRI_MAX_LISTS sends: L - 1 mates get at most 1 + P / L packets each. */
static trib_status exchange_inside(struct tri_run *run, const struct hier *hier)
{
    const struct tri_routes *routes = &hier->routes;
    const int32_t own = routes->index[run->params->rank];
    struct tri_message sends[2 * TRI_MAX_LISTS], receives[TRI_MAX_LISTS];
    size_t nsends = 0, nreceives = 0;
    for (int32_t i = 0; i < routes->mates; i++) {
        if (i == own)
            continue;
        add_brought(sends, &nsends, routes->mate[i], hier, own);
        add_brought(receives, &nreceives, routes->mate[i], hier, i);
    }
    return tri_link_exchange(run, sends, nsends, receives, nreceives);
}

/* -------------------------------------------------------------------------------------- the call */

static trib_status hier_run(struct tri_run *run, void *own)
{
    const struct hier *hier = own;
    const struct tri_packet *packets = &hier->packets;
    struct tri_entries lists[TRI_MAX_LISTS];
    for (int32_t rank = 0; rank < run->params->size; rank++)
        lists[rank] = list_of(hier, rank);
    TRI_TRY(tri_sums_make(run, &hier->sums, own_header(run, hier)));
    TRI_TRY(choose(run, hier));
    TRI_TRY(tri_sums_vouch(run, &hier->sums, own_header(run, hier)));
    TRI_TRY(tri_sums_keep(run, &hier->sums));
    TRI_TRY(exchange_between(run, hier));
    TRI_TRY(exchange_inside(run, hier));
    TRI_TRY(tri_run_result(run, lists, run->params->size, &hier->merged));
    TRI_TRY(tri_run_decide(run, packets->data, tri_packet_bytes(packets->capacity, packets->dtype),
                           packets->capacity));
    return apply(run, hier);
}

const struct tri_algorithm tri_sparse_hier = {
    .name = "hier",
    .inside = true,
    .own_bytes = sizeof(struct hier),
    .lay_out = lay_out,
    .entries = shares,
    .capacity = capacity,
    .run = hier_run,
    .selects = selects,
    .k = own_share,
};
