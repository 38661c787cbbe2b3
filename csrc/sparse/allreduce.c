/* One call of a sparse allreduce.
 *
 *   check -> order after the last call -> on the stream: the new velocity (where gradients are
 *   clipped), the algorithm's run, decay, norm, record
 *
 * On a stream-ordered backend the run queues within the call; on a host-executed one it executes
 * later, on the stream. A run changes everything after its decision, and only if the call is
 * applied; otherwise residual and statistics stay as they were. The exception is the result: the
 * decision reads it, so it is written before, and cleared if the call is not applied. */
#include "csrc/sparse/allreduce.h"

#include "csrc/base/types.h"
#include "csrc/core/batch.h"
#include "csrc/core/device.h"
#include "csrc/core/match.h"
#include "csrc/core/ranges.h"
#include "csrc/core/validate.h"

uint64_t tri_sparse_capacity(const struct trib_sparse *sparse)
{
    return sparse->algorithm->capacity(&sparse->params);
}

/* ------------------------------------------------------------------------------- on the stream */

static struct tri_scalars scalars_of(const struct trib_sparse *sparse)
{
    struct tri_sparse_scalars *scalars = sparse->scalars;
    return (struct tri_scalars){
        .current = sparse->params.in_place ? NULL : &scalars->current,
        .velocity = tri_sparse_keeps_velocity(&sparse->params) ? &scalars->velocity : NULL,
        .decision = &scalars->decision,
        .outcome = &scalars->outcome,
        .overflow = &scalars->overflow,
        .selected = &scalars->selected,
        .applied = &scalars->applied,
        .fallbacks = &scalars->fallbacks,
        .zero = &scalars->zero,
        .all = &scalars->all,
        .header = &scalars->header,
    };
}

/* Where acc and the velocity take their gradient from. In place the caller has made the new
 * velocity: it is the gradient of acc, and the velocity's only buffer. */
static void give_gradient(struct tri_run *run, const struct trib_sparse *sparse, void *gradient)
{
    if (sparse->params.in_place)
        run->acc.buffer[0] = gradient;
    else
        run->acc.gradient = gradient;
    if (sparse->params.momentum == 0)
        return;
    run->velocity = tri_sparse_velocity(sparse);
    if (sparse->params.velocity_in_place) {
        run->velocity.buffer[0] = gradient;
        return;
    }
    run->velocity.gradient = gradient;
    run->acc.makes_velocity = true;
    run->acc.momentum = run->velocity.decay;
    run->acc.velocity[0] = run->velocity.buffer[0];
    run->acc.velocity[1] = run->velocity.buffer[1];
    run->acc.velocity_current = run->velocity.current;
}

static struct tri_run run_of(const struct tri_sparse_call *call)
{
    const struct trib_sparse *sparse = call->sparse;
    struct tri_run run = {
        .params = &sparse->params,
        .backend = sparse->backend,
        .kernels = sparse->backend->kernels->sparse,
        .transport = sparse->transport,
        .inside = sparse->inside,
        .device = sparse->device,
        .stream = call->stream,
        .step = call->step,
        .signature = sparse->signature,
        .acc = tri_sparse_accumulator(sparse),
        .scalars = scalars_of(sparse),
        .abort_flag = sparse->backend->transport->abort_flag(sparse->transport),
        .scratch = sparse->scratch,
        .near = sparse->near,
        .dense = call->dense,
        .index = call->index,
        .count = call->count,
        .value = call->value,
    };
    give_gradient(&run, sparse, call->gradient);
    return run;
}

static struct tri_clearing result_of(const struct tri_run *run)
{
    return (struct tri_clearing){.dense = run->dense,
                                 .bytes = run->params->count * trib_dtype_size(run->params->result),
                                 .count = run->count};
}

/* Where the call is not recorded. */
static void clear_result(const struct tri_run *run)
{
    const struct tri_clearing result = result_of(run);
    (void)run->kernels->clear_result(&result, run->scalars.decision, run->stream);
}

/* In place the residual decays here, or the velocity, because the caller adds the next gradient. */
static trib_status decay(const struct tri_run *run)
{
    const struct tri_sparse_params *params = run->params;
    const uint32_t *decision = run->scalars.decision;
    if (params->velocity_in_place)
        return run->kernels->decay(&run->velocity, params->momentum, decision, run->stream);
    if (params->in_place && params->decay != 1)
        return run->kernels->decay(&run->acc, params->decay, decision, run->stream);
    return TRIB_OK;
}

