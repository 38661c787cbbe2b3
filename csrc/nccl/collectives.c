/* One NCCL call for each collective. This is the hot path: to NCCL's 5 us it adds one look at the
 * current context, one count and one lock of the device. */
#include "csrc/nccl/capture.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/factor.h"
#include "csrc/nccl/leave.h"
#include "csrc/nccl/local.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/single.h"

/* One call; in the order of enum tri_kind. */
static ncclResult_t call_nccl(const struct tri_call *call)
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
        return ncclInvalidArgument; /* the barrier, which is not a native kind */
    }
}

/* All calls, in one NCCL group if there are several. Always ends the group. `*out_at`: the failed
 * call. */
static ncclResult_t call_nccl_group(const struct tri_call *calls, size_t n,
                                    struct tri_nccl_device_guard *guard,
                                    const struct tri_call **out_at)
{
    *out_at = calls;
    if (n == 1)
        return call_nccl(calls);
    ncclResult_t first = ncclGroupStart();
    if (first != ncclSuccess)
        return first;
    for (size_t i = 0; i < n && first == ncclSuccess; i++) {
        *out_at = &calls[i];
        if (tri_nccl_switch_device(guard, calls[i].transport->device) != TRIB_OK)
            first = ncclUnhandledCudaError;
        else
            first = call_nccl(&calls[i]);
    }
    ncclResult_t end = ncclGroupEnd();
    return first != ncclSuccess ? first : end;
}

/* The set of devices that the calls use. */
static uint64_t devices_of(const struct tri_call *calls, size_t n)
{
    uint64_t devices = 0;
    for (size_t i = 0; i < n; i++)
        devices |= (uint64_t)1 << calls[i].transport->device;
    return devices;
}

/* Calls that go to NCCL together. */
struct batch {
    const struct tri_call *calls;
    size_t n;
};

/* The state of the first communicator that has ended; NULL: none has. */
static const struct trib_abort *find_ended(const struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        if (!tri_abort_live(batch->calls[i].transport->local->state))
            return batch->calls[i].transport->local->state;
    return NULL;
}

static bool has_ended(const void *batch)
{
    return find_ended(batch) != NULL;
}

/* A call that NCCL refused leaves the communicators as they were. After any other failure every
 * communicator of the call is lost: when one fails, NCCL raises the abort flags of all. */
static trib_status failed(ncclResult_t result, const struct batch *batch, const struct tri_call *at)
{
    const struct tri_transport *transport = at->transport;
    const struct trib_abort *ended = find_ended(batch);
    const trib_status status = ended != NULL ? tri_abort_status(ended)
                                             : tri_nccl_fail(result, tri_nccl_kind_name(at->kind),
                                                             transport->rank, transport->device);
    for (size_t i = 0; i < batch->n && !tri_nccl_refused(result); i++)
        (void)tri_abort_raise(batch->calls[i].transport->local->state, status, tri_detail());
    return status;
}

/* *out_handed: NCCL got the calls, or some of them. */
static trib_status call_nccl_locked(const struct batch *batch, struct tri_nccl_device_guard *guard,
                                    bool *out_handed)
{
    const uint64_t devices = devices_of(batch->calls, batch->n);
    const struct tri_call *at;
    if (!tri_nccl_lock_devices(devices, has_ended, batch))
        return tri_abort_status(find_ended(batch));
    ncclResult_t result = call_nccl_group(batch->calls, batch->n, guard, &at);
    tri_nccl_unlock_devices(devices);
    *out_handed = !tri_nccl_refused(result);
    return result == ncclSuccess ? TRIB_OK : failed(result, batch, at);
}

static trib_status call_nccl_counted(const struct batch *batch, struct tri_nccl_device_guard *guard)
{
    bool handed = false;
    trib_status status = tri_nccl_count_calls(batch->calls, batch->n);
    if (status == TRIB_OK)
        status = call_nccl_locked(batch, guard, &handed);
    if (!handed)
        tri_nccl_uncount_calls(batch->calls, batch->n);
    else if (status == TRIB_OK && atomic_load_explicit(&tri_nccl_captured, memory_order_relaxed))
        tri_nccl_count_graphs(batch->calls, batch->n);
    return status;
}

trib_status tri_nccl_collective(const struct tri_call *calls, size_t n)
{
    const struct batch batch = {calls, n};
    struct tri_nccl_device_guard guard;
    if (n == 0)
        return TRIB_OK;
    const struct tri_transport *first = calls[0].transport;
    TRI_TRY(tri_nccl_push_device(&guard, first->device));
    const trib_status status =
        first->comm == NULL ? tri_nccl_single(calls, n) : call_nccl_counted(&batch, &guard);
    tri_nccl_pop_device(&guard);
    return status;
}
