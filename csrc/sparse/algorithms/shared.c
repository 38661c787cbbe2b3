/* shared: one rank, in turn, chooses the indices for all.
 *
 * Problem. If every rank chooses its own indices, P lists are sent to everybody, and at each index
 * only those ranks' values are added up that happened to choose it. If all take the same indices,
 * only values have to be added up, by an ordinary allreduce, and all ranks' values count.
 *
 * Paper. CLT-k of Chen et al., "ScaleCom: Scalable Sparsified Gradient Compression for
 * Communication-Efficient Distributed Training" (NeurIPS 2020): cyclic local top-k.
 *
 *   1. acc = gradient + residual, on every rank. The leader, rank step % P, chooses its k largest.
 *   2. The leader broadcasts the count and the indices.
 *   3. Every rank takes its values at these indices.
 *   4. One allreduce of k values, and an allgather of the headers, handed over as one.
 *   5. The result is the sums at these indices.
 *   6. The decision, by the headers and the result.
 *   7. Every rank takes its own values out of its residual, which becomes 0 there on all ranks.
 *
 * Cost. k words for the indices, but for the last rank of the chain, and 2k(P-1)/P for the values;
 * two collectives. The least memory and time of all: one selection, by the leader, and k entries.
 *
 * Invariant. At an index that is chosen the sum of all acc is applied, and no residual keeps
 * anything; elsewhere nothing moves. So mass is conserved however bad the choice.
 *
 * Different from the paper in that the residual is not filtered (its beta is `decay`). The leader
 * may have fewer than k entries that are not 0; then the places behind the count take part in the
 * allreduce and in nothing else. The wire type is not used: sums travel as f32, so rounding would
 * save nothing. In a CUDA graph the leader stays the one of the call that was captured; capture P
 * calls for a full turn. */
#include "csrc/sparse/link.h"

enum { HEAD = 64 }; /* bytes in front of the indices, which begin with the count */

struct shared {
    char *message; /* count, then indices: what is broadcast */
    void *values;  /* of this rank, */
    void *sums;    /* and of all */
    struct tri_header *headers;
};

static size_t k_of(const struct tri_sparse_params *params)
{
    return params->k;
}

static void lay_out(void *own, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct shared *shared = own;
    const size_t values = params->k * trib_dtype_size(params->acc);
    shared->message = tri_arena_take(arena, HEAD + params->k * sizeof(uint32_t));
    shared->values = tri_arena_take(arena, values);
    shared->sums = tri_arena_take(arena, values);
    shared->headers = tri_arena_take(arena, (size_t)params->size * sizeof *shared->headers);
}

/* The indices, with these values. */
static struct tri_entries with(const struct tri_run *run, const struct shared *shared, void *values)
{
    return (struct tri_entries){
        .count = (uint32_t *)(void *)shared->message,
        .index = (uint32_t *)(void *)(shared->message + HEAD),
        .value = values,
        .capacity = run->params->k,
        .dtype = run->params->acc,
    };
}

/* Every rank's values at the leader's indices. */
static trib_status choose(struct tri_run *run, const struct shared *shared,
                          const struct tri_entries *own)
{
    const size_t indices = run->params->k * sizeof(uint32_t);
    const int32_t leader = (int32_t)(run->step % (uint64_t)run->params->size);
    const bool leads = leader == run->params->rank;
    TRI_TRY(leads ? tri_run_select(run, run->scalars.header, own, false)
                  : tri_run_accumulate(run, run->scalars.header));
    TRI_TRY(tri_link_broadcast(run, shared->message, HEAD + indices, indices, leader));
    if (leads)
        return TRIB_OK; /* select has written the leader's values */
    return run->kernels->index_select(&run->acc, own, run->stream);
}

static trib_status exchange(struct tri_run *run, const struct shared *shared)
{
    tri_link_begin(run);
    TRI_TRY(tri_link_headers(run, shared->headers));
    TRI_TRY(tri_link_allreduce_to(run, shared->values, shared->sums, run->params->k,
                                  run->params->acc, true));
    return tri_link_end(run);
}

static trib_status shared_run(struct tri_run *run, void *own)
{
    const struct shared *shared = own;
    const struct tri_entries values = with(run, shared, shared->values);
    const struct tri_entries sums = with(run, shared, shared->sums);
    TRI_TRY(choose(run, shared, &values));
    TRI_TRY(exchange(run, shared));
    TRI_TRY(tri_run_result(run, &sums, 1, NULL));
    TRI_TRY(tri_run_decide(run, shared->headers, sizeof *shared->headers, UINT32_MAX));
    run->scalars.selected = values.count;
    return tri_run_update_residual(run, &values, NULL);
}

const struct tri_algorithm tri_sparse_shared = {
    .name = "shared",
    .own_bytes = sizeof(struct shared),
    .lay_out = lay_out,
    .entries = k_of,
    .capacity = k_of,
    .run = shared_run,
    .selects = k_of,
};
