/* Calls that a CUDA graph captures: each communicator learns of each graph once. */
#include "csrc/nccl/capture.h"

#include <cuda_runtime_api.h>

#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/local.h"
#include "csrc/nccl/ops.h"

_Atomic bool tri_nccl_captured;

void tri_nccl_saw_capture(void)
{
    if (!atomic_load_explicit(&tri_nccl_captured, memory_order_relaxed))
        atomic_store_explicit(&tri_nccl_captured, true, memory_order_relaxed);
}

/* CUDA refuses the question for the default stream while another stream captures; nothing can
 * capture it. */
static bool is_default(cudaStream_t stream)
{
    return stream == NULL || stream == cudaStreamLegacy;
}

/* Is the stream in capture, in which one, by which graph? An older CUDA also refuses the question for
 * a stream whose next node depends on the last one in a special way: nobody can tell which capture
 * that is in, as if it had been invalidated. */
static enum cudaStreamCaptureStatus find_capture(cudaStream_t stream, unsigned long long *out_id,
                                                 cudaGraph_t *out)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (is_default(stream))
        return status;
#if CUDART_VERSION >= 13000
    const cudaGraphNode_t *nodes = NULL;
    const cudaGraphEdgeData *edges = NULL; /* without a place for them CUDA may refuse, too */
    size_t n = 0;
    const cudaError_t error =
        cudaStreamGetCaptureInfo(stream, &status, out_id, out, &nodes, &edges, &n);
#else
    const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, out_id, out, NULL, NULL);
#endif
    if (error == cudaSuccess)
        return status;
    (void)cudaGetLastError();
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
        (void)cudaGetLastError();
        return cudaStreamCaptureStatusNone;
    }
    return status == cudaStreamCaptureStatusNone ? status : cudaStreamCaptureStatusInvalidated;
}

/* The usual answer, which takes one call of the driver and no context. A driver that fails has not
 * said so. */
static bool is_free(cudaStream_t stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return is_default(stream) ||
           (tri_nccl_driver.stream_capturing != NULL &&
            tri_nccl_driver.stream_capturing(stream, &status) == CUDA_SUCCESS &&
            status == CU_STREAM_CAPTURE_STATUS_NONE);
}

/* CUDA numbers captures, and invalidated ones not at all: nothing agrees with those. */
uint64_t tri_nccl_capturing(int32_t device, trib_stream stream)
{
    struct tri_nccl_device_guard guard;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    if (is_free(stream))
        return 0;
    if (tri_nccl_push_device(&guard, device) != TRIB_OK)
        return 0;
    const enum cudaStreamCaptureStatus status = find_capture(stream, &id, &graph);
    tri_nccl_pop_device(&guard);
    if (status == cudaStreamCaptureStatusNone)
        return 0;
    tri_nccl_saw_capture();
    return status == cudaStreamCaptureStatusActive ? (uint64_t)id + 1 : UINT64_MAX;
}

trib_status tri_nccl_keep(int32_t device, trib_stream stream, void (*gone)(void *argument),
                          void *argument)
{
    struct tri_nccl_device_guard guard;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    const trib_status status = tri_nccl_push_device(&guard, device);
    if (status != TRIB_OK) {
        gone(argument);
        return status;
    }
    cudaError_t error = cudaErrorStreamCaptureInvalidated;
    if (find_capture(stream, &id, &graph) == cudaStreamCaptureStatusActive)
        error = tri_nccl_graph_keep(graph, gone, argument);
    else
        gone(argument);
    tri_nccl_pop_device(&guard);
    return error == cudaSuccess ? TRIB_OK
                                : tri_nccl_cuda_fail(error, "keeping memory for a graph", device);
}

/* Has one of the first `n` calls counted this capture for the local ranks? Several streams can
 * belong to one capture. */
static bool is_counted(const struct tri_call *calls, size_t n, const struct tri_nccl_local *local,
                       unsigned long long id)
{
    for (size_t i = 0; i < n; i++)
        if (calls[i].transport->local == local && calls[i].transport->capture == id)
            return true;
    return false;
}

/* Returns true if the local ranks of calls[at] know of the graph. */
static bool count_graph(const struct tri_call *calls, size_t at, unsigned long long id,
                        cudaGraph_t graph)
{
    struct tri_transport *transport = calls[at].transport;
    if (transport->capture != id && !is_counted(calls, at, transport->local, id) &&
        !tri_nccl_graphs_add(transport->local->graphs, graph))
        return false;
    transport->capture = id;
    return true;
}

void tri_nccl_count_graphs(const struct tri_call *calls, size_t n, bool queued)
{
    for (size_t i = 0; i < n; i++) {
        unsigned long long id = 0;
        cudaGraph_t graph = NULL;
        const enum cudaStreamCaptureStatus status = find_capture(calls[i].stream, &id, &graph);
        const bool active = status == cudaStreamCaptureStatusActive;
        if (active ? !count_graph(calls, i, id, graph)
                   : status != cudaStreamCaptureStatusNone && queued)
            calls[i].transport->order.lost = true;
    }
}
