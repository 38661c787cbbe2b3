/* The conformance suite on the cuda table. With --time, also microseconds. With --slice I/N, only every N-th
 * case, from the I-th on. With
 * TRIB_TEST_LARGE in the environment, also a tensor of more than 2^31 elements. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"
#include "tests/conformance/sparse_kernels/sparse_kernels.h"
#include "tests/conformance/sparse_kernels/times.h"

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

static void *allocate_shared(size_t bytes)
{
    void *data = NULL;
    MUST(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    return data;
}

static void release(void *data)
{
    MUST(cudaFree(data));
}

static void release_shared(void *data)
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
        .alloc_shared = allocate_shared,
        .free = release,
        .free_shared = release_shared,
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

/* A launch that cannot be made is told to the caller and to nobody else. */
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

/* ---------------------------------------------------------------------------------------- times */

enum { RESNET = 161, TINY = 500, ROUNDS = 100 };

/* The parameters of a ResNet-50, in the order of its layers. */
static size_t resnet(size_t *counts)
{
    static const struct {
        size_t blocks, narrow, wide;
    } stages[] = {{3, 64, 256}, {4, 128, 512}, {6, 256, 1024}, {3, 512, 2048}};
    size_t n = 0, in = 64;
    counts[n++] = 64 * 3 * 7 * 7;
    counts[n++] = 64;
    counts[n++] = 64;
    for (size_t s = 0; s < 4; s++)
        for (size_t b = 0; b < stages[s].blocks; b++, in = stages[s].wide) {
            const size_t narrow = stages[s].narrow, wide = stages[s].wide;
            const size_t weights[] = {in * narrow, narrow * narrow * 9, narrow * wide, in * wide};
            const size_t outputs[] = {narrow, narrow, wide, wide};
            for (size_t w = 0; w < (b == 0 ? 4u : 3u); w++) { /* the fourth is the shortcut's */
                counts[n++] = weights[w];
                counts[n++] = outputs[w];
                counts[n++] = outputs[w];
            }
        }
    counts[n++] = 2048 * 1000;
    counts[n++] = 1000;
    return n;
}

struct timing {
    const char *name;
    const size_t *counts;
    size_t n;
    trib_dtype slice, bucket;
    size_t misalign; /* bytes */
    bool weighted;
};

/* Tensors in a scattered order, each at a multiple of 512 bytes plus `misalign`. */
static size_t scatter(const struct timing *timing, struct tri_slice *slices, char *data)
{
    const size_t size = trib_dtype_size(timing->slice);
    const size_t per_unit = 16 / trib_dtype_size(timing->bucket);
    size_t at = 0, end = 0;
    for (size_t k = 0; k < timing->n; k++) {
        const size_t i = k * 89 % timing->n; /* 89 divides neither 161 nor 500 */
        slices[i].data = data + at + timing->misalign;
        at += (timing->counts[i] * size + timing->misalign + 511) / 512 * 512;
    }
    for (size_t i = 0; i < timing->n; i++) {
        slices[i].count = timing->counts[i];
        slices[i].dtype = timing->slice;
        slices[i].offset = end;
        end = (end + slices[i].count + per_unit - 1) / per_unit * per_unit;
    }
    return end;
}

/* Mean microseconds of a call among ROUNDS of them in a row. */
static double time_calls(const struct tri_slice *slices, const struct timing *timing,
                         const struct tri_bucket *bucket, const uint32_t *decision)
{
    const struct tri_weight weight = {NULL, 0.5f};
    cudaEvent_t start, end;
    float ms = 0;
    MUST(cudaEventCreate(&start));
    MUST(cudaEventCreate(&end));
    for (int round = -10; round < ROUNDS; round++) {
        if (round == 0)
            MUST(cudaEventRecord(start, stream));
        if (decision != NULL)
            CHECK_OK(tri_cuda_unpack(slices, timing->n, bucket, timing->weighted, decision,
                                     (trib_stream)stream));
        else
            CHECK_OK(tri_cuda_pack(slices, timing->n, bucket, timing->weighted ? &weight : NULL,
                                   (trib_stream)stream));
    }
    MUST(cudaEventRecord(end, stream));
    MUST(cudaEventSynchronize(end));
    MUST(cudaEventElapsedTime(&ms, start, end));
    MUST(cudaEventDestroy(start));
    MUST(cudaEventDestroy(end));
    return (double)ms * 1e3 / ROUNDS;
}

