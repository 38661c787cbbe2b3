/* The collectives of one call: check, begin, record, submit. */
#include "csrc/core/collective.h"

#include "csrc/base/types.h"
#include "csrc/core/batch.h"
#include "csrc/core/compose.h"
#include "csrc/core/issue.h"
#include "csrc/core/match.h"
#include "csrc/core/options.h"
#include "csrc/core/reach.h"
#include "csrc/core/validate.h"

/* Bytes that this rank sends in a valid call. */
static size_t send_bytes(const struct trib_comm *comm, int operation, const struct tri_call *call)
{
    const struct tri_operation *traits = &tri_operations[operation];
    if (traits->send == TRI_NOWHERE || (traits->send == TRI_AT_ROOT && call->peer != comm->rank))
        return 0;
    return call->count * trib_dtype_size(call->dtype) *
           (traits->send_blocks ? (size_t)comm->size : 1);
}

/* Outside a batch, a send to the rank itself would wait for a receive that comes after it. */
static trib_status check_partner(struct trib_comm *comm, int operation, const struct tri_call *call)
{
    if ((operation != TRI_SEND && operation != TRI_RECV) || call->peer != comm->rank ||
        comm->batch.open || call->count == 0)
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_USAGE,
                         "`peer` is this rank itself, and the call would wait for ever: put the "
                         "send and the receive into one batch");
}

/* A factor on the device is an f32; NCCL needs it as an element of the call's type. */
static trib_status record_allreduce(struct trib_comm *comm, struct tri_call *call)
{
    call->kind = TRI_ALLREDUCE;
    if (call->factor.device != NULL && call->dtype != TRIB_F32)
        TRI_TRY(tri_batch_scratch(comm, &call->room, trib_dtype_size(call->dtype)));
    return tri_batch_record(comm, call);
}

static trib_status record(struct trib_comm *comm, int operation, struct tri_call *call)
{
    switch (operation) {
    case TRI_ALLTOALL:
        return tri_compose_alltoall(comm, call);
    case TRI_GATHER:
        return tri_compose_gather(comm, call);
    case TRI_SCATTER:
        return tri_compose_scatter(comm, call);
    case TRI_ALLREDUCE_WITH:
        return record_allreduce(comm, call);
    default:
        call->kind = (enum tri_kind)operation;
        return tri_batch_record(comm, call);
    }
}

/* *out: what the backend answers about a call that it would get alone. */
static trib_status ask_backend(const char **out, struct trib_comm *comm, int operation,
                               const struct tri_call *call,
                               const char *(*question)(const struct tri_call *call))
{
    struct tri_call asked = *call;
    asked.kind = operation == TRI_ALLREDUCE_WITH ? TRI_ALLREDUCE : (enum tri_kind)operation;
    asked.transport = comm->transport;
    TRI_TRY(tri_issue_register(comm)); /* so that an abort frees nothing meanwhile */
    *out = question(&asked);
    tri_abort_unregister(comm->state);
    return TRIB_OK;
}

/* Before anything is queued: on all ranks, whose calls are the same. */
static trib_status check_variant(struct trib_comm *comm, int operation, const struct tri_call *call)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    const bool symmetric = call->variant == TRIB_VARIANT_SYMMETRIC;
    const char *why = NULL;
    if (call->variant == TRIB_VARIANT_AUTO || call->count == 0)
        return TRIB_OK;
    if (comm->batch.open)
        why = "the calls of a batch have none";
    else if (!symmetric && ops->refuses == NULL)
        why = "this backend has none";
    else if (!symmetric)
        TRI_TRY(ask_backend(&why, comm, operation, call, ops->refuses));
    if (why != NULL)
        return tri_fail_call(
            comm, operation, TRIB_ERR_UNSUPPORTED,
            "variant %s of %zu elements of %s: %s; TRIB_VARIANT_AUTO serves every call",
            trib_variant_name(call->variant), call->count, trib_dtype_name(call->dtype), why);
    return symmetric || call->variant == TRIB_VARIANT_WINDOW
               ? tri_symmetric_check(comm, operation, call)
               : TRIB_OK;
}

/* Of a call that is to be unstaged. */
static trib_status check_unstaged(struct trib_comm *comm, int operation,
                                  const struct tri_call *call)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    const char *buffer = NULL;
    if (comm->batch.open)
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "options.flags has TRIB_CALL_UNSTAGED, and a batch is open: the calls "
                             "of a batch have no such flag");
    if (ops->stages == NULL || call->count == 0)
        return TRIB_OK;
    TRI_TRY(ask_backend(&buffer, comm, operation, call, ops->stages));
    if (buffer == NULL)
        return TRIB_OK;
    return tri_fail_call(
        comm, operation, TRIB_ERR_INVALID_BUFFER,
        "`%s` is memory that the devices of the other ranks cannot access, so it "
        "would go through memory of the library, and options.flags has "
        "TRIB_CALL_UNSTAGED: allocate it by trib_symmetric_alloc, or, if all ranks "
        "are in this process, by cudaMalloc on the rank's device (an alltoall in "
        "place sends a copy: pass another `recv`); or leave that flag out; or let "
        "all ranks pass TRIB_VARIANT_NCCL, if none has queued the call",
        buffer);
}

static trib_status begin(struct trib_comm *comm, int operation, const struct tri_call *call)
{
    TRI_TRY(tri_comm_usable(comm, operation));
    TRI_TRY(tri_check_call(comm, operation, call));
    TRI_TRY(check_partner(comm, operation, call));
    TRI_TRY(check_variant(comm, operation, call));
    if (call->unstaged)
        TRI_TRY(check_unstaged(comm, operation, call));
    return tri_batch_begin_call(comm, operation, call, 0);
}

trib_status tri_collective(struct trib_comm *comm, int operation, struct tri_call *call)
{
    trib_status status = begin(comm, operation, call);
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);
    if (call->count == 0) /* on all ranks */
        return tri_match_done(comm, TRIB_OK);
    status = record(comm, operation, call);
    return tri_batch_submit(comm, status, send_bytes(comm, operation, call));
}

static trib_status read_options(struct tri_call *call, const struct trib_comm *comm, int operation,
                                const trib_call_options *options)
{
    struct tri_call_settings settings;
    TRI_TRY(tri_call_settings_read(&settings, comm, operation, options));
    if (settings.scaled && operation != TRI_ALLREDUCE_WITH)
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "the options have a factor, which allreduces alone take");
    call->scaled = settings.scaled;
    call->factor = settings.factor;
    call->variant = settings.variant;
    call->unstaged = settings.unstaged;
    return TRIB_OK;
}

trib_status tri_collective_with(struct trib_comm *comm, int operation, struct tri_call *call,
                                const trib_call_options *options)
{
    const trib_status status = read_options(call, comm, operation, options);
    return status == TRIB_OK ? tri_collective(comm, operation, call) : tri_batch_fail(comm, status);
}

trib_status tri_barrier(struct trib_comm *comm, trib_stream stream)
{
    const struct tri_call call = {.kind = TRI_BARRIER, .stream = stream};
    trib_status status = begin(comm, TRI_BARRIER, &call);
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);
    status = (comm->backend->native & 1u << TRI_BARRIER) != 0 ? tri_batch_record(comm, &call)
                                                              : tri_compose_barrier(comm, stream);
    return tri_batch_submit(comm, status, 0);
}
