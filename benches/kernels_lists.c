/* trib_kernels: the cuda table's pack and unpack of lists, mean of many calls in a row. */
#include <stdbool.h>

#include "benches/bench.h"
#include "benches/kernels.h"
#include "benches/kernels_cuda.h"
#include "kernels/cuda/kernels_cuda.h"

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
                         const struct tri_bucket *bucket, const uint32_t *decision,
                         cudaStream_t stream)
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
            BENCH_OK(tri_cuda_unpack(slices, timing->n, bucket, timing->weighted, decision,
                                     (trib_stream)stream));
        else
            BENCH_OK(tri_cuda_pack(slices, timing->n, bucket, timing->weighted ? &weight : NULL,
                                   (trib_stream)stream));
    }
    MUST(cudaEventRecord(end, stream));
    MUST(cudaEventSynchronize(end));
    MUST(cudaEventElapsedTime(&ms, start, end));
    MUST(cudaEventDestroy(start));
    MUST(cudaEventDestroy(end));
    return (double)ms * 1e3 / ROUNDS;
}

static void time_list(const struct timing *timing, cudaStream_t stream)
{
    const uint32_t yes = 1;
    struct tri_slice slices[TINY];
    size_t elements = 0, bytes = 0;
    for (size_t i = 0; i < timing->n; i++) {
        elements += timing->counts[i];
        bytes += timing->counts[i] * trib_dtype_size(timing->slice) + 1024;
    }
    const size_t moved =
        elements * (trib_dtype_size(timing->slice) + trib_dtype_size(timing->bucket));
    char *data = cuda_alloc(bytes);
    const size_t end = scatter(timing, slices, data);
    const struct tri_bucket bucket = {cuda_alloc((end + 1) * trib_dtype_size(timing->bucket)),
                                      end + (timing->weighted ? 1 : 0), timing->bucket};
    uint32_t *decision = cuda_alloc(sizeof yes);
    MUST(cudaMemset(data, 0x3c, bytes));
    MUST(cudaMemcpy(decision, &yes, sizeof yes, cudaMemcpyDefault));
    MUST(cudaDeviceSynchronize());
    const double pack = time_calls(slices, timing, &bucket, NULL, stream);
    const double unpack = time_calls(slices, timing, &bucket, decision, stream);
    printf("  %-44s pack %7.1f us %5.0f GB/s   unpack %7.1f us %5.0f GB/s\n", timing->name, pack,
           (double)moved / pack / 1e3, unpack, (double)moved / unpack / 1e3);
    MUST(cudaFree(data));
    MUST(cudaFree(bucket.data));
    MUST(cudaFree(decision));
}

void kernels_time_lists(cudaStream_t stream)
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
    printf("times, mean of %d calls in a row, bytes read and written:\n", (int)ROUNDS);
    for (size_t i = 0; i < sizeof timings / sizeof timings[0]; i++)
        time_list(&timings[i], stream);
}
