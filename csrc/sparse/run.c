/* One call of a sparse allreduce while it runs: the steps that algorithms share. */
#include "csrc/sparse/run.h"

#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------------------------- small copies */

static bool runs_now(const struct tri_run *run)
{
    return run->backend->transport->submit != NULL;
}

trib_status tri_run_put(struct tri_run *run, void *dst, const void *src, size_t bytes)
{
    if (bytes == 0 || dst == src)
        return TRIB_OK;
    if (!runs_now(run))
        return run->backend->device->copy(run->device, dst, src, bytes, run->stream);
    memcpy(dst, src, bytes);
    return TRIB_OK;
}

trib_status tri_run_put_entries(struct tri_run *run, const struct tri_entries *to,
                                const struct tri_entries *from)
{
    const size_t n = to->capacity;
    TRI_TRY(tri_run_put(run, to->index, from->index, n * sizeof *to->index));
    return tri_run_put(run, to->value, from->value, n * trib_dtype_size(to->dtype));
}

trib_status tri_run_fetch(struct tri_run *run, void *dst, const void *src, size_t bytes)
{
    if (runs_now(run))
        return tri_run_put(run, dst, src, bytes);
    struct trib_abort *state = run->backend->transport->abort_state(run->transport);
    const trib_status status =
        run->backend->device->fetch(run->device, dst, src, bytes, run->stream);
    if (status != TRIB_OK)
        return status;
    return tri_abort_live(state) ? TRIB_OK : tri_abort_status(state);
}

/* ---------------------------------------------------------------------------------------- steps */

trib_status tri_run_make_velocity(struct tri_run *run)
{
    if (!run->acc.makes_velocity)
        return TRIB_OK;
    run->acc.makes_velocity = false;
    run->acc.gradient_dtype = run->velocity.dtype;
    if (run->params->clip == 0)
        return run->kernels->accumulate(&run->velocity, (struct tri_signing){0}, run->stream);
    return run->kernels->accumulate_clipped(&run->velocity, run->params->clip, run->scratch,
                                            run->stream);
}

bool tri_run_clears(const struct tri_run *run)
{
    return !run->params->in_place;
}

struct tri_signing tri_run_signing(const struct tri_run *run, struct tri_header *header)
{
    return (struct tri_signing){.header = header, .signature = run->signature};
}

trib_status tri_run_accumulate(struct tri_run *run, struct tri_header *header)
{
    return run->kernels->accumulate(&run->acc, tri_run_signing(run, header), run->stream);
}

trib_status tri_run_select(struct tri_run *run, struct tri_header *header,
                           const struct tri_entries *out, bool clear)
{
    const struct tri_selection selection = {
        .count = run->params->count,
        .k = run->params->k,
        .accumulate = !run->params->in_place,
        .clear = clear,
        .signing = tri_run_signing(run, header),
        .fallbacks = run->scalars.fallbacks,
    };
    return run->kernels->select(&run->acc, &selection, out, run->scratch, run->stream);
}

bool tri_run_consistent(const struct tri_run *run, const void *headers, size_t stride,
                        uint32_t capacity)
{
    for (int32_t r = 0; r < run->params->size; r++) {
        const void *at = (const char *)headers + (size_t)r * stride;
        const struct tri_header *header = at;
        if (header->signature != run->signature || header->count > capacity ||
            header->nonfinite > 0)
            return false;
    }
    return true;
}

trib_status tri_run_check(const struct tri_run *run, const struct tri_sent *sent)
{
    char bound[32] = "";
    if (sent->found >= sent->least && sent->found <= sent->most)
        return TRIB_OK;
    if (sent->bound != 0)
        (void)snprintf(bound, sizeof bound, " below bound %d", (int)sent->bound);
    return tri_fail(TRIB_ERR_MISMATCH,
                    "sparse allreduce on rank %d, device %d: rank %d sent %llu as %s%s, expected "
                    "%llu to %llu; the call was not applied: all ranks must run the same version "
                    "of Tributary, and their memory and messages must be sound",
                    (int)run->params->rank, (int)run->device, (int)sent->rank,
                    (unsigned long long)sent->found, sent->what, bound,
                    (unsigned long long)sent->least, (unsigned long long)sent->most);
}

