/* gtopk: a tree of top-k.
 *
 * Problem. With topka the words of a rank grow with P. Here every merge of two lists is
 * cut to k entries again, so they grow with log2 P.
 *
 * Paper. Shi, Wang, Zhao, Tang, Wang, Huang and Chu, "A Distributed Synchronous SGD Algorithm with
 * Global Top-k Sparsification for Low Bandwidth Networks" (ICDCS 2019).
 *
 *   1. acc = gradient + residual; the k largest of acc are chosen, exactly.
 *   2. A binomial tree, for any P. Let Q be the largest power of two that is not above P.
 *        round 0:            rank Q + i sends to rank i, for i < P - Q;
 *        round 1, 2, ...:    with s = 1, 2, 4, ..., Q / 2, rank r + s sends to rank r, for r < Q
 *                            that 2s divides.
 *      The sender is done. The receiver adds up both lists (its own + the one that arrived), keeps
 *      the k largest sums, and remembers those that it dropped.
 *   3. Rank 0 has G, at most k sums, and broadcasts it; every rank's header goes to all ranks.
 *   4. The result is G, or its average.
 *   5. The decision. The residual loses what its rank chose where it is in G.
 *   6. Each rank adds the values that it dropped on the way at an index of G to its own residual,
 *      round by round: they are missing in G, and the ranks that chose them have cleared them.
 *
 * Cost, in words (an entry is two; chosen ones one and a half with bf16). A rank sends its 2k once,
 * but rank 0, and receives 2k for each of its at most ceil(log2 P) merges; the broadcast is 2k
 * sent and 2k received. Within 4k log2 P for P > 1. One message after another: ceil(log2 P) and a
 * broadcast. Fixed sizes, no wait.
 *
 * Invariant. Let a_r be what rank r chose at index j, d_m what was dropped there at merge m. A
 * sum is either passed on or dropped, so if j is in G, G[j] = sum a_r - sum d_m; the residuals have
 * lost sum a_r and got back sum d_m. If j is not in G nothing has left any residual.
 *
 * Different from the published code, where:
 *  - step 6 is missing: a sum that is dropped in one branch is lost if its index survives in
 *    another (in a simulation, 10 % of the update with 8 ranks and 90 % with 32);
 *  - P has to be a power of two;
 *  - index and value travel as two float64, twice the words;
 *  - after equal indices are added up, an entry of value 0 stays in the list and can take the place
 *    of another one. Here a list has every index once, and no sum that is 0. */
#include "csrc/base/size.h"
#include "csrc/sparse/algorithms/cut.h"
#include "csrc/sparse/link.h"

enum { ROUNDS = 7 }; /* of TRI_MAX_LISTS ranks: round 0 and six more */

struct gtopk {
    struct tri_packet chosen;  /* by this rank */
    struct tri_packet arrived; /* in this round: has room for any dtype */
    struct tri_packet kept;    /* the k largest sums so far; in the end G */
    struct tri_entries merged;
    struct tri_entries dropped[ROUNDS];
    struct tri_header *headers;
    struct tri_cut_scratch scratch;
};

/* ---- the tree */

/* The largest power of two that is not above the number of ranks. */
static int32_t power(const struct tri_sparse_params *params)
{
    int32_t power = 1;
    while (power <= params->size / 2)
        power *= 2;
    return power;
}

static int32_t rounds(const struct tri_sparse_params *params)
{
    int32_t n = 1;
    for (int32_t stride = 1; stride < power(params); stride *= 2)
        n++;
    return n;
}

/* From whom `rank` receives in this round; -1: from nobody. */
static int32_t source(const struct tri_sparse_params *params, int32_t rank, int32_t round)
{
    const int32_t all = power(params);
    if (rank >= all)
        return -1;
    if (round == 0)
        return rank + all < params->size ? rank + all : -1;
    const int32_t stride = 1 << (round - 1);
    return rank % (2 * stride) == 0 ? rank + stride : -1;
}

/* To whom `rank` sends in this round; -1: to nobody. */
static int32_t target(const struct tri_sparse_params *params, int32_t rank, int32_t round)
{
    const int32_t all = power(params);
    if (round == 0)
        return rank >= all ? rank - all : -1;
    const int32_t stride = 1 << (round - 1);
    return rank < all && rank % (2 * stride) == stride ? rank - stride : -1;
}

/* True if `rank` has received before this round: then it holds sums, else its chosen entries. */
static bool has_sums(const struct tri_sparse_params *params, int32_t rank, int32_t round)
{
    while (--round >= 0)
        if (source(params, rank, round) >= 0)
            return true;
    return false;
}

/* ---- memory */

static size_t pair_entries(const struct tri_sparse_params *params)
{
    return 2 * (size_t)params->k;
}

static size_t capacity(const struct tri_sparse_params *params)
{
    return params->k;
}

/* A merge drops at most as many entries as one list has: if it keeps fewer than k, it drops only
 * sums of 0, and each of these needs an entry of either list. But bf16 may round values to 0. */
static size_t dropped_entries(const struct tri_sparse_params *params)
{
    return tri_least(params->wire == params->acc ? params->k : pair_entries(params), params->count);
}

