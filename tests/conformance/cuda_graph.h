/* Graphs of what a stream captures. */
#ifndef TRI_TESTS_CONFORMANCE_CUDA_GRAPH_H
#define TRI_TESTS_CONFORMANCE_CUDA_GRAPH_H

#include "tests/conformance/cuda_must.h"

/* What the stream has captured, as a graph that can be launched. */
static inline cudaGraphExec_t cuda_end_capture(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return executable;
}

#endif
