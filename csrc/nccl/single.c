/* A communicator of one rank, without NCCL (which would take hundreds of MB for it). A reduction of
 * one operand is that operand, times its factor if it has one, so collectives are copies, or
 * nothing in place. */
#include "csrc/nccl/single.h"

#include <cuda_runtime_api.h>

#include "csrc/base/types.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/local.h"
#include "kernels/cuda/kernels_cuda.h"

/* The receive for the send calls[at]: the k-th receive matches the k-th send. NULL: none. */
static const struct tri_call *receiver(const struct tri_call *calls, size_t n, size_t at)
{
    size_t before = 0;
    for (size_t i = 0; i < at; i++)
        before += calls[i].kind == TRI_SEND;
    for (size_t i = 0; i < n; i++)
        if (calls[i].kind == TRI_RECV && before-- == 0)
            return &calls[i];
    return NULL;
}

/* Check before queueing anything: each send has a receive of the same length, and each receive a
 * send. */
static trib_status match_messages(const struct tri_call *calls, size_t n)
{
    size_t sends = 0;
    size_t receives = 0;
    for (size_t i = 0; i < n; i++) {
        receives += calls[i].kind == TRI_RECV;
        if (calls[i].kind != TRI_SEND)
            continue;
        sends++;
        const struct tri_call *other = receiver(calls, n, i);
        if (other != NULL && (other->count != calls[i].count || other->dtype != calls[i].dtype))
            return tri_fail(TRIB_ERR_MISMATCH,
                            "rank 0 sends itself %zu elements of %s and receives %zu of %s",
                            calls[i].count, trib_dtype_name(calls[i].dtype), other->count,
                            trib_dtype_name(other->dtype));
    }
    if (sends != receives)
        return tri_fail(
            TRIB_ERR_INVALID_USAGE,
            "rank 0, the only rank, makes %zu sends to itself and %zu receives, and would "
            "wait for ever; put equal numbers of both into one batch",
            sends, receives);
    return TRIB_OK;
}

/* A call with nothing to copy has its place in the order, too: it stands for the earlier work of its
 * stream. */
static cudaError_t queue_copy(struct tri_transport *transport, void *recv,
                              const struct tri_call *call)
{
    const size_t bytes = call->count * trib_dtype_size(call->dtype);
    trib_stream stream = call->stream;
    cudaError_t error = tri_nccl_order_begin(&transport->order, transport->device, stream);
    if (error == cudaSuccess && call->scaled)
        error = tri_kernels_cuda.scale(recv, call->send, call->count, call->dtype, &call->factor,
                                       stream) == TRIB_OK
                    ? cudaSuccess
                    : cudaErrorLaunchFailure;
    else if (error == cudaSuccess && recv != call->send && bytes > 0)
        error = cudaMemcpyAsync(recv, call->send, bytes, cudaMemcpyDefault, stream);
    return error == cudaSuccess ? tri_nccl_order_end(&transport->order, stream) : error;
}

trib_status tri_nccl_single(const struct tri_call *calls, size_t n)
{
    TRI_TRY(match_messages(calls, n));
    struct tri_transport *transport = calls[0].transport;
    for (size_t i = 0; i < n; i++) {
        const struct tri_call *call = &calls[i];
        if (call->kind == TRI_RECV || call->kind == TRI_BARRIER)
            continue;
        void *recv = call->kind == TRI_SEND ? receiver(calls, n, i)->recv : call->recv;
        cudaError_t error = queue_copy(transport, recv, call);
        if (error == cudaSuccess)
            continue;
        const trib_status status =
            tri_nccl_cuda_fail(error, tri_nccl_kind_name(call->kind), transport->device);
        (void)tri_abort_raise(transport->local->state, status, tri_detail());
        return status;
    }
    return TRIB_OK;
}
