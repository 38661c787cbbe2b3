#include "csrc/reducer/states.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/all_ranks.h"
#include "csrc/core/validate.h"
#include "csrc/reducer/agree.h"
#include "csrc/sparse/allreduce.h"
#include "csrc/sparse/kept.h"
#include "csrc/sparse/statistics.h"

/* ---------------------------------------------------------------------------------------- life */

trib_status tri_reducer_states_create(struct trib_sparse **out, const struct trib_reducer *reducer,
                                      const struct tri_gradient_layout *layout)
{
    trib_sparse_options options = reducer->sparse;
    options.flags |= (reducer->flags & TRIB_REDUCER_SUM) != 0 ? 0 : TRIB_SPARSE_AVERAGE;
    memset(out, 0, layout->nbuckets * sizeof(struct trib_sparse *));
    for (size_t b = 0; b < layout->nbuckets; b++) {
        const struct tri_gradient_bucket *bucket = &layout->buckets[b];
        const trib_status status = tri_sparse_create_revocable(
            &out[b], reducer->comm, bucket->count, bucket->dtype, &options);
        if (status == TRIB_OK)
            continue;
        tri_reducer_states_discard(out, b);
        return status;
    }
    return TRIB_OK;
}

void tri_reducer_states_discard(struct trib_sparse **states, size_t n)
{
    const struct tri_detail_copy why = tri_detail_copy();
    for (size_t b = 0; b < n; b++) {
        tri_sparse_discard(states[b]);
        states[b] = NULL;
    }
    (void)tri_fail(TRIB_OK, "%s", why.text);
}

trib_status tri_reducer_states_install(const struct trib_reducer *reducer)
{
    const size_t n = reducer->layout.nbuckets;
    for (size_t b = 0; b < n; b++)
        reducer->revocables[b] = tri_sparse_revocable(reducer->states[b]);
    return reducer->backend->device->fetch(reducer->device, reducer->calls, reducer->revocables,
                                           n * sizeof *reducer->revocables, reducer->stream);
}

/* ------------------------------------------------------------------------------------- a bucket */

trib_status tri_reducer_states_run(const struct trib_reducer *reducer, size_t b, trib_stream stream)
{
    struct tri_sparse_call call = {.gradient =
                                       tri_reducer_bucket(reducer, reducer->buckets, b).data,
                                   .dense = tri_reducer_result(reducer, b).data,
                                   .stream = stream};
    return tri_sparse_allreduce(reducer->states[b], TRI_SPARSE_ALLREDUCE, &call);
}

trib_status tri_reducer_states_check_captured(const struct trib_reducer *reducer, int operation)
{
    for (size_t b = 0; reducer->states != NULL && b < reducer->layout.nbuckets; b++)
        if (reducer->states[b]->algorithm->waits)
            return tri_fail_call(reducer->comm, operation, TRIB_ERR_UNSUPPORTED,
                                 "`stream` is being captured, and \"%s\" waits for the stream in "
                                 "each step: capture one of the algorithms of fixed size",
                                 reducer->states[b]->algorithm->name);
    return TRIB_OK;
}

trib_status tri_reducer_check_between(const struct trib_reducer *reducer, int operation)
{
    if (reducer->states == NULL)
        return tri_fail_call(reducer->comm, operation, TRIB_ERR_INVALID_USAGE,
                             "the reducer was created without options.sparse");
    if (reducer->open)
        return tri_fail_call(reducer->comm, operation, TRIB_ERR_INVALID_USAGE,
                             "a step is open: call trib_reducer_finish first");
    return TRIB_OK;
}

static trib_status agree_to_change(void *argument, trib_stream stream)
{
    const struct trib_reducer *reducer = argument;
    const trib_status own = tri_reducer_check_between(reducer, TRI_REDUCER_SET_DENSITY);
    return tri_reducer_agree(reducer, TRI_REDUCER_SET_DENSITY, own, stream);
}

/* A state has had the memory for its old density, and keeps it. */
trib_status tri_reducer_set_density(struct trib_reducer *reducer, double density)
{
    TRI_TRY(tri_all_ranks_run(reducer->comm, TRI_REDUCER_SET_DENSITY, agree_to_change, reducer));
    for (size_t b = 0; b < reducer->layout.nbuckets; b++) {
        const trib_status status = tri_sparse_set_density(reducer->states[b], density);
        if (status == TRIB_OK)
            continue;
        const struct tri_detail_copy why = tri_detail_copy();
        while (tri_abort_live(reducer->comm->state) && b-- > 0)
            (void)tri_sparse_set_density(reducer->states[b], reducer->sparse.density);
        return tri_fail(status, "%s", why.text);
    }
    reducer->sparse.density = density;
    return TRIB_OK;
}