static trib_status finish(struct tri_run *run, const struct trib_sparse *sparse)
{
    const uint32_t every = sparse->settings.norm_every;
    const bool measures = every != 0 && (run->step + 1) % every == 0;
    const struct tri_record record = {
        .counters = sparse->counters,
        .published = sparse->published,
        .result = result_of(run),
        .decision = run->scalars.decision,
        .outcome = run->scalars.outcome,
        .selected = run->scalars.selected,
        .applied = run->scalars.applied,
        .fallbacks = run->scalars.fallbacks,
        .exact_fallbacks = run->fallbacks,
        .norm = measures ? &sparse->scalars->norm : NULL,
        .words_sent = run->volume.words_sent,
        .words_received = run->volume.words_received,
        .bytes_sent = run->volume.bytes_sent,
        .bytes_received = run->volume.bytes_received,
    };
    TRI_TRY(decay(run));
    if (measures)
        TRI_TRY(run->kernels->norm(&run->acc, &sparse->scalars->norm, run->scratch, run->stream));
    return run->kernels->record(&record, run->stream);
}

/* The communicator is over, because the other ranks may be further. */
static void raise_state(const struct tri_run *run, trib_status status)
{
    (void)tri_abort_raise(run->backend->transport->abort_state(run->transport), status,
                          tri_detail());
}

/* A step of the algorithm has failed. Decides on the device that the call is not applied, also if
 * the decision was made: then acc, from which something may be missing, is not the residual any
 * more. (In place it is all there is: a step that failed after another had changed it leaves that.)
 * Clears the result. The abort flag alone would not do: if another rank has raised the state just
 * now, it may not have set the flag yet. So the decision also finds a header of another signature,
 * for which it takes this rank's. */
static void fail_run(struct tri_run *run, trib_status status)
{
    raise_state(run, status);
    const struct tri_decide decide = {.abort_flag = run->abort_flag,
                                      .headers = run->scalars.header,
                                      .n = 1,
                                      .signature = ~run->signature,
                                      .current = run->decided ? run->scalars.current : NULL,
                                      .velocity = run->decided ? run->scalars.velocity : NULL,
                                      .revokes = run->decided,
                                      .decision = run->scalars.decision,
                                      .outcome = run->scalars.outcome};
    if (run->kernels->decide(&decide, run->stream) == TRIB_OK)
        clear_result(run);
}

static trib_status run_algorithm(struct tri_run *run, struct trib_sparse *sparse)
{
    if (run->params->clip != 0)
        TRI_TRY(tri_run_make_velocity(run));
    return sparse->algorithm->run(run, sparse->own);
}

static void run_call(void *argument)
{
    const struct tri_sparse_call *call = argument;
    struct trib_sparse *sparse = call->sparse;
    struct trib_abort *state = sparse->backend->transport->abort_state(sparse->transport);
    struct tri_run run = run_of(call);
    uintptr_t previous = 0;
    trib_status status = tri_device_push(sparse->backend, sparse->device, &previous);
    if (status != TRIB_OK) {
        (void)tri_abort_raise(state, status, tri_detail());
        return;
    }
    /* Many calls may be queued behind the one that an abort ended: none of them selects first. */
    status = tri_abort_live(state) ? run_algorithm(&run, sparse) : tri_abort_status(state);
    if (status != TRIB_OK) {
        fail_run(&run, status);
    } else {
        status = finish(&run, sparse);
        if (status != TRIB_OK) { /* the call stays applied, if it is: its residual has changed */
            raise_state(&run, status);
            clear_result(&run);
        }
    }
    tri_device_pop(sparse->backend, previous);
}

/* --------------------------------------------------------------------------------------- checks */

/* A buffer of a call. */
struct buffer {
    const char *name;
    const void *data;
    size_t count;
    trib_dtype dtype;
    bool written;
};

enum { MOST_BUFFERS = 4 };

/* In place: the gradient is an accumulator or a velocity, which lasts. */
static bool keeps_gradient(const struct tri_sparse_params *params)
{
    return params->in_place || params->velocity_in_place;
}

static size_t list_buffers(struct buffer *out, const struct trib_sparse *sparse,
                           const struct tri_sparse_call *call)
{
    const struct tri_sparse_params *params = &sparse->params;
    out[0] = (struct buffer){"gradient", call->gradient, params->count, params->dtype,
                             keeps_gradient(params)};
    if (!params->entries) {
        out[1] = (struct buffer){"result", call->dense, params->count, params->result, true};
        return 2;
    }
    const size_t capacity = tri_sparse_capacity(sparse);
    out[1] = (struct buffer){"index", call->index, capacity, TRIB_U32, true};
    out[2] = (struct buffer){"value", call->value, capacity, params->result, true};
    out[3] = (struct buffer){"count", call->count, 1, TRIB_U32, true};
    return 4;
}

