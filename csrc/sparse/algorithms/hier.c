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
 *   2. Shards: a host with L ranks cuts the tensor into L ranges of s = n / L elements, rounded up to
 *      a multiple of 4; the i-th of them is its i-th rank's. Each rank sends the L - 1 shards of its
 *      acc that are not its own to their ranks, which add up in rank order.
 *   3. Of the sum on its shard, each rank chooses its share of k: K = k len / n entries (the shares of
 *      a host are k together), at least one. They and a header are its packet.
 *   4. The packet goes to one rank of every other host, and from there to the ranks of that host
 *      (routes.h); so all ranks have all packets.
 *   5. The result is the sum of all lists, in rank order.
 *   6. The decision, by all headers and the result.
 *   7. The residual becomes the sum of step 2 on the own shard, less what was chosen, and 0 elsewhere.
 *      With momentum every rank of the host masks what any of them chose.
 *
 * Cost. In words per rank with H hosts of L ranks each, f32: n (L-1)/L for the shards, 2 K (H-1)
 * between hosts, and 2 K H (L-1) inside, where K = k / L: between hosts a network carries 2k(H-1),
 * where topka has 2kL(P-L). Three exchanges of sends and receives, one after the other; memory for
 * (L+1)/L n elements and P packets. Fixed sizes: a CUDA graph can capture it.
 *
 * Inside a host packets are passed on as they are, not the sums of a shard: they are fewer bytes
 * while H k < n / 2 (f32), and where they are more, dense is the better algorithm anyway. And so
 * shards need not be the same on all hosts: any numbers of ranks, each with an equal part of its
 * host's work.
 *
 * Messages, not collectives of a second communicator: every rank's part of a sum reaches its shard's
 * owner directly, as in any reduce-scatter that is bandwidth-optimal, the sums have the order of the
 * ranks on every backend, and aborts, deadlines and counters are the communicator's own.
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
#include "csrc/sparse/link.h"

enum { SHARD_ALIGN = 4 };

struct hier {
    struct tri_routes routes;
    size_t first, length;      /* of this rank's shard */
    struct tri_packet packets; /* in slots, each with room for the most entries of any rank */
    uint32_t k[TRI_MAX_LISTS]; /* each rank's share */
    /* Shards of `stride` elements, one of each mate and a spare one; NULL on a host of one rank. The
     * one at the own index becomes the sum. It lies where it would in a whole tensor. */
    char *shards;
    size_t stride;
    struct tri_entries merged; /* where the result is entries */
};

/* ------------------------------------------------------------------------------ shards and shares */