static void lay_out(void *memory, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct gtopk *own = memory;
    own->chosen = tri_arena_packets(arena, 1, params->k, params->wire);
    own->arrived = tri_arena_packets(arena, 1, params->k, params->acc);
    own->kept = tri_arena_packets(arena, 1, params->k, params->acc);
    own->merged =
        tri_arena_entries(arena, tri_least(pair_entries(params), params->count), params->acc);
    for (int32_t round = 0; round < rounds(params); round++)
        if (source(params, params->rank, round) >= 0)
            own->dropped[round] = tri_arena_entries(arena, dropped_entries(params), params->acc);
    own->headers = tri_arena_take(arena, (size_t)params->size * sizeof *own->headers);
    tri_cut_lay_out(&own->scratch, arena, params);
}

/* ---- one call */

/* The entries that this rank holds before `round`. */
static struct tri_packet held(const struct gtopk *own, const struct tri_sparse_params *params,
                              int32_t round)
{
    return has_sums(params, params->rank, round) ? own->kept : own->chosen;
}

static trib_status send(struct tri_run *run, struct gtopk *own, int32_t round, int32_t to)
{
    const struct tri_packet packet = held(own, run->params, round);
    const struct tri_message message = {
        .peer = to,
        .data = packet.data,
        .bytes = tri_packet_bytes(packet.capacity, packet.dtype),
        .payload = tri_entries_bytes(packet.capacity, packet.dtype),
    };
    return tri_link_exchange(run, &message, 1, NULL, 0);
}

static trib_status receive(struct tri_run *run, struct gtopk *own, int32_t round, int32_t from)
{
    const struct tri_sparse_params *params = run->params;
    const struct tri_packet before = held(own, params, round);
    struct tri_packet arrived = own->arrived;
    arrived.dtype = has_sums(params, from, round) ? params->acc : params->wire;
    const struct tri_message message = {
        .peer = from,
        .data = arrived.data,
        .bytes = tri_packet_bytes(arrived.capacity, arrived.dtype),
        .payload = tri_entries_bytes(arrived.capacity, arrived.dtype),
    };
    const struct tri_entries lists[2] = {tri_packet_entries(&before, 0),
                                         tri_packet_entries(&arrived, 0)};
    const struct tri_merge merge = tri_run_merge(run, lists, 2, 0, params->count);
    const struct tri_entries kept = tri_packet_entries(&own->kept, 0);
    TRI_TRY(tri_link_exchange(run, NULL, 0, &message, 1));
    TRI_TRY(run->kernels->merge(&merge, &own->merged, run->scratch, run->stream));
    return tri_cut_local(run, &own->scratch, &own->merged, params->k, &kept, &own->dropped[round]);
}

static trib_status reduce_tree(struct tri_run *run, struct gtopk *own)
{
    for (int32_t round = 0; round < rounds(run->params); round++) {
        const int32_t to = target(run->params, run->params->rank, round);
        const int32_t from = source(run->params, run->params->rank, round);
        if (to >= 0)
            TRI_TRY(send(run, own, round, to));
        else if (from >= 0)
            TRI_TRY(receive(run, own, round, from));
    }
    return TRIB_OK;
}

/* G and all headers to all ranks. */
static trib_status broadcast(struct tri_run *run, struct gtopk *own)
{
    const struct tri_packet *kept = &own->kept;
    tri_link_begin(run);
    TRI_TRY(tri_link_broadcast(run, kept->data, tri_packet_bytes(kept->capacity, kept->dtype),
                               tri_entries_bytes(kept->capacity, kept->dtype), 0));
    TRI_TRY(tri_link_allgather(run, tri_packet_header(&own->chosen, 0), own->headers,
                               sizeof *own->headers, 0));
    return tri_link_end(run);
}

static trib_status update_residual(struct tri_run *run, const struct gtopk *own,
                                   const struct tri_entries *among)
{
    const struct tri_sparse_params *params = run->params;
    const struct tri_entries chosen = tri_packet_entries(&own->chosen, 0);
    run->scalars.selected = chosen.count;
    TRI_TRY(tri_run_update_residual(run, &chosen, among));
    for (int32_t round = 0; round < rounds(params); round++)
        if (source(params, params->rank, round) >= 0)
            TRI_TRY(tri_run_restore_residual(run, &own->dropped[round], among));
    return TRIB_OK;
}

static trib_status gtopk_run(struct tri_run *run, void *memory)
{
    struct gtopk *own = memory;
    const struct tri_entries chosen = tri_packet_entries(&own->chosen, 0);
    const struct tri_packet *last = run->params->size > 1 ? &own->kept : &own->chosen;
    const struct tri_entries result = tri_packet_entries(last, 0);
    TRI_TRY(tri_run_select(run, tri_packet_header(&own->chosen, 0), &chosen, false));
    TRI_TRY(reduce_tree(run, own));
    TRI_TRY(broadcast(run, own));
    TRI_TRY(tri_run_result(run, &result, 1, NULL));
    TRI_TRY(tri_run_decide(run, own->headers, sizeof *own->headers, own->chosen.capacity));
    return update_residual(run, own, &result);
}

const struct tri_algorithm tri_sparse_gtopk = {
    .name = "gtopk",
    .own_bytes = sizeof(struct gtopk),
    .lay_out = lay_out,
    .entries = pair_entries,
    .capacity = capacity,
    .run = gtopk_run,
    .selects = capacity,
};
