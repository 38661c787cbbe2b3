/* srs: reduce-scatter of blocks that stay sparse, then an allgather.
 *
 * Problem. In a reduce-scatter of sparse blocks the sums fill up on the way. Here each block is cut
 * to its share of k again before it goes on, so every message has a fixed size, on any number of
 * ranks.
 *
 * Paper. "Spar-Reduce-Scatter" with global residual collection, of "SparDL: Distributed Deep
 * Learning Training with Efficient Sparse Communication" (arXiv 2304.00737).
 *
 *   1. P blocks: block b is [b n / P, (b + 1) n / P), and rank b its owner. q = max(k / P, 1)
 *      entries per block (none if k = 0).
 *   2. acc = gradient + residual; of each block the q largest of acc are chosen, exactly.
 *   3. L = ceil(log2 P) rounds, with the distances D = 2^(L-1), ..., 4, 2, 1. Let a block's offset
 *      on rank r be (b - r) mod P. Before a round a rank holds the offsets below E; at first E is
 *      P. It sends those in [D, E) to rank r + D (mod P), where their offsets are less by D, and
 *      receives as many from rank r - D. Then E is D. So the first message holds the remainder of
 *      P - 2^(L-1) blocks, and the others half of what is left.
 *   4. A block that is about to leave, and in the end the own one (offset 0), is added up: what the
 *      rank chose, then what has arrived for it, round by round. If anything has arrived the sum is
 *      cut to the q largest, zeros left out, and the rest is remembered as dropped. It is cut once,
 *      however much has arrived.
 *   5. One allgather of the P own blocks, with the headers in front: the result, in index order.
 *   6. The decision. The residual loses what its rank chose where it is in the result.
 *   7. Each rank adds the values that it dropped at an index of the result to its residual.
 *
 * Each contribution arrives exactly once. Proof: the part of block b that rank r chose has at first
 * the offset o = (b - r) mod P < P <= 2^L. A round with o >= D moves it to the rank D further on,
 * where its offset is o - D; any other leaves it, and o < D afterwards in both cases. After the
 * last round o < 1: it is on rank b. It is moved, not copied, and a block that has left a rank
 * never returns, for its offsets there would be D or more.
 *
 * Cost, in words per rank: 2q(P-1) for the blocks sent, as many received, and 2q(P-1) for the
 * allgather: 4q(P-1) = 4k(P-1)/P if P divides k. (Round one travels as chosen: 1.5q per block with
 * bf16.) L messages one after the other and an allgather. Fixed sizes, no wait.
 *
 * Invariant. As in gtopk: a sum is passed on or dropped, so at an index of the result what was
 * cleared is what is in the result and what was given back; elsewhere nothing has left any
 * residual.
 *
 * Different from the paper: a block is cut when it is sent, not after every arrival, so fewer sums
 * are made of values that were cut already. The allgather is the backend's. */
#include "csrc/base/size.h"
#include "csrc/sparse/algorithms/cut.h"
#include "csrc/sparse/link.h"

enum { ROUNDS = 6 }; /* of TRI_MAX_LISTS ranks */

struct srs {
    struct tri_packet chosen;                  /* by offset */
    struct tri_packet arrived[ROUNDS];         /* by round, in each by offset */
    struct tri_packet leaving;                 /* in one round, after the first, by offset - D */
    struct tri_packet blocks;                  /* by rank, in the end */
    struct tri_entries merged;                 /* one block */
    struct tri_entries dropped[TRI_MAX_LISTS]; /* by offset */
    struct tri_entries own;                    /* all that this rank has chosen */
    struct tri_entries result;
    struct tri_cut_scratch scratch;
};

/* ---- blocks and rounds */

static int32_t rounds(const struct tri_sparse_params *params)
{
    int32_t n = 0;
    while ((1 << n) < params->size)
        n++;
    return n;
}

/* D of a round. */
static int32_t distance(const struct tri_sparse_params *params, int32_t round)
{
    return 1 << (rounds(params) - 1 - round);
}

/* The number of blocks that leave in a round, and arrive: E - D. */
static int32_t moving(const struct tri_sparse_params *params, int32_t round)
{
    const int32_t held = round == 0 ? params->size : distance(params, round - 1);
    return held - distance(params, round);
}

/* In how many rounds before `round` something arrives for an offset that is still held. */
static int32_t arrivals(const struct tri_sparse_params *params, int32_t round, int32_t offset)
{
    int32_t n = 0;
    for (int32_t before = 0; before < round; before++)
        n += offset < moving(params, before);
    return n;
}

/* The round in which an offset leaves; for 0, which never does, the one after the last. */
static int32_t leaves(const struct tri_sparse_params *params, int32_t offset)
{
    int32_t round = 0;
    while (round < rounds(params) && offset < distance(params, round))
        round++;
    return round;
}

