/* Calls that a CUDA graph captures: each communicator learns of each graph once. */
#include "csrc/nccl/capture.h"

#include <cuda_runtime_api.h>

#include "csrc/nccl/local.h"

_Atomic bool tri_nccl_captured;

void tri_nccl_saw_capture(void)
{
    if (!atomic_load_explicit(&tri_nccl_captured, memory_order_relaxed))
        atomic_store_explicit(&tri_nccl_captured, true, memory_order_relaxed);
}

/* Is the stream in capture, in which one, by which graph? CUDA refuses the question for the default
 * stream while another stream captures; nothing can capture it. */
static bool find_capture(cudaStream_t stream, unsigned long long *out_id, cudaGraph_t *out)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (stream == NULL || stream == cudaStreamLegacy)
        return false;
#if CUDART_VERSION >= 13000
    const cudaError_t error =
        cudaStreamGetCaptureInfo(stream, &status, out_id, out, NULL, NULL, NULL);
#else
    const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, out_id, out, NULL, NULL);
#endif
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess && status == cudaStreamCaptureStatusActive;
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

void tri_nccl_count_graphs(const struct tri_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct tri_transport *transport = calls[i].transport;
        unsigned long long id = 0;
        cudaGraph_t graph = NULL;
        if (!find_capture(calls[i].stream, &id, &graph) || transport->capture == id)
            continue;
        if (is_counted(calls, i, transport->local, id) ||
            tri_nccl_graphs_add(transport->local->graphs, graph))
            transport->capture = id;
    }
}