static void time_list(const struct timing *timing)
{
    const uint32_t yes = 1;
    struct tri_slice slices[TINY];
    size_t elements = 0, bytes = 0;
    for (size_t i = 0; i < timing->n; i++) {
        elements += timing->counts[i];
        bytes += timing->counts[i] * trib_dtype_size(timing->slice) + 1024;
    }
    const size_t moved = elements * (trib_dtype_size(timing->slice) +
                                     trib_dtype_size(timing->bucket));
    char *data = allocate(bytes);
    const size_t end = scatter(timing, slices, data);
    const struct tri_bucket bucket = {allocate((end + 1) * trib_dtype_size(timing->bucket)),
                                      end + (timing->weighted ? 1 : 0), timing->bucket};
    uint32_t *decision = allocate(sizeof yes);
    MUST(cudaMemset(data, 0x3c, bytes));
    copy(decision, &yes, sizeof yes);
    const double pack = time_calls(slices, timing, &bucket, NULL);
    const double unpack = time_calls(slices, timing, &bucket, decision);
    printf("  %-44s pack %7.1f us %5.0f GB/s   unpack %7.1f us %5.0f GB/s\n", timing->name, pack,
           (double)moved / pack / 1e3, unpack, (double)moved / unpack / 1e3);
    release(data);
    release(bucket.data);
    release(decision);
}

static void time_all(void)
{
    size_t layers[RESNET], tiny[TINY];
    const size_t n = resnet(layers);
    for (size_t i = 0; i < TINY; i++)
        tiny[i] = 64;
    const struct timing timings[] = {
        {"161 tensors f32", layers, n, TRIB_F32, TRIB_F32, 0, false},
        {"161 tensors f32, 4 bytes off", layers, n, TRIB_F32, TRIB_F32, 4, false},
        {"161 tensors bf16", layers, n, TRIB_BF16, TRIB_BF16, 0, false},
        {"161 tensors bf16, 2 bytes off", layers, n, TRIB_BF16, TRIB_BF16, 2, false},
        {"161 tensors f32, weighted", layers, n, TRIB_F32, TRIB_F32, 0, true},
        {"161 tensors bf16, weighted, f32 bucket", layers, n, TRIB_BF16, TRIB_F32, 0, true},
        {"161 tensors f16, weighted, f32 bucket", layers, n, TRIB_F16, TRIB_F32, 0, true},
        {"500 tensors of 64 f32", tiny, TINY, TRIB_F32, TRIB_F32, 0, false},
        {"200 tensors of 64 f32", tiny, 200, TRIB_F32, TRIB_F32, 0, false},
    };
    check_begin("cuda times");
    printf("times, mean of %d calls in a row, bytes read and written:\n", (int)ROUNDS);
    for (size_t i = 0; i < sizeof timings / sizeof timings[0]; i++)
        time_list(&timings[i]);
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
    kernels_suite(place);
    sparse_kernels_suite(place);
    refused_launch();
    if (getenv("TRIB_TEST_LARGE") != NULL)
        kernels_large(place);
    if (getenv("TRIB_TEST_LARGE") != NULL && place->kernels->sparse != NULL)
        sparse_kernels_large(place);
    if (n > 1 && strcmp(arguments[1], "--time") == 0) {
        time_all();
        if (place->kernels->sparse != NULL)
            sparse_kernels_cuda_times(place);
    }
    MUST(cudaStreamDestroy(stream));
    MUST(cudaStreamDestroy(other));
    return check_finish("kernels_cuda_test");
}
