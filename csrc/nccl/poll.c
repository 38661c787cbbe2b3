/* What went wrong on the streams since: NCCL's asynchronous errors, and CUDA's final ones. */
#include <cuda_runtime_api.h>

#include "csrc/nccl/clique.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"

/* After a fault in a kernel every CUDA call of that context fails with the same error: so does
 * asking a stream of our own, on which nothing is queued. Relaxed, because otherwise asking would
 * spoil a capture that this thread, or in global mode another one, is making. */
static cudaError_t ask_stream(cudaStream_t stream)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (error != cudaSuccess)
        return error;
    error = cudaStreamQuery(stream);
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
}

/* Only while the stage is OPEN, and under the lock, so that it stays so: NCCL does not allow the
 * question while another thread aborts the communicator. */
static ncclResult_t ask_nccl(const struct tri_transport *transport)
{
    struct tri_nccl_clique *clique = transport->clique;
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&clique->lock);
    if (clique->stage == TRI_NCCL_OPEN && transport->comm != NULL) {
        ncclResult_t asked = ncclCommGetAsyncError(transport->comm, &result);
        if (asked != ncclSuccess)
            result = asked;
    }
    pthread_mutex_unlock(&clique->lock);
    return result;
}

/* Inside the gate: until it is left, the reaper does not destroy the stream. Not under the clique's
 * lock: CUDA may wait for a device, and an abort must not. */
static trib_status ask(const struct tri_transport *transport)
{
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter(&scope, transport->device);
    if (status != TRIB_OK)
        return status;
    const ncclResult_t result = ask_nccl(transport);
    const cudaError_t error = result == ncclSuccess ? ask_stream(transport->stream) : cudaSuccess;
    tri_nccl_leave(&scope);
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "work on a stream", transport->rank, transport->device);
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return TRIB_OK;
    return tri_nccl_cuda_fail(error, "work on a stream", transport->device);
}

void tri_nccl_poll(struct tri_transport *transport)
{
    struct trib_abort *state = transport->clique->state;
    if (!tri_abort_enter(state))
        return; /* it has stopped, and says why itself */
    const trib_status status = ask(transport);
    tri_abort_leave(state);
    if (status != TRIB_OK)
        (void)tri_abort_raise(state, status, tri_detail());
}