static size_t shard_stride(const struct tri_sparse_params *params, int32_t ranks)
{
    const size_t part = params->count / (size_t)ranks + (params->count % (size_t)ranks != 0);
    return (part + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
}

static size_t shard_begin(const struct tri_sparse_params *params, int32_t ranks, int32_t index)
{
    return tri_least((size_t)index * shard_stride(params, ranks), params->count);
}

/* Elements of `rank`'s shard. */
static size_t shard_length(const struct tri_sparse_params *params, const struct tri_routes *routes,
                           int32_t rank)
{
    const int32_t ranks = routes->ranks[params->host_of[rank]], index = routes->index[rank];
    return shard_begin(params, ranks, index + 1) - shard_begin(params, ranks, index);
}

/* At most the shard's length, because k is at most n. */
static uint32_t share(const struct tri_sparse_params *params, const struct tri_routes *routes,
                      int32_t rank)
{
    const int32_t ranks = routes->ranks[params->host_of[rank]], index = routes->index[rank];
    const uint64_t first = shard_begin(params, ranks, index), n = params->count;
    const uint64_t end = shard_begin(params, ranks, index + 1);
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
    hier->first = shard_begin(params, routes->mates, routes->index[params->rank]);
    hier->length = shard_length(params, routes, params->rank);
    hier->stride = shard_stride(params, routes->mates);
    hier->packets = tri_arena_packets(arena, (size_t)params->size, most, params->wire);
    if (routes->mates > 1)
        hier->shards = tri_arena_take(arena, ((size_t)routes->mates + 1) * hier->stride *
                                                 trib_dtype_size(params->acc));
    hier->merged = tri_arena_entries(
        arena, params->entries && params->size > 1 ? capacity(params) : 0, params->acc);
}

static bool adds_up(const struct hier *hier)
{
    return hier->routes.mates > 1;
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

/* --------------------------------------------------------------------------------- dense, inside */

static size_t element(const struct tri_run *run)
{
    return trib_dtype_size(run->params->acc);
}

/* acc, whose place is known: undo_swap, or in place. */
static char *acc_at(const struct tri_run *run, size_t first)
{
    char *acc = run->acc.buffer[run->params->in_place ? 0 : 1];
    return acc + first * element(run);
}

static char *shard_at(const struct tri_run *run, const struct hier *hier, int32_t index)
{
    return hier->shards + (size_t)index * hier->stride * element(run);
}

static trib_status exchange_shards(struct tri_run *run, const struct hier *hier)
{
    const struct tri_routes *routes = &hier->routes;
    struct tri_message sends[TRI_MAX_LISTS], receives[TRI_MAX_LISTS];
    size_t n = 0;
    for (int32_t i = 0; i < routes->mates; i++) {
        const int32_t mate = routes->mate[i];
        if (mate == run->params->rank)
            continue;
        const size_t first = shard_begin(run->params, routes->mates, i);
        const size_t sent = shard_length(run->params, routes, mate) * element(run);
        const size_t received = hier->length * element(run);
        sends[n] = (struct tri_message){mate, acc_at(run, first), sent, sent};
        receives[n++] = (struct tri_message){mate, shard_at(run, hier, i), received, received};
    }
    return tri_link_exchange(run, sends, n, receives, n);
}

/* Mate i's part of this shard. */
static char *part(const struct tri_run *run, const struct hier *hier, int32_t i)
{
    return i == hier->routes.index[run->params->rank] ? acc_at(run, hier->first)
                                                      : shard_at(run, hier, i);
}

/* `to` = the sums so far + mate i's part. */
static trib_status add_part(struct tri_run *run, const struct hier *hier, char *sums, int32_t i,
                            char *to)
{
    const struct tri_accumulator sum = {.buffer = {sums, to},
                                        .current = run->scalars.zero,
                                        .gradient = part(run, hier, i),
                                        .gradient_dtype = run->params->acc,
                                        .dtype = run->params->acc,
                                        .decay = 1,
                                        .count = hier->length};
    return run->kernels->accumulate(&sum, (struct tri_signing){0}, run->stream);
}

/* In rank order, from the spare shard to the own one and back, so that the last is the own one. */
static trib_status add_up(struct tri_run *run, const struct hier *hier)
{
    const int32_t mates = hier->routes.mates, own = hier->routes.index[run->params->rank];
    char *sums = part(run, hier, 0);
    for (int32_t i = 1; i < mates; i++) {
        char *to = shard_at(run, hier, (mates - 1 - i) % 2 == 0 ? own : mates);
        TRI_TRY(add_part(run, hier, sums, i, to));
        sums = to;
    }
    return TRIB_OK;
}

/* acc, where the host's sums have the place of this rank's shard. */
static struct tri_accumulator sums_of(const struct tri_run *run, const struct hier *hier)
{
    if (!adds_up(hier))
        return run->acc;
    return (struct tri_accumulator){.buffer = {hier->shards},
                                    .dtype = run->params->acc,
                                    .decay = 1,
                                    .count = run->params->count};
}

/* Sums may overflow though all acc are finite. Then an infinity is chosen, and the result has it;
 * unless none is chosen. */
static trib_status choose(struct tri_run *run, const struct hier *hier)
{
    const struct tri_accumulator sums = sums_of(run, hier);
    const struct tri_entries out = list_of(hier, run->params->rank);
    const struct tri_selection selection = {
        .first = hier->first,
        .count = hier->length,
        .k = hier->k[run->params->rank],
        .signing = tri_run_signing(run, run->params->k == 0 ? own_header(run, hier) : NULL),
        .fallbacks = run->scalars.fallbacks,
    };
    return run->kernels->select(&sums, &selection, &out, run->scratch, run->stream);
}

/* ------------------------------------------------------------------------------- the residual */

/* Not in place, before the decision: acc, which that makes the residual, becomes the host's sums on
 * this rank's shard. */
static trib_status keep_sums(struct tri_run *run, const struct hier *hier)
{
    const struct tri_clearing acc = {.dense = acc_at(run, 0),
                                     .bytes = run->params->count * element(run)};
    if (!adds_up(hier) || run->params->in_place)
        return TRIB_OK;
    TRI_TRY(run->kernels->clear_result(&acc, run->scalars.zero, run->stream));
    return tri_run_put(run, acc_at(run, hier->first),
                       shard_at(run, hier, hier->routes.index[run->params->rank]),
                       hier->length * element(run));
}

/* In place the same, after the decision and by it. */
static trib_status move_sums(struct tri_run *run, const struct hier *hier)
{
    if (!adds_up(hier) || !run->params->in_place)
        return TRIB_OK;
    const struct tri_accumulator shard = {
        .buffer = {acc_at(run, hier->first),
                   shard_at(run, hier, hier->routes.index[run->params->rank])},
        .current = run->scalars.decision,
        .dtype = run->params->acc,
        .count = hier->length};
    TRI_TRY(run->kernels->decay(&run->acc, 0, run->scalars.decision, run->stream));
    return run->kernels->residual(&shard, shard.buffer[0], run->stream);
}

static trib_status apply(struct tri_run *run, const struct hier *hier)
{
    const struct tri_entries own = list_of(hier, run->params->rank);
    TRI_TRY(move_sums(run, hier));
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

static trib_status collect(struct tri_run *run, const struct hier *hier)
{
    if (adds_up(hier) && !run->params->in_place)
        TRI_TRY(tri_run_undo_swap(run));
    TRI_TRY(tri_run_accumulate(run, own_header(run, hier)));
    if (!adds_up(hier))
        return TRIB_OK;
    TRI_TRY(exchange_shards(run, hier));
    return add_up(run, hier);
}

static trib_status hier_run(struct tri_run *run, void *own)
{
    const struct hier *hier = own;
    const struct tri_packet *packets = &hier->packets;
    struct tri_entries lists[TRI_MAX_LISTS];
    for (int32_t rank = 0; rank < run->params->size; rank++)
        lists[rank] = list_of(hier, rank);
    TRI_TRY(collect(run, hier));
    TRI_TRY(choose(run, hier));
    TRI_TRY(keep_sums(run, hier));
    TRI_TRY(exchange_between(run, hier));
    TRI_TRY(exchange_inside(run, hier));
    TRI_TRY(tri_run_result(run, lists, run->params->size, &hier->merged));
    TRI_TRY(tri_run_decide(run, packets->data, tri_packet_bytes(packets->capacity, packets->dtype),
                           packets->capacity));
    return apply(run, hier);
}

const struct tri_algorithm tri_sparse_hier = {
    .name = "hier",
    .own_bytes = sizeof(struct hier),
    .lay_out = lay_out,
    .entries = shares,
    .capacity = capacity,
    .run = hier_run,
    .selects = selects,
    .k = own_share,
};
