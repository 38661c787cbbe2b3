/* A reducer's life. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/types.h"
#include "csrc/core/all_ranks.h"
#include "csrc/core/batch.h"
#include "csrc/core/match.h"
#include "csrc/core/operation.h"
#include "csrc/core/room.h"
#include "csrc/core/small_allgather.h"
#include "csrc/core/symmetric.h"
#include "csrc/reducer/memory.h"
#include "csrc/reducer/request.h"
#include "csrc/reducer/states.h"

/* ------------------------------------------------------------------------------------ agreement */

/* What every rank tells the others. Compared as bytes. */
struct message {
    uint64_t n, elements, digest; /* digest: of counts, types and options */
    int32_t status;               /* of its preparations */
    uint32_t rejected;            /* 1: its arguments are invalid */
};
_Static_assert(sizeof(struct message) <= TRI_STAGED_BYTES, "one small_allgather takes a message");

/* All that the ranks compare. */
static void describe(struct message *message, const struct tri_reducer_request *request)
{
    const trib_reducer_options *of = &request->options;
    const uint64_t options[] = {of->flags,
                                request->limits.bucket_bytes,
                                request->limits.first_bytes,
                                request->limits.weighted,
                                of->sparse != NULL,
                                of->order != NULL,
                                of->nbuckets};
    message->digest = tri_digest(0, options, sizeof options);
    for (size_t i = 0; i < request->n; i++) {
        const uint64_t tensor[] = {request->gradients[i].count,
                                   (uint64_t)request->gradients[i].dtype};
        message->digest = tri_digest(message->digest, tensor, sizeof tensor);
        message->elements += request->gradients[i].count;
    }
    if (of->order != NULL)
        message->digest = tri_digest(message->digest, of->order, request->n * sizeof *of->order);
    if (of->buckets != NULL)
        message->digest =
            tri_digest(message->digest, of->buckets, (size_t)of->nbuckets * sizeof *of->buckets);
}

/* Arguments that were not checked to the end are not read. */
static struct message message_of(const struct tri_reducer_request *request, trib_status status,
                                 trib_status checked)
{
    const bool rejected = checked != TRIB_OK && checked != TRIB_ERR_OUT_OF_MEMORY;
    struct message message = {.n = request->n, .status = status, .rejected = rejected};
    if (checked == TRIB_OK)
        describe(&message, request);
    return message;
}

/* Every rank compares all with rank 0, so that all return the same. */
static trib_status compare(const struct trib_comm *comm, const struct message *all)
{
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (all[rank].rejected != 0)
            return tri_fail_call(comm, TRI_REDUCER_CREATE, TRIB_ERR_MISMATCH,
                                 "rank %d rejected its arguments (%s): all ranks must pass the "
                                 "same; no rank has a reducer",
                                 rank, trib_status_name(all[rank].status));
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (all[rank].status != TRIB_OK)
            return tri_fail_call(comm, TRI_REDUCER_CREATE, all[rank].status,
                                 "rank %d failed (%s), so no rank has a reducer", rank,
                                 trib_status_name(all[rank].status));
    for (int32_t rank = 1; rank < comm->size; rank++)
        if (all[rank].digest != all[0].digest || all[rank].n != all[0].n)
            return tri_fail_call(comm, TRI_REDUCER_CREATE, TRIB_ERR_MISMATCH,
                                 "rank %d passes %" PRIu64 " gradients, %" PRIu64
                                 " elements (digest %08x), and rank 0 %" PRIu64 ", %" PRIu64
                                 " (digest %08x): all ranks must pass gradients of the same counts "
                                 "and types, in the same order, and the same options; no rank has "
                                 "a reducer",
                                 rank, all[rank].n, all[rank].elements,
                                 (unsigned)(all[rank].digest ^ all[rank].digest >> 32), all[0].n,
                                 all[0].elements, (unsigned)(all[0].digest ^ all[0].digest >> 32));
    return TRIB_OK;
}

/* A rank's own failure, with its detail, wins over what the others report. */
static trib_status agree(const struct tri_reducer_request *request, trib_status status,
                         trib_status checked, trib_stream stream)
{
    struct trib_comm *comm = request->comm;
    const struct tri_detail_copy why = tri_detail_copy();
    const struct message own = message_of(request, status, checked);
    struct message *all = calloc((size_t)comm->size, sizeof *all);
    if (all == NULL) {
        (void)tri_abort_raise(comm->state, TRIB_ERR_OUT_OF_MEMORY,
                              "no memory to compare the reducers of all ranks");
        return tri_comm_usable(comm, TRI_REDUCER_CREATE);
    }
    trib_status agreed =
        tri_small_allgather(comm, TRI_REDUCER_CREATE, &own, sizeof own, all, stream);
    if (agreed == TRIB_OK)
        agreed = compare(comm, all);
    free(all);
    return status == TRIB_OK ? agreed : tri_fail(status, "%s", why.text);
}