static trib_status check_apart(const struct trib_comm *comm, int operation,
                               const struct buffer *buffers, struct tri_range *ranges, size_t n)
{
    struct tri_range pair[2];
    if (!tri_ranges_collide(ranges, n, pair))
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                         "`%s` (%p) overlaps `%s` (%p): the buffers must be disjoint, except that "
                         "`result` may be `gradient` itself if it has the same type and the state "
                         "is not in place",
                         buffers[pair[0].index].name, buffers[pair[0].index].data,
                         buffers[pair[1].index].name, buffers[pair[1].index].data);
}

static trib_status check_buffers(const struct trib_sparse *sparse, int operation,
                                 const struct tri_sparse_call *call)
{
    const struct trib_comm *comm = sparse->comm;
    struct buffer buffers[MOST_BUFFERS];
    struct tri_range ranges[MOST_BUFFERS];
    const size_t n = list_buffers(buffers, sparse, call);
    /* The result takes the gradient's place only after all of it has been read. */
    const bool same = !keeps_gradient(&sparse->params) && call->dense == call->gradient &&
                      sparse->params.result == sparse->params.dtype;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const struct buffer *buffer = &buffers[i];
        const struct tri_buffer checked = {.argument = {buffer->name, TRI_NO_INDEX},
                                           .data = buffer->data,
                                           .blocks = 1,
                                           .count = buffer->count,
                                           .dtype = buffer->dtype};
        size_t bytes = 0;
        if (buffer->count == 0)
            continue;
        TRI_TRY(tri_check_buffer(comm, operation, &checked, &bytes));
        const uintptr_t begin = (uintptr_t)buffer->data;
        if (i != 1 || !same)
            ranges[used++] = (struct tri_range){
                .begin = begin, .end = begin + bytes, .index = i, .written = buffer->written};
    }
    return check_apart(comm, operation, buffers, ranges, used);
}

static trib_status check_kind(const struct trib_sparse *sparse, int operation)
{
    const bool entries = operation == TRI_SPARSE_ALLREDUCE_ENTRIES;
    if (entries == sparse->params.entries)
        return TRIB_OK;
    return tri_fail_call(sparse->comm, operation, TRIB_ERR_INVALID_USAGE,
                         entries ? "the state has dense results: call trib_sparse_allreduce, or "
                                   "create it with TRIB_SPARSE_ENTRIES"
                                 : "the state has TRIB_SPARSE_ENTRIES: call "
                                   "trib_sparse_allreduce_entries, or create it without");
}

trib_status tri_sparse_check_call(const struct trib_sparse *sparse, int operation,
                                  const struct tri_sparse_call *call)
{
    const struct trib_comm *comm = sparse->comm;
    TRI_TRY(tri_sparse_ready(sparse, operation));
    TRI_TRY(check_kind(sparse, operation));
    TRI_TRY(tri_check_stream(comm, operation, call->stream));
    TRI_TRY(check_buffers(sparse, operation, call));
    const bool captures = tri_sparse_captures(sparse, call->stream);
    if (captures && sparse->algorithm->waits)
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "`stream` is being captured, and \"%s\" waits for the stream in each "
                             "call: capture one of the algorithms of fixed size",
                             sparse->algorithm->name);
    return TRIB_OK;
}

static trib_status match_call(const struct trib_sparse *sparse, int operation,
                              const struct tri_sparse_call *call)
{
    struct trib_comm *comm = sparse->comm;
    const uint64_t of[2] = {sparse->signature, call->step};
    const struct tri_call compared = {.count = sparse->params.count, .dtype = sparse->params.dtype};
    const struct tri_signature signature =
        tri_signature(operation, &compared, tri_digest(0, of, sizeof of));
    return (comm->flags & TRIB_MATCH) == 0 ? TRIB_OK : tri_match(comm, &signature, call->stream);
}

/* ---------------------------------------------------------------------------------------- queue */

trib_status tri_sparse_allreduce(struct trib_sparse *sparse, int operation,
                                 struct tri_sparse_call *call)
{
    struct trib_comm *comm = sparse->comm;
    call->sparse = sparse;
    call->step = sparse->step;
    trib_status status = tri_sparse_check_call(sparse, operation, call);
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);
    status = match_call(sparse, operation, call);
    if (status == TRIB_OK)
        status = tri_sparse_queue(sparse, operation, run_call, call, sizeof *call, call->stream);
    if (tri_match_done(comm, status) != TRIB_OK)
        return status;
    sparse->step++;
    comm->calls++;
    comm->backend_calls++;
    comm->bytes += sparse->params.count * trib_dtype_size(sparse->params.dtype);
    return TRIB_OK;
}
