/* One NCCL call for each collective, or one kernel of push or pull. This is the hot path: to NCCL's 5 us it
 * adds one look at the current context, one count, one lock of the device and two changes of the thread's
 * capture mode; with push also the stream's number and an event. */
#include "csrc/nccl/capture.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/factor.h"
#include "csrc/nccl/leave.h"
#include "csrc/nccl/local.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/single.h"

/* Of messages: ncclAlltoAll is of NCCL 2.28. Every rank begins with its next neighbour. */
static ncclResult_t alltoall(const struct tri_call *call)
{
    const struct tri_transport *transport = call->transport;
    const ncclDataType_t dtype = tri_nccl_dtype(call->dtype);
    const size_t block = call->count * trib_dtype_size(call->dtype);
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess)
        return result;
    for (int32_t step = 0; step < transport->size && result == ncclSuccess; step++) {
        const int32_t to = (transport->rank + step) % transport->size;
        const int32_t from = (transport->rank - step + transport->size) % transport->size;
        result = ncclSend((const char *)call->send + (size_t)to * block, call->count, dtype, to,
                          transport->comm, call->stream);
        if (result == ncclSuccess)
            result = ncclRecv((char *)call->recv + (size_t)from * block, call->count, dtype, from,
                              transport->comm, call->stream);
    }
    const ncclResult_t end = ncclGroupEnd();
    return result != ncclSuccess ? result : end;
}

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
    case TRI_ALLTOALL:
        return alltoall(call);
    default:
        return ncclInvalidArgument; /* the barrier, which is not a native kind */
    }
}

/* Calls that are queued together; those of one transport are adjacent. */
struct batch {
    const struct tri_call *calls;
    size_t n;
};

static bool is_first(const struct batch *batch, size_t i)
{
    return i == 0 || batch->calls[i - 1].transport != batch->calls[i].transport;
}

/* All ranks make it, and nothing is composed of it on some ranks only. */
static bool is_of_all(const struct tri_call *call)
{
    return call->kind != TRI_SEND && call->kind != TRI_RECV;
}

/* Is it the only collective of its transport? Sends and receives do not count: a rank may have none
 * where others have some, as in an alltoallv. */
static bool is_only(const struct batch *batch, size_t i)
{
    for (size_t k = i; !is_first(batch, k); k--)
        if (is_of_all(&batch->calls[k - 1]))
            return false;
    for (size_t k = i + 1; k < batch->n && !is_first(batch, k); k++)
        if (is_of_all(&batch->calls[k]))
            return false;
    return true;
}

enum server { NCCL, PUSH, PULL };

/* If it is the only collective of its transport. */
static enum server server_alone(const struct tri_call *call)
{
    switch (call->variant) {
    case TRIB_VARIANT_NCCL:
    case TRIB_VARIANT_WINDOW:
        return NCCL;
    case TRIB_VARIANT_PUSH:
        return PUSH;
    case TRIB_VARIANT_ONE_SHOT:
    case TRIB_VARIANT_TWO_SHOT:
        return PULL;
    default:
        return tri_nccl_push_serves(call) ? PUSH : tri_nccl_pull_serves(call) ? PULL : NCCL;
    }
}

/* Several collectives of one transport go to NCCL, as one: all ranks batch alike, as NCCL demands. */
static enum server server_of(const struct batch *batch, size_t i)
{
    const enum server alone = server_alone(&batch->calls[i]);
    return alone != NCCL && is_only(batch, i) ? alone : NCCL;
}