static trib_status decide(struct tri_run *run, const void *headers, size_t stride,
                          const struct tri_header *const *packets, uint32_t capacity)
{
    const struct tri_decide decide = {
        .abort_flag = run->abort_flag,
        .headers = headers,
        .stride = stride,
        .n = run->params->size,
        .signature = run->signature,
        .capacity = capacity,
        .packets = packets,
        .current = run->scalars.current,
        .velocity = run->scalars.velocity,
        .decision = run->scalars.decision,
        .outcome = run->scalars.outcome,
        .overflow = run->scalars.overflow,
    };
    TRI_TRY(run->kernels->decide(&decide, run->stream));
    run->decided = true;
    return TRIB_OK;
}

trib_status tri_run_decide(struct tri_run *run, const void *headers, size_t stride,
                           uint32_t capacity)
{
    return decide(run, headers, stride, NULL, capacity);
}

trib_status tri_run_decide_near(struct tri_run *run, const struct tri_header *headers,
                                const struct tri_header *const *packets, uint32_t capacity)
{
    return decide(run, headers, sizeof *headers, packets, capacity);
}

/* Momentum factor masking: what was applied leaves the velocity, too. */
static trib_status mask_velocity(struct tri_run *run, const struct tri_entries *entries,
                                 const struct tri_entries *among)
{
    if (!run->params->masks)
        return TRIB_OK;
    return run->kernels->residual_update(&run->velocity, entries, TRI_UPDATE_CLEAR, among,
                                         run->scalars.decision, NULL, run->stream);
}

trib_status tri_run_update_residual(struct tri_run *run, const struct tri_entries *entries,
                                    const struct tri_entries *among)
{
    /* Not rounded for the wire, the values are what stands in the residual, and nothing is left. */
    const enum tri_update update =
        run->params->wire == run->params->acc ? TRI_UPDATE_CLEAR : TRI_UPDATE_SUBTRACT;
    TRI_TRY(mask_velocity(run, entries, among));
    return run->kernels->residual_update(&run->acc, entries, update, among, run->scalars.decision,
                                         run->scalars.applied, run->stream);
}

trib_status tri_run_apply(struct tri_run *run, const struct tri_entries *chosen, bool cleared)
{
    run->scalars.selected = chosen->count;
    if (!cleared)
        return tri_run_update_residual(run, chosen, NULL);
    run->scalars.applied = chosen->count;
    return mask_velocity(run, chosen, NULL);
}

trib_status tri_run_mask(struct tri_run *run, const struct tri_entries *chosen)
{
    return mask_velocity(run, chosen, NULL);
}

trib_status tri_run_undo_swap(struct tri_run *run)
{
    TRI_TRY(run->kernels->residual(&run->acc, run->acc.buffer[0], run->stream));
    return tri_run_put(run, run->scalars.current, run->scalars.zero, sizeof *run->scalars.zero);
}

trib_status tri_run_restore_residual(struct tri_run *run, const struct tri_entries *dropped,
                                     const struct tri_entries *among)
{
    return run->kernels->residual_update(&run->acc, dropped, TRI_UPDATE_ADD, among,
                                         run->scalars.decision, NULL, run->stream);
}

struct tri_result tri_run_result_at(const struct tri_run *run, void *data)
{
    return (struct tri_result){
        .data = data,
        .dtype = run->params->result,
        .divisor = run->params->average ? run->params->size : 1,
        .overflow = run->scalars.overflow,
    };
}

struct tri_merge tri_run_merge(const struct tri_run *run, const struct tri_entries *lists,
                               int32_t n, size_t first, size_t end)
{
    return (struct tri_merge){.lists = lists,
                              .n = n,
                              .first = first,
                              .count = end - first,
                              .abort_flag = run->abort_flag};
}

trib_status tri_run_result(struct tri_run *run, const struct tri_entries *lists, int32_t n,
                           const struct tri_entries *merged)
{
    const struct tri_sparse_params *params = run->params;
    const struct tri_sparse_kernels *kernels = run->kernels;
    const struct tri_result out = tri_run_result_at(run, params->entries ? run->value : run->dense);
    const struct tri_merge merge = tri_run_merge(run, lists, n, 0, params->count);
    if (!params->entries)
        return kernels->merge_dense(&merge, &out, run->scratch, run->stream);
    if (n > 1)
        TRI_TRY(kernels->merge(&merge, merged, run->scratch, run->stream));
    return kernels->write_entries(n > 1 ? merged : lists, run->index, run->count, &out,
                                  run->stream);
}

trib_status tri_run_result_dense(struct tri_run *run, const void *sums, trib_dtype dtype)
{
    const struct tri_result out = tri_run_result_at(run, run->dense);
    return run->kernels->write_dense(sums, dtype, run->params->count, &out, run->stream);
}
