/* What went wrong on the streams since: NCCL's asynchronous errors, and CUDA's final ones. */
#include <cuda_runtime_api.h>

#include "csrc/nccl/clique.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"

/* The first rank of the clique for which NCCL has found an error, and that in `*out`; NULL: none.
 * Only while the stage is OPEN, and under the lock, so that it stays so: NCCL does not allow the
 * question while another thread aborts the communicator. Nor of a rank that is still being opened: it
 * has no counters yet. */
static const struct tri_transport *ask_nccl(struct tri_nccl_clique *clique, ncclResult_t *out)
{
    const struct tri_transport *rank = NULL;
    *out = ncclSuccess;
    pthread_mutex_lock(&clique->lock);
    if (clique->stage == TRI_NCCL_OPEN)
        rank = clique->ranks;
    for (; rank != NULL; rank = rank->next) {
        const ncclResult_t asked =
            rank->mail == NULL ? ncclSuccess : ncclCommGetAsyncError(rank->comm, out);
        if (asked != ncclSuccess)
            *out = asked;
        if (*out != ncclSuccess)
            break;
    }
    pthread_mutex_unlock(&clique->lock);
    return rank;
}

/* CUDA is not asked: it may wait for a device. */
trib_status tri_nccl_on_poll(void *context)
{
    ncclResult_t result;
    const struct tri_transport *rank = ask_nccl(context, &result);
    return rank == NULL ? TRIB_OK
                        : tri_nccl_fail(result, "work on a stream", rank->rank, rank->device);
}

/* Inside the gate: until it is left, the reaper does not destroy the stream. Not under the clique's
 * lock: CUDA may wait for a device, and an abort must not. */
static trib_status ask(const struct tri_transport *transport)
{
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter(&scope, transport->device);
    if (status != TRIB_OK)
        return status;
    status = tri_nccl_on_poll(transport->clique);
    /* After a fault in a kernel every CUDA call of that context fails with the same error: so does
     * asking a stream of our own, on which nothing is queued. */
    const cudaError_t error =
        status == TRIB_OK ? tri_nccl_ask_stream(transport->stream) : cudaSuccess;
    tri_nccl_leave(&scope);
    if (status != TRIB_OK)
        return status;
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return TRIB_OK;
    return tri_nccl_cuda_fail(error, "work on a stream", transport->device);
}

void tri_nccl_poll(struct tri_transport *transport)
{
    struct trib_abort *state = transport->clique->state;
    if (!tri_abort_register(state))
        return; /* it has stopped, and says why itself */
    const trib_status status = ask(transport);
    tri_abort_unregister(state);
    if (status != TRIB_OK)
        (void)tri_abort_raise(state, status, tri_detail());
}
