/* dense: all of acc, in one allreduce.
 *
 * Problem. The baseline of every sparse allreduce, and faster where k is large, n is small or the
 * network is fast; with the same state, the same calls and the same guarantees.
 *
 * Paper. None: a ring or tree allreduce, whichever the backend takes.
 *
 *   1. acc = gradient + residual.
 *   2. One allreduce of acc, and an allgather of the headers, handed over as one.
 *   3. The result is the sum, or its average.
 *   4. The decision, by the headers and the result.
 *   5. The residual becomes 0: all of acc is applied.
 *
 * Cost. 2n(P-1)/P words per rank (of f32, also for 16-bit gradients: sums are f32), one collective.
 * Where values may travel as bf16, dense_narrow.c runs in its place.
 * Can be captured in a CUDA graph.
 *
 * Invariant. The result is the sum of all acc, and every residual is 0 after a call that is
 * applied. Before one it may not be: an import, or a larger k after a smaller one (auto), may have
 * left mass there.
 *
 * With momentum nothing is masked: masking is for what has waited, and here nothing waits. So the
 * result is the sum of the velocities, as of SGD with momentum.
 *
 * Different from a plain allreduce in that an infinity or a NaN anywhere applies nothing, and that
 * an aborted call leaves acc in place. So in separate mode the sum is made in the buffer of acc,
 * and that never becomes the residual: the decision swaps no residual. In place it is made outside of
 * the accumulator: in the result if there is a dense one.
 *
 * A call that may be taken back must leave the old residual where it is. There the decision swaps,
 * the sum, which is of no use any more, becomes the residual 0, and the next call brings that back
 * to where the residual is looked for. */
#include "csrc/sparse/link.h"

struct dense {
    struct tri_header *headers; /* one per rank */
    void *sum;                  /* NULL: made elsewhere */
    struct tri_entries entries; /* of the result */
};

/* Entries are found by a selection of everything that is not 0. */
static size_t entries(const struct tri_sparse_params *params)
{
    return params->entries ? params->count : 0;
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
    struct dense *dense = own;
    dense->headers = tri_arena_take(arena, (size_t)params->size * sizeof *dense->headers);
    if (params->entries)
        dense->entries = tri_arena_entries(arena, params->count, params->acc);
    if (params->entries && params->in_place)
        dense->sum = tri_arena_take(arena, params->count * trib_dtype_size(params->acc));
}

/* Input and output of the sum: acc is buffer 1 in separate mode, because the buffers never swap. */
static const void *source(const struct tri_run *run)
{
    return run->acc.buffer[run->params->in_place ? 0 : 1];
}

static void *target(const struct tri_run *run, const struct dense *dense)
{
    if (!run->params->in_place)
        return run->acc.buffer[1];
    return dense->sum != NULL ? dense->sum : run->dense;
}

static trib_status exchange(struct tri_run *run, const struct dense *dense)
{
    const struct tri_sparse_params *params = run->params;
    tri_link_begin(run);
    TRI_TRY(tri_link_headers(run, dense->headers));
    TRI_TRY(tri_link_allreduce_to(run, source(run), target(run, dense), params->count, params->acc,
                                  true));
    return tri_link_end(run);
}

static trib_status make_entries(struct tri_run *run, const struct dense *dense)
{
    const struct tri_accumulator sum = {.buffer = {target(run, dense)},
                                        .dtype = run->params->acc,
                                        .decay = 1,
                                        .count = run->params->count};
    const struct tri_selection all = {.count = run->params->count,
                                      .k = (uint32_t)run->params->count};
    TRI_TRY(run->kernels->select(&sum, &all, &dense->entries, run->scratch, run->stream));
    return tri_run_result(run, &dense->entries, 1, NULL);
}

static trib_status make_result(struct tri_run *run, const struct dense *dense)
{
    return run->params->entries ? make_entries(run, dense)
                                : tri_run_result_dense(run, target(run, dense), run->params->acc);
}

static trib_status dense_run(struct tri_run *run, void *own)
{
    const struct dense *dense = own;
    if (run->params->revocable)
        TRI_TRY(tri_run_undo_swap(run));
    TRI_TRY(tri_run_accumulate(run, run->scalars.header));
    TRI_TRY(exchange(run, dense));
    TRI_TRY(make_result(run, dense));
    if (!run->params->revocable)
        run->scalars.current = NULL;
    run->scalars.selected = run->scalars.applied = run->scalars.all;
    TRI_TRY(tri_run_decide(run, dense->headers, sizeof *dense->headers, UINT32_MAX));
    return run->kernels->decay(&run->acc, 0, run->scalars.decision, run->stream);
}

const struct tri_algorithm tri_sparse_dense = {
    .name = "dense",
    .own_bytes = sizeof(struct dense),
    .lay_out = lay_out,
    .entries = entries,
    .capacity = capacity,
    .run = dense_run,
    .narrow = &tri_sparse_dense_narrow,
    .selects = entries,
    .k = k,
};
