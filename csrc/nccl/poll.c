/* Errors of queued work: NCCL's asynchronous errors, and CUDA's sticky ones. */
#include "csrc/nccl/poll.h"

#include <cuda_runtime_api.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"

/* A process that ends closes NCCL's connections, too. The side channel says which process it was,
 * and usually within 2 ms. */
enum { EXPLAINED_MS = 50 };

/* Might another process be the cause of `result` on `rank`, and still say so? Locked. Until then the
 * error is hidden, which is safe: NCCL's proxy thread has reported it, and kernels that wait for
 * data of a lost connection wait on until an abort. (A call that fails ends the communicator at
 * once, because NCCL then interrupts kernels by itself.) */
static bool may_be_explained(struct tri_nccl_local *local, const struct tri_transport *rank,
                             ncclResult_t result)
{
    if ((result != ncclRemoteError && result != ncclSystemError) || local->joined == rank->size)
        return false;
    if (local->explained_ns == 0)
        local->explained_ns = tri_deadline_ns(EXPLAINED_MS);
    return tri_now_ns() < local->explained_ns;
}

/* Locked. Not a rank that is still opening: it has no counters yet. Not one that has left a
 * communicator of the caller's, either: he may have destroyed it. (Ours live until all have left.) */
static bool may_be_asked(const struct tri_nccl_local *local, const struct tri_transport *rank)
{
    return rank->p2p != NULL && (local->key.adopted == 0 || !rank->left);
}

/* The first local rank with an asynchronous NCCL error, which is stored in `*out`; NULL if there is
 * none, or none yet that counts. Queries only in stage OPEN, and under the lock, which keeps it so:
 * NCCL forbids the query while another thread aborts the communicator. */
static const struct tri_transport *find_error(struct tri_nccl_local *local, ncclResult_t *out)
{
    const struct tri_transport *rank = NULL;
    *out = ncclSuccess;
    pthread_mutex_lock(&local->lock);
    if (local->stage == TRI_NCCL_OPEN)
        rank = local->ranks;
    for (; rank != NULL; rank = rank->next) {
        const ncclResult_t asked =
            may_be_asked(local, rank) ? ncclCommGetAsyncError(rank->comm, out) : ncclSuccess;
        if (asked != ncclSuccess)
            *out = asked;
        if (*out != ncclSuccess)
            break;
    }
    if (rank != NULL && may_be_explained(local, rank, *out))
        rank = NULL;
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
