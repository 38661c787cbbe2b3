/* One NCCL call for each collective. The hot path: what it adds to the 5 us of NCCL is one look at
 * the current context, one count and one lock of the device. */
#include "csrc/nccl/clique.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/factor.h"
#include "csrc/nccl/leave.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/solo.h"

/* In the order of enum tri_kind. */
static ncclResult_t issue(const struct tri_call *call)
{
    const ncclComm_t comm = call->transport->comm;
    const ncclDataType_t dtype = tri_nccl_dtype(call->dtype);
    switch (call->kind) {
    case TRI_ALLREDUCE:
        if (call->scaled)
            return tri_nccl_allreduce_scaled(call);
        return ncclAllReduce(call->send, call->recv, call->count, dtype, tri_nccl_op(call->op),
                             comm, call->stream);
    case TRI_BROADCAST:
        return ncclBroadcast(call->send, call->recv, call->count, dtype, call->peer, comm,
                             call->stream);
    case TRI_REDUCE:
        return ncclReduce(call->send, call->recv, call->count, dtype, tri_nccl_op(call->op),
                          call->peer, comm, call->stream);
    case TRI_ALLGATHER:
        return ncclAllGather(call->send, call->recv, call->count, dtype, comm, call->stream);
    case TRI_REDUCE_SCATTER:
        return ncclReduceScatter(call->send, call->recv, call->count, dtype, tri_nccl_op(call->op),
                                 comm, call->stream);
    case TRI_SEND:
        return ncclSend(call->send, call->count, dtype, call->peer, comm, call->stream);
    case TRI_RECV:
        return ncclRecv(call->recv, call->count, dtype, call->peer, comm, call->stream);
    default:
        return ncclInvalidArgument; /* the barrier, which is not among the native kinds */
    }
}

/* All calls, as one NCCL group if there are several. The group is always closed. `*out_at`: the
 * call that failed. */
static ncclResult_t issue_all(const struct tri_call *calls, size_t n, struct tri_nccl_scope *scope,
                              const struct tri_call **out_at)
{
    *out_at = calls;
    if (n == 1)
        return issue(calls);
    ncclResult_t first = ncclGroupStart();
    if (first != ncclSuccess)
        return first;
    for (size_t i = 0; i < n && first == ncclSuccess; i++) {
        *out_at = &calls[i];
        if (tri_nccl_move(scope, calls[i].transport->device) != TRIB_OK)
            first = ncclUnhandledCudaError;
        else
            first = issue(&calls[i]);
    }
    ncclResult_t end = ncclGroupEnd();
    return first != ncclSuccess ? first : end;
}

/* A bit for each device that the calls are of. */
static uint64_t devices_of(const struct tri_call *calls, size_t n)
{
    uint64_t devices = 0;
    for (size_t i = 0; i < n; i++)
        devices |= (uint64_t)1 << calls[i].transport->device;
    return devices;
}

/* A call that NCCL refused leaves the communicators as they were. After anything else every
 * communicator of the call is lost: NCCL raises the abort flags of all when one fails. */
static trib_status failed(ncclResult_t result, const struct tri_call *calls, size_t n,
                          const struct tri_call *at)
{
    const struct tri_transport *transport = at->transport;
    if (!tri_abort_live(transport->clique->state))
        return tri_abort_status(transport->clique->state);
    trib_status status =
        tri_nccl_fail(result, tri_nccl_kind_name(at->kind), transport->rank, transport->device);
    for (size_t i = 0; i < n && !tri_nccl_harmless(result); i++)
        (void)tri_abort_raise(calls[i].transport->clique->state, status, tri_detail());
    return status;
}

static trib_status issue_locked(const struct tri_call *calls, size_t n,
                                struct tri_nccl_scope *scope)
{
    const struct trib_abort *state = calls[0].transport->clique->state;
    const uint64_t devices = devices_of(calls, n);
    const struct tri_call *at;
    const trib_status status = tri_nccl_note_calls(calls, n);
    if (status != TRIB_OK)
        return status;
    if (!tri_nccl_issue_lock(devices, state))
        return tri_abort_status(state);
    ncclResult_t result = issue_all(calls, n, scope, &at);
    tri_nccl_issue_unlock(devices);
    if (result == ncclSuccess)
        return TRIB_OK;
    if (tri_nccl_harmless(result))
        tri_nccl_unnote_calls(calls, n);
    return failed(result, calls, n, at);
}

trib_status tri_nccl_collective(const struct tri_call *calls, size_t n)
{
    struct tri_nccl_scope scope;
    if (n == 0)
        return TRIB_OK;
    const struct tri_transport *first = calls[0].transport;
    trib_status status = tri_nccl_enter(&scope, first->device);
    if (status != TRIB_OK)
        return status;
    status = first->comm == NULL ? tri_nccl_solo(calls, n) : issue_locked(calls, n, &scope);
    tri_nccl_leave(&scope);
    return status;
}
