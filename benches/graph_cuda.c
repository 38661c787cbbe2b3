/* CUDA graphs, as a user captures them: the stream of a rank, by the thread that drives it. */
#include "benches/cuda_device.h"
#include "benches/graph.h"

static void *capture(const struct bench *bench, int rank, bench_body body, void *argument,
                     int calls)
{
    cudaStream_t stream = bench->stream[rank];
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    bench_set_device(trib_device_ordinal(bench->device[rank]));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++)
        body(bench, rank, argument);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&executable, graph, 0));
    CUDA_OK(cudaGraphUpload(executable, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaGraphDestroy(graph));
    return executable;
}

static void launch(const struct bench *bench, int rank, void *graph)
{
    bench_set_device(trib_device_ordinal(bench->device[rank]));
    CUDA_OK(cudaGraphLaunch(graph, bench->stream[rank]));
}

static void drop(void *graph)
{
    CUDA_OK(cudaGraphExecDestroy(graph));
}

const struct bench_graphs bench_graphs_cuda = {capture, launch, drop};