static size_t block_begin(const struct tri_sparse_params *params, int32_t block)
{
    return (size_t)((uint64_t)params->count * (uint64_t)block / (uint64_t)params->size);
}

static int32_t block_at(const struct tri_sparse_params *params, int32_t offset)
{
    return (params->rank + offset) % params->size;
}

/* ---- sizes */

static uint32_t block_most(const struct tri_sparse_params *params)
{
    const uint64_t size = (uint64_t)params->size;
    return (uint32_t)((params->count + size - 1) / size);
}

/* q */
static uint32_t share(const struct tri_sparse_params *params)
{
    const uint32_t k = params->k, size = (uint32_t)params->size;
    return k == 0 ? 0 : k < size ? 1 : k / size;
}

static size_t all_shares(const struct tri_sparse_params *params)
{
    return (size_t)params->size * share(params);
}

static size_t capacity(const struct tri_sparse_params *params)
{
    return tri_least(all_shares(params), params->count);
}

static size_t selects(const struct tri_sparse_params *params)
{
    return share(params);
}

static uint64_t chosen_in_all(const struct tri_sparse_params *params)
{
    return capacity(params);
}

/* A cut of a block merged from n lists drops at most as much as n - 1 of them hold: if it keeps
 * fewer than q, it drops only sums of 0, each made of two entries or more. But bf16 may have
 * rounded any value to 0. */
static size_t dropped_entries(const struct tri_sparse_params *params, int32_t n)
{
    const int32_t lists = params->wire == params->acc ? n - 1 : n;
    return tri_least((size_t)lists * share(params), block_most(params));
}

static void lay_out(void *memory, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct srs *own = memory;
    const int32_t last = rounds(params);
    const uint32_t q = share(params);
    own->chosen = tri_arena_packets(arena, (size_t)params->size, q, params->wire);
    for (int32_t round = 0; round < last; round++)
        own->arrived[round] = tri_arena_packets(arena, (size_t)moving(params, round), q,
                                                round == 0 ? params->wire : params->acc);
    own->leaving =
        tri_arena_packets(arena, last < 2 ? 0 : (size_t)moving(params, 1), q, params->acc);
    own->blocks = tri_arena_packets(arena, (size_t)params->size, q, params->acc);
    own->merged = tri_arena_entries(arena, tri_least((size_t)(last + 1) * q, block_most(params)),
                                    params->acc);
    for (int32_t offset = 0; offset < params->size; offset++) {
        const int32_t n = arrivals(params, leaves(params, offset), offset);
        if (n > 0)
            own->dropped[offset] =
                tri_arena_entries(arena, dropped_entries(params, n + 1), params->acc);
    }
    own->own = tri_arena_entries(arena, capacity(params), params->acc);
    own->result = tri_arena_entries(arena, capacity(params), params->acc);
    tri_cut_lay_out(&own->scratch, arena, params);
}

/* ---- one call */

static trib_status choose(struct tri_run *run, const struct srs *own)
{
    const struct tri_sparse_params *params = run->params;
    TRI_TRY(tri_run_accumulate(run, tri_packet_header(&own->blocks, (size_t)params->rank)));
    for (int32_t offset = 0; offset < params->size; offset++) {
        const int32_t block = block_at(params, offset);
        const size_t first = block_begin(params, block);
        const struct tri_selection selection = {
            .first = first,
            .count = block_begin(params, block + 1) - first,
            .k = share(params),
            .fallbacks = run->scalars.fallbacks,
        };
        const struct tri_entries out = tri_packet_entries(&own->chosen, (size_t)offset);
        TRI_TRY(run->kernels->select(&run->acc, &selection, &out, run->scratch, run->stream));
    }
    return TRIB_OK;
}

/* Step 4. */
static trib_status add_up(struct tri_run *run, struct srs *own, int32_t offset,
                          const struct tri_entries *out)
{
    const struct tri_sparse_params *params = run->params;
    const int32_t block = block_at(params, offset);
    const size_t first = block_begin(params, block), end = block_begin(params, block + 1);
    struct tri_entries lists[ROUNDS + 1] = {tri_packet_entries(&own->chosen, (size_t)offset)};
    int32_t n = 1;
    for (int32_t round = 0; round < leaves(params, offset); round++)
        if (offset < moving(params, round))
            lists[n++] = tri_packet_entries(&own->arrived[round], (size_t)offset);
    const struct tri_merge merge = tri_run_merge(run, lists, n, first, end);
    TRI_TRY(run->kernels->merge(&merge, n == 1 ? out : &own->merged, run->scratch, run->stream));
    if (n == 1)
        return TRIB_OK;
    return tri_cut_local(run, &own->scratch, &own->merged, share(params), out,
                         &own->dropped[offset]);
}

