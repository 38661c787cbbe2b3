/* Errors of queued work: NCCL's asynchronous errors, and CUDA's sticky ones. */
#include "csrc/nccl/poll.h"

#include <cuda_runtime_api.h>

#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"

/* The first local rank with an asynchronous NCCL error, which is stored in `*out`; NULL if there is
 * none. Queries only in stage OPEN, and under the lock, which keeps it so: NCCL forbids the query
 * while another thread aborts the communicator. Skips a rank that is still opening: it has no
 * counters yet. */
static const struct tri_transport *find_error(struct tri_nccl_local *local, ncclResult_t *out)
{
    const struct tri_transport *rank = NULL;
    *out = ncclSuccess;
    pthread_mutex_lock(&local->lock);
    if (local->stage == TRI_NCCL_OPEN)
        rank = local->ranks;
    for (; rank != NULL; rank = rank->next) {
        const ncclResult_t asked =
            rank->p2p == NULL ? ncclSuccess : ncclCommGetAsyncError(rank->comm, out);
        if (asked != ncclSuccess)
            *out = asked;
        if (*out != ncclSuccess)
            break;
    }
    pthread_mutex_unlock(&local->lock);
    return rank;
}

/* Makes no CUDA call: CUDA may wait for a device. */
trib_status tri_nccl_poll_errors(void *context)
{
    ncclResult_t result;
    const struct tri_transport *rank = find_error(context, &result);
    return rank == NULL ? TRIB_OK
                        : tri_nccl_fail(result, "work on a stream", rank->rank, rank->device);
}

/* The caller is registered with the abort state, so no background job destroys the stream. Not
 * under local->lock: CUDA may wait for a device, and an abort must not. */
static trib_status query(const struct tri_transport *transport)
{
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device(&guard, transport->device));
    const trib_status status = tri_nccl_poll_errors(transport->local);
    /* After a fault in a kernel every CUDA call of that context fails with the same error. A query
     * of our own stream, on which nothing is queued, shows it. */
    const cudaError_t error =
        status == TRIB_OK ? tri_nccl_relaxed_stream_query(transport->stream) : cudaSuccess;
    tri_nccl_pop_device(&guard);
    if (status != TRIB_OK)
        return status;
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return TRIB_OK;
    return tri_nccl_cuda_fail(error, "work on a stream", transport->device);
}

void tri_nccl_poll(struct tri_transport *transport)
{
    struct trib_abort *state = transport->local->state;
    if (!tri_abort_register(state))
        return; /* aborted; the abort state says why */
    const trib_status status = query(transport);
    tri_abort_unregister(state);
    if (status != TRIB_OK)
        (void)tri_abort_raise(state, status, tri_detail());
}
