/* dense, with values of 16 bits: half of the bytes of dense, and the rounding of each rank's acc stays
 * in its residual.
 *
 * Problem. That of dense, where the caller allows bf16 on the wire.
 *
 * Paper. None.
 *
 *   1. acc = gradient + residual; of it what bf16 holds is taken out.
 *   2. One allreduce of that, in bf16, and an allgather of the headers, handed over as one.
 *   3. The result is the sum, or its average.
 *   4. The decision, by the headers and the result. What is left of acc becomes the residual.
 *
 * Cost. n(P-1)/P words per rank, one collective. Can be captured in a CUDA graph.
 *
 * Invariant. The result is the sum of what was taken out of all acc, to the bit where bf16 holds all
 * sums; the backend rounds the others, host once, NCCL each partial sum.
 *
 * As in dense, with momentum nothing is masked. In place it is dense that runs, in f32: there is no
 * second buffer to which a call that is not applied could return. So it is with entries. */
#include "csrc/sparse/link.h"

struct narrow {
    struct tri_header *headers; /* one per rank */
    void *sum;                  /* bf16 */
};

static size_t none(const struct tri_sparse_params *params)
{
    (void)params;
    return 0;
}

static size_t capacity(const struct tri_sparse_params *params)
{
    return params->count;
}

static uint64_t k(const struct tri_sparse_params *params)
{
    return params->count;
}

static void lay_out(void *own, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct narrow *narrow = own;
    narrow->headers = tri_arena_take(arena, (size_t)params->size * sizeof *narrow->headers);
    narrow->sum = tri_arena_take(arena, params->count * trib_dtype_size(params->wire));
}

static trib_status exchange(struct tri_run *run, const struct narrow *narrow)
{
    tri_link_begin(run);
    TRI_TRY(tri_link_headers(run, narrow->headers));
    TRI_TRY(tri_link_allreduce(run, narrow->sum, run->params->count, run->params->wire, true));
    return tri_link_end(run);
}

static trib_status narrow_run(struct tri_run *run, void *own)
{
    const struct narrow *narrow = own;
    run->acc.rounded = narrow->sum;
    TRI_TRY(tri_run_accumulate(run, run->scalars.header));
    TRI_TRY(exchange(run, narrow));
    TRI_TRY(tri_run_result_dense(run, narrow->sum, run->params->wire));
    run->scalars.selected = run->scalars.applied = run->scalars.all;
    return tri_run_decide(run, narrow->headers, sizeof *narrow->headers, UINT32_MAX);
}

const struct tri_algorithm tri_sparse_dense_narrow = {
    .name = "dense",
    .own_bytes = sizeof(struct narrow),
    .lay_out = lay_out,
    .entries = none,
    .capacity = capacity,
    .run = narrow_run,
    .selects = none,
    .k = k,
};