/* --------------------------------------------------------------------------------------- memory */

static const char *copy_text(char *to, size_t bytes, const char *text)
{
    if (text == NULL)
        return NULL;
    (void)snprintf(to, bytes, "%s", text);
    return to;
}

/* `room`: for one revocable and one state of each of n gradients. */
static void set_sparse(struct trib_reducer *reducer, const trib_sparse_options *options, void *room,
                       size_t n)
{
    reducer->revocables = room;
    reducer->states = (struct trib_sparse **)(void *)(reducer->revocables + n);
    reducer->sparse = *options;
    reducer->sparse.algorithm =
        copy_text(reducer->algorithm, sizeof reducer->algorithm, options->algorithm);
    reducer->sparse.constants =
        copy_text(reducer->constants, sizeof reducer->constants, options->constants);
    if (options->hosts == NULL)
        return;
    for (int32_t rank = 0; rank < reducer->comm->size && rank < TRI_MAX_LISTS; rank++)
        reducer->hosts[rank] = options->hosts[rank];
    reducer->sparse.hosts = reducer->hosts;
}

/* The struct and its arrays, in one block: the workspace frees it with the rest. */
static struct trib_reducer *make(const struct tri_reducer_request *request)
{
    const size_t n = request->n + 1; /* never 0 */
    const size_t each = sizeof(struct tri_gradient_bucket) + sizeof(struct tri_slice) +
                        sizeof(struct tri_gradient) + sizeof(struct tri_readiness) +
                        sizeof(struct tri_revocable) + sizeof(struct trib_sparse *) +
                        sizeof(uint64_t) + 2 * sizeof(size_t);
    struct trib_reducer *reducer = calloc(1, sizeof *reducer + n * each);
    if (reducer == NULL)
        return NULL;
    reducer->comm = request->comm;
    reducer->backend = request->comm->backend;
    reducer->transport = request->comm->transport;
    reducer->device = request->comm->device;
    reducer->flags = request->options.flags;
    reducer->learning = (request->options.flags & TRIB_REDUCER_LEARN_ORDER) != 0;
    reducer->limits = request->limits;
    reducer->weight = (struct tri_weight){.device = request->options.device_weight};
    reducer->n = request->n;
    reducer->layout.slices = (struct tri_slice *)(void *)(reducer + 1);
    reducer->layout.buckets = (struct tri_gradient_bucket *)(void *)(reducer->layout.slices + n);
    reducer->layout.gradients = (struct tri_gradient *)(void *)(reducer->layout.buckets + n);
    reducer->readiness = (struct tri_readiness *)(void *)(reducer->layout.gradients + n);
    reducer->order = (uint64_t *)(void *)(reducer->readiness + n);
    reducer->layout.owners = (size_t *)(void *)(reducer->order + n);
    reducer->missing = reducer->layout.owners + n;
    if (request->options.sparse != NULL)
        set_sparse(reducer, request->options.sparse, reducer->missing + n, n);
    tri_lock_init(&reducer->lock);
    return reducer;
}

