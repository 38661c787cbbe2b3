/* The conformance suite on the cuda table. With --slice I/N, only every N-th case, from the I-th
 * on. With TRIB_TEST_LARGE in the environment, also a tensor of more than 2^31 elements. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"
#include "tests/conformance/sparse_kernels/sparse_kernels.h"

static cudaStream_t stream, other;

static void *allocate(size_t bytes)
{
    void *data = NULL;
    if (cudaMalloc(&data, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return data;
}

static void *allocate_pinned(size_t bytes)
{
    void *data = NULL;
    MUST(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    return data;
}

static void release(void *data)
{
    MUST(cudaFree(data));
}

static void release_pinned(void *data)
{
    MUST(cudaFreeHost(data));
}

static void copy(void *dst, const void *src, size_t bytes)
{
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamSynchronize(other));
    MUST(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
    MUST(cudaStreamSynchronize(stream));
}

/* Whatever `queue` queues on the stream, as a graph that can be launched. */
static void *capture(void (*queue)(void *argument), void *argument)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    queue(argument);
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return executable;
}

static void replay(void *executable)
{
    MUST(cudaGraphLaunch((cudaGraphExec_t)executable, stream));
}

static void discard(void *executable)
{
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaGraphExecDestroy((cudaGraphExec_t)executable));
}

static const struct kernels_place *open_place(void)
{
    static struct kernels_place place = {
        .kernels = &tri_kernels_cuda,
        .alloc = allocate,
        .alloc_pinned = allocate_pinned,
        .free = release,
        .free_pinned = release_pinned,
        .upload = copy,
        .download = copy,
        .capture = capture,
        .replay = replay,
        .discard = discard,
    };
    MUST(cudaSetDevice(0));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    place.stream = (trib_stream)stream;
    place.other = (trib_stream)other;
    place.twin = tri_kernels_cpu.sparse;
    return &place;
}

/* A launch that fails returns an error to its caller, and to nobody else. */
static void refused_launch(void)
{
    float *bucket = allocate(64);
    const struct tri_bucket whole = {bucket, 4, TRIB_F32};
    cudaStream_t capturing;
    cudaGraph_t graph = NULL;
    check_begin("cuda launch that is refused");
    /* A kernel on the legacy stream while a blocking stream is captured globally is refused. */
    MUST(cudaStreamCreate(&capturing));
    MUST(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeGlobal));
    CHECK_STATUS(tri_cuda_pack(NULL, 0, &whole, NULL, NULL), TRIB_ERR_CUDA);
    CHECK(cudaGetLastError() == cudaSuccess);
    (void)cudaStreamEndCapture(capturing, &graph);
    if (graph != NULL)
        MUST(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    MUST(cudaStreamDestroy(capturing));
    CHECK_OK(tri_cuda_pack(NULL, 0, &whole, NULL, (trib_stream)stream));
    MUST(cudaStreamSynchronize(stream));
    check_end();
    release(bucket);
}

/* preload finds every kernel loadable, and leaves no error behind. */
static void preload(void)
{
    check_begin("cuda preload");
    tri_kernels_cuda.preload();
    CHECK(cudaGetLastError() == cudaSuccess);
    tri_kernels_cuda.preload();
    CHECK(cudaGetLastError() == cudaSuccess);
    check_end();
}

int main(int n, char **arguments)
{
    int devices = 0;
    struct cudaDeviceProp properties;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        check_skip("there is no GPU");
        return check_finish("kernels_cuda_test");
    }
    if (!kernels_slice(n, arguments))
        return EXIT_FAILURE;
    const struct kernels_place *place = open_place();
    MUST(cudaGetDeviceProperties(&properties, 0));
    printf("cuda: %s\n", properties.name);
    preload();
    kernels_suite(place);
    sparse_kernels_suite(place);
    refused_launch();
    if (getenv("TRIB_TEST_LARGE") != NULL)
        kernels_large(place);
    if (getenv("TRIB_TEST_LARGE") != NULL && place->kernels->sparse != NULL)
        sparse_kernels_large(place);
    MUST(cudaStreamDestroy(stream));
    MUST(cudaStreamDestroy(other));
    return check_finish("kernels_cuda_test");
}