static void add_statistics(trib_sparse_statistics *out, const struct trib_sparse *state)
{
    trib_sparse_statistics one = TRIB_SPARSE_STATISTICS_INIT;
    tri_sparse_statistics(&one, state);
    out->count += one.count;
    out->k += one.k;
    out->calls += one.calls;
    out->calls_applied += one.calls_applied;
    out->calls_non_finite += one.calls_non_finite;
    out->selected += one.selected;
    out->applied += one.applied;
    out->total_selected += one.total_selected;
    out->total_applied += one.total_applied;
    out->words_sent += one.words_sent;
    out->words_received += one.words_received;
    out->bytes_sent += one.bytes_sent;
    out->bytes_received += one.bytes_received;
    out->fallbacks += one.fallbacks;
    const bool both = out->residual_norm >= 0 && one.residual_norm >= 0;
    out->residual_norm = both ? hypot(out->residual_norm, one.residual_norm) : -1;
}

trib_status tri_reducer_statistics(trib_sparse_statistics *out, const struct trib_reducer *reducer)
{
    if (reducer->states == NULL)
        return tri_fail_call(reducer->comm, TRI_REDUCER_STATISTICS, TRIB_ERR_INVALID_USAGE,
                             "the reducer was created without options.sparse");
    *out = (trib_sparse_statistics){.size = out->size, .algorithm = "", .reason = ""};
    if (reducer->layout.nbuckets != 0)
        tri_sparse_statistics(out, reducer->states[0]);
    for (size_t b = 1; b < reducer->layout.nbuckets; b++)
        add_statistics(out, reducer->states[b]);
    return TRIB_OK;
}

trib_status tri_reducer_states_mark(const struct trib_reducer *reducer, trib_stream stream,
                                    uint64_t *deadline_ns)
{
    trib_status first = TRIB_OK;
    struct tri_detail_copy why = {.text = ""};
    for (size_t b = 0; reducer->states != NULL && b < reducer->layout.nbuckets; b++) {
        const trib_status status = tri_workspace_mark_by(&reducer->states[b]->memory,
                                                         reducer->comm->state, stream, deadline_ns);
        if (status == TRIB_OK || first != TRIB_OK)
            continue;
        first = status;
        why = tri_detail_copy();
    }
    return first == TRIB_OK ? TRIB_OK : tri_fail(first, "%s", why.text);
}

void tri_reducer_states_passed(const struct trib_reducer *reducer)
{
    for (size_t b = 0; reducer->states != NULL && b < reducer->layout.nbuckets; b++)
        tri_workspace_passed(&reducer->states[b]->memory);
}

/* ------------------------------------------------------------------------------ another layout */

trib_status tri_reducer_states_find(struct tri_kept **out, const struct trib_reducer *reducer,
                                    struct trib_sparse *const *states, size_t n)
{
    struct tri_kept *kept = calloc(n + 1, sizeof *kept);
    trib_status status = TRIB_OK;
    *out = kept;
    if (kept == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for %zu buckets", n);
    for (size_t b = 0; status == TRIB_OK && b < n; b++)
        status = tri_kept_find(&kept[b], states[b], reducer->stream);
    return status;
}

size_t tri_reducer_kept_element(trib_dtype dtype)
{
    return trib_dtype_size(dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32);
}

/* `from` and `to`: of every bucket of each layout. */
static trib_status move_gradient(const struct trib_reducer *reducer, size_t i,
                                 const struct tri_kept *from, const struct tri_kept *to,
                                 const struct tri_gradient_layout *to_layout)
{
    const struct tri_gradient *old = &reducer->layout.gradients[i], *new = &to_layout->gradients[i];
    const struct tri_device_ops *ops = reducer->backend->device;
    if (old->bucket == TRI_NO_BUCKET)
        return TRIB_OK;
    const struct tri_slice *slice = &reducer->layout.slices[old->slice];
    const size_t element = tri_reducer_kept_element(slice->dtype);
    const size_t old_at = slice->offset * element, bytes = slice->count * element;
    const size_t new_at = to_layout->slices[new->slice].offset * element;
    const struct tri_kept *source = &from[old->bucket], *target = &to[new->bucket];
    if (source->residual == NULL ||
        target->residual == NULL) /* in place, as no reducer's state is */
        return TRIB_OK;
    TRI_TRY(ops->copy(reducer->device, target->residual + new_at, source->residual + old_at, bytes,
                      reducer->stream));
    if (source->velocity == NULL || target->velocity == NULL)
        return TRIB_OK;
    return ops->copy(reducer->device, target->velocity + new_at, source->velocity + old_at, bytes,
                     reducer->stream);
}

trib_status tri_reducer_states_move(const struct trib_reducer *reducer, struct trib_sparse **to,
                                    const struct tri_gradient_layout *to_layout)
{
    struct tri_kept *sources = NULL, *targets = NULL;
    trib_status status =
        tri_reducer_states_find(&sources, reducer, reducer->states, reducer->layout.nbuckets);
    if (status == TRIB_OK)
        status = tri_reducer_states_find(&targets, reducer, to, to_layout->nbuckets);
    for (size_t i = 0; status == TRIB_OK && i < reducer->n; i++)
        status = move_gradient(reducer, i, sources, targets, to_layout);
    if (status == TRIB_OK)
        status = reducer->backend->device->stream_wait(reducer->device, reducer->stream);
    free(sources);
    free(targets);
    return status;
}