static trib_status lay_out_buckets(struct trib_reducer *reducer,
                                   const struct tri_reducer_request *request)
{
    size_t *work = calloc(TRI_GRADIENT_WORK * request->n + 1, sizeof *work);
    if (work == NULL)
        return tri_fail_call(reducer->comm, TRI_REDUCER_CREATE, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to lay out %zu gradients", request->n);
    const bool fits = tri_gradient_layout_make(&reducer->layout, request->gradients, request->n,
                                               request->options.order, &request->limits, work);
    free(work);
    if (!fits)
        return tri_fail_call(reducer->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                             "`gradients` together are larger than any memory");
    return TRIB_OK;
}

static trib_status lay_out(struct trib_reducer *reducer, const struct tri_reducer_request *request)
{
    const trib_reducer_options *options = &request->options;
    if (options->buckets != NULL)
        tri_gradient_layout_in_place(&reducer->layout, request->gradients, options->order,
                                     options->buckets, (size_t)options->nbuckets);
    else
        TRI_TRY(lay_out_buckets(reducer, request));
    for (size_t b = 0; b < reducer->layout.nbuckets; b++)
        reducer->missing[b] = reducer->layout.buckets[b].n;
    return TRIB_OK;
}

/* Everything on this rank. */
static trib_status prepare(struct trib_reducer **out, const struct tri_reducer_request *request)
{
    struct trib_reducer *reducer = make(request);
    if (reducer == NULL)
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory for a reducer of %zu gradients", request->n);
    *out = reducer;
    TRI_TRY(lay_out(reducer, request));
    return tri_reducer_allocate(reducer);
}

/* A stream that is not `idle` may never be: it stays. Keeps the thread's detail. */
static void discard(struct trib_reducer *reducer, bool idle)
{
    const struct tri_detail_copy why = tri_detail_copy();
    if (reducer == NULL)
        return;
    const struct tri_device_ops *ops = reducer->backend->device;
    if (reducer->states != NULL)
        tri_reducer_states_discard(reducer->states, reducer->layout.nbuckets);
    if (reducer->stream != NULL && idle)
        (void)ops->stream_destroy(reducer->device, reducer->stream);
    if (reducer->event != NULL)
        (void)ops->event_destroy(reducer->device, reducer->event);
    struct tri_workspace memory = reducer->memory;
    tri_symmetric_drop(reducer->comm, reducer->near, tri_workspace_in_use(&memory));
    memory.host = reducer; /* freed with the rest, when nothing is queued any more */
    tri_workspace_close(&memory);
    (void)tri_fail(TRIB_OK, "%s", why.text);
}

static trib_status create(void *argument, trib_stream stream)
{
    struct tri_reducer_request *request = argument;
    struct trib_reducer *reducer = NULL;
    const trib_status checked = tri_reducer_check(request);
    trib_status status = checked == TRIB_OK ? prepare(&reducer, request) : checked;
    status = agree(request, status, checked, stream);
    if (status == TRIB_OK)
        status = tri_reducer_share(reducer, stream);
    if (status != TRIB_OK)
        discard(reducer, true);
    else if (request->out != NULL) /* as always: the check rejects NULL */
        *request->out = reducer;
    return status;
}

/* All ranks have a reducer now; all have states, or none. */
static trib_status add_states(struct trib_reducer *reducer)
{
    if (reducer->states == NULL)
        return TRIB_OK;
    TRI_TRY(tri_reducer_states_create(reducer->states, reducer, &reducer->layout));
    const trib_status status = tri_reducer_states_install(reducer);
    if (status != TRIB_OK) /* the others have installed theirs */
        (void)tri_abort_raise(reducer->comm->state, status, tri_detail());
    return status;
}

trib_status tri_reducer_create(struct trib_reducer **out, struct trib_comm *comm,
                               const trib_tensor *gradients, size_t n,
                               const trib_reducer_options *options)
{
    struct tri_reducer_request request = {
        .out = out, .comm = comm, .gradients = gradients, .n = n, .passed = options};
    if (out != NULL)
        *out = NULL;
    (void)tri_workspace_sweep();
    trib_status status = tri_all_ranks_run(comm, TRI_REDUCER_CREATE, create, &request);
    if (status == TRIB_OK && out != NULL) /* as always */
        status = add_states(*out);
    if (status != TRIB_OK && out != NULL) {
        discard(*out, true);
        *out = NULL;
    }
    return status == TRIB_OK ? TRIB_OK : tri_batch_fail(comm, status);
}

trib_status tri_reducer_destroy(struct trib_reducer *reducer)
{
    struct trib_comm *comm = reducer->comm;
    trib_status status = TRIB_OK;
    const bool captured = reducer->open && reducer->capture != 0;
    const bool capturing = captured && tri_capture_of(comm, reducer->stream) != 0;
    const bool lost = captured && !capturing; /* nothing ends the step */
    if (reducer->open && !lost && tri_abort_live(comm->state))
        return tri_fail_call(comm, TRI_REDUCER_DESTROY, TRIB_ERR_INVALID_USAGE,
                             "a step is open: call trib_reducer_finish first");
    if (reducer->open && !captured && tri_reducer_rejoin(reducer))
        (void)tri_workspace_mark(&reducer->memory, comm->state, reducer->stream);
    const bool idle =
        tri_workspace_await(&reducer->memory, tri_deadline_ns(comm->close_timeout_ms));
    if (!idle)
        status = tri_fail_call(
            comm, TRI_REDUCER_DESTROY, TRIB_ERR_TIMEOUT,
            "after %u ms a step of this reducer is still queued; its memory "
            "stays allocated at least until the step has run. Synchronize the streams "
            "before destroying, or abort",
            comm->close_timeout_ms);
    discard(reducer, idle && !capturing);
    (void)tri_workspace_sweep();
    return status;
}