/* The blocks that leave in a round: the first ones just as they were chosen. */
static trib_status pack(struct tri_run *run, struct srs *own, int32_t round, void **out)
{
    const struct tri_sparse_params *params = run->params;
    const int32_t first = distance(params, round);
    *out = round == 0 ? tri_packet_header(&own->chosen, (size_t)first)
                      : tri_packet_header(&own->leaving, 0);
    for (int32_t i = 0; round > 0 && i < moving(params, round); i++) {
        const struct tri_entries entries = tri_packet_entries(&own->leaving, (size_t)i);
        TRI_TRY(add_up(run, own, first + i, &entries));
    }
    return TRIB_OK;
}

static trib_status exchange(struct tri_run *run, struct srs *own, int32_t round)
{
    const struct tri_sparse_params *params = run->params;
    const struct tri_packet *arrived = &own->arrived[round];
    const size_t n = (size_t)moving(params, round);
    const size_t bytes = n * tri_packet_bytes(arrived->capacity, arrived->dtype);
    const size_t payload = n * tri_entries_bytes(arrived->capacity, arrived->dtype);
    const int32_t further = distance(params, round);
    struct tri_message send = {
        .peer = (params->rank + further) % params->size, .bytes = bytes, .payload = payload};
    const struct tri_message receive = {
        .peer = (params->rank + params->size - further) % params->size,
        .data = arrived->data,
        .bytes = bytes,
        .payload = payload,
    };
    TRI_TRY(pack(run, own, round, &send.data));
    return tri_link_exchange(run, &send, 1, &receive, 1);
}

static trib_status reduce_scatter(struct tri_run *run, struct srs *own)
{
    const struct tri_entries block = tri_packet_entries(&own->blocks, (size_t)run->params->rank);
    for (int32_t round = 0; round < rounds(run->params); round++)
        TRI_TRY(exchange(run, own, round));
    return add_up(run, own, 0, &block);
}

static trib_status allgather(struct tri_run *run, const struct srs *own)
{
    const struct tri_packet *blocks = &own->blocks;
    return tri_link_allgather(run, tri_packet_header(blocks, (size_t)run->params->rank),
                              blocks->data, tri_packet_bytes(blocks->capacity, blocks->dtype),
                              tri_entries_bytes(blocks->capacity, blocks->dtype));
}

/* Blocks in index order, the first of them at packet `first`, as one list. */
static trib_status join(struct tri_run *run, const struct tri_packet *packets, int32_t first,
                        const struct tri_entries *out)
{
    const int32_t size = run->params->size;
    struct tri_entries lists[TRI_MAX_LISTS];
    for (int32_t b = 0; b < size; b++)
        lists[b] = tri_packet_entries(packets, (size_t)((first + b) % size));
    const struct tri_merge merge = tri_run_merge(run, lists, size, 0, run->params->count);
    return run->kernels->merge(&merge, out, run->scratch, run->stream);
}

static trib_status update_residual(struct tri_run *run, const struct srs *own)
{
    const struct tri_sparse_params *params = run->params;
    run->scalars.selected = own->own.count;
    TRI_TRY(tri_run_update_residual(run, &own->own, &own->result));
    for (int32_t offset = 0; offset < params->size; offset++)
        if (arrivals(params, leaves(params, offset), offset) > 0)
            TRI_TRY(tri_run_restore_residual(run, &own->dropped[offset], &own->result));
    return TRIB_OK;
}

static trib_status srs_run(struct tri_run *run, void *memory)
{
    struct srs *own = memory;
    const struct tri_sparse_params *params = run->params;
    TRI_TRY(choose(run, own));
    TRI_TRY(reduce_scatter(run, own));
    TRI_TRY(allgather(run, own));
    TRI_TRY(join(run, &own->chosen, (params->size - params->rank) % params->size, &own->own));
    TRI_TRY(join(run, &own->blocks, 0, &own->result));
    TRI_TRY(tri_run_result(run, &own->result, 1, NULL));
    TRI_TRY(tri_run_decide(run, own->blocks.data,
                           tri_packet_bytes(own->blocks.capacity, own->blocks.dtype),
                           own->blocks.capacity));
    return update_residual(run, own);
}

const struct tri_algorithm tri_sparse_srs = {
    .name = "srs",
    .own_bytes = sizeof(struct srs),
    .lay_out = lay_out,
    .entries = all_shares,
    .capacity = capacity,
    .run = srs_run,
    .selects = selects,
    .k = chosen_in_all,
};