const char *tri_nccl_refuses(const struct tri_call *call)
{
    if (call->variant == TRIB_VARIANT_WINDOW)
        return call->transport->config.windows ? NULL
                                               : "the communicator was made without TRIB_WINDOWS";
    if (call->variant == TRIB_VARIANT_TWO_SHOT && call->kind != TRI_ALLREDUCE)
        return "it is of allreduces alone: the large calls of other kinds are one_shot";
    if (call->variant == TRIB_VARIANT_NCCL || call->transport->size == 1)
        return NULL;
    if (call->scaled)
        return "a call with a factor is NCCL's";
    if (call->variant == TRIB_VARIANT_PUSH)
        return tri_nccl_push_serves(call)
                   ? NULL
                   : "it takes GPUs of one host that reach each other, and a call "
                     "that is small enough for them and for `peer_bytes`";
    if (!tri_nccl_pull_can(call))
        return "it takes 2 to 8 GPUs, over NVLink, of one process or of a process each, 40 MiB or "
               "more of `peer_bytes` (of more than 4 GPUs 64 MiB), and no more than two such "
               "communicators on a GPU";
    return call->variant == TRIB_VARIANT_ONE_SHOT && call->kind == TRI_ALLREDUCE &&
                   call->send == call->recv
               ? "it is never in place"
               : NULL;
}

/* Two shots read their own rank's elements alone. */
bool tri_nccl_packs_itself(const struct tri_call *call)
{
    return call->kind == TRI_ALLREDUCE && call->variant != TRIB_VARIANT_ONE_SHOT &&
           server_alone(call) == PULL;
}

const char *tri_nccl_stages(const struct tri_call *call)
{
    struct tri_nccl_device_guard guard;
    if (server_alone(call) != PULL || !tri_nccl_pull_can(call) ||
        tri_nccl_push_device(&guard, call->transport->device) != TRIB_OK)
        return NULL; /* the call will report it */
    const char *buffer = tri_nccl_pull_stages(call);
    tri_nccl_pop_device(&guard);
    return buffer;
}

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

/* Every communicator of the batch is lost. */
static trib_status lose(const struct batch *batch, trib_status status)
{
    for (size_t i = 0; i < batch->n; i++)
        (void)tri_abort_raise(batch->calls[i].transport->local->state, status, tri_detail());
    return status;
}

/* ------------------------------------------------------------------------------------------ NCCL */

/* All calls that NCCL serves, in one NCCL group if there are several calls. Always ends the group.
 * `*out_at`: the failed call. */
static ncclResult_t call_nccl_group(const struct batch *batch, struct tri_nccl_device_guard *guard,
                                    const struct tri_call **out_at)
{
    const struct tri_call *calls = batch->calls;
    *out_at = calls;
    if (batch->n == 1)
        return call_nccl(calls);
    ncclResult_t first = ncclGroupStart();
    if (first != ncclSuccess)
        return first;
    for (size_t i = 0; i < batch->n && first == ncclSuccess; i++) {
        if (server_of(batch, i) != NCCL)
            continue;
        *out_at = &calls[i];
        if (tri_nccl_switch_device(guard, calls[i].transport->device) != TRIB_OK)
            first = ncclUnhandledCudaError;
        else
            first = call_nccl(&calls[i]);
    }
    ncclResult_t end = ncclGroupEnd();
    return first != ncclSuccess ? first : end;
}

/* The set of devices on which NCCL serves calls. */
static uint64_t devices_of(const struct batch *batch)
{
    uint64_t devices = 0;
    for (size_t i = 0; i < batch->n; i++)
        if (server_of(batch, i) == NCCL)
            devices |= (uint64_t)1 << batch->calls[i].transport->device;
    return devices;
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
    return tri_nccl_refused(result) ? status : lose(batch, status);
}

/* *out_handed: NCCL got the calls, or some of them. */
static trib_status call_nccl_locked(const struct batch *batch, struct tri_nccl_device_guard *guard,
                                    bool *out_handed)
{
    const uint64_t devices = devices_of(batch);
    const struct tri_call *at;
    if (devices == 0)
        return TRIB_OK;
    if (!tri_nccl_lock_devices(devices, has_ended, batch))
        return tri_abort_status(find_ended(batch));
    /* Where NCCL has no connection yet it makes one, by CUDA calls that a capture refuses. */
    const enum cudaStreamCaptureMode before = tri_nccl_relax_capture();
    ncclResult_t result = call_nccl_group(batch, guard, &at);
    tri_nccl_restore_capture(before);
    tri_nccl_unlock_devices(devices);
    *out_handed = !tri_nccl_refused(result);
    return result == ncclSuccess ? TRIB_OK : failed(result, batch, at);
}

/* ----------------------------------------------------------------------- push and pull, and all three */

/* Every call that push or pull serves. */
static trib_status launch_all(const struct batch *batch, struct tri_nccl_device_guard *guard,
                              bool *out_handed)
{
    trib_status status = TRIB_OK;
    for (size_t i = 0; i < batch->n && status == TRIB_OK; i++) {
        const struct tri_call *call = &batch->calls[i];
        const enum server server = server_of(batch, i);
        if (server == NCCL)
            continue;
        *out_handed = true;
        status = tri_nccl_switch_device(guard, call->transport->device);
        if (status == TRIB_OK)
            status = server == PUSH ? tri_nccl_push_call(call) : tri_nccl_pull_call(call);
    }
    return status == TRIB_OK ? TRIB_OK : lose(batch, status);
}

/* Has its transport an order, of which it is the batch's first call? */
static bool is_ordered(const struct batch *batch, size_t i)
{
    return batch->calls[i].transport->push != NULL && is_first(batch, i);
}

static trib_status order_failed(const struct tri_call *call, cudaError_t error)
{
    return error == cudaSuccess
               ? TRIB_OK
               : tri_nccl_cuda_fail(error, tri_nccl_kind_name(call->kind), call->transport->device);
}

static trib_status begin_all(const struct batch *batch, struct tri_nccl_device_guard *guard)
{
    for (size_t i = 0; i < batch->n; i++) {
        const struct tri_call *call = &batch->calls[i];
        struct tri_transport *transport = call->transport;
        if (!is_ordered(batch, i))
            continue;
        TRI_TRY(tri_nccl_switch_device(guard, transport->device));
        TRI_TRY(order_failed(
            call, tri_nccl_order_begin(&transport->order, transport->device, call->stream)));
    }
    return TRIB_OK;
}

static trib_status end_order(const struct tri_call *call, struct tri_nccl_device_guard *guard)
{
    struct tri_nccl_order *order = &call->transport->order;
    const trib_status status = tri_nccl_switch_device(guard, call->transport->device);
    order->lost = order->lost || status != TRIB_OK;
    return status == TRIB_OK ? order_failed(call, tri_nccl_order_end(order, call->stream)) : status;
}

/* Of every transport, whatever was launched and whatever fails: memory is freed once these ends have passed. */
static trib_status end_all(const struct batch *batch, struct tri_nccl_device_guard *guard)
{
    trib_status first = TRIB_OK;
    for (size_t i = 0; i < batch->n; i++) {
        const trib_status status =
            is_ordered(batch, i) ? end_order(&batch->calls[i], guard) : TRIB_OK;
        first = first == TRIB_OK ? status : first;
    }
    return first == TRIB_OK ? TRIB_OK : lose(batch, first);
}

/* *out_handed: calls were queued, or some of them. NCCL comes first: it may refuse. */
static trib_status queue(const struct batch *batch, struct tri_nccl_device_guard *guard,
                         bool *out_handed)
{
    TRI_TRY(begin_all(batch, guard));
    TRI_TRY(call_nccl_locked(batch, guard, out_handed));
    const trib_status launched = launch_all(batch, guard, out_handed);
    if (launched == TRIB_OK)
        return end_all(batch, guard);
    const struct tri_detail_copy detail = tri_detail_copy();
    (void)end_all(batch, guard); /* of what was launched before it */
    return tri_fail(launched, "%s", detail.text);
}

static trib_status queue_counted(const struct batch *batch, struct tri_nccl_device_guard *guard)
{
    bool handed = false;
    trib_status status = tri_nccl_count_calls(batch->calls, batch->n);
    if (status == TRIB_OK)
        status = queue(batch, guard, &handed);
    if (!handed)
        tri_nccl_uncount_calls(batch->calls, batch->n);
    else if (atomic_load_explicit(&tri_nccl_captured, memory_order_relaxed))
        tri_nccl_count_graphs(batch->calls, batch->n, status == TRIB_OK);
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
        first->comm == NULL ? tri_nccl_single(calls, n) : queue_counted(&batch, &guard);
    tri_nccl_pop_device(&guard);
    return status;
}
