/* trib_kernels: the cuda table's pack and unpack of lists, beside a copy of as many bytes: the mean of many
 * calls in a row out of a graph, so that what the host does for a launch does not count. */
#include <stdbool.h>

#include "benches/bench.h"
#include "benches/kernels.h"
#include "benches/kernels_cuda.h"
#include "benches/resnet50.h"
#include "kernels/cuda/kernels_cuda.h"

enum { MOST = 2000, ROUNDS = 100 };

struct timing {
    const char *name;
    const size_t *counts;
    size_t n;
    trib_dtype slice, bucket;
    size_t misalign; /* bytes */
    bool weighted, kept;
};

/* A list, and what it is moved by. */
struct moved {
    const struct timing *timing;
    struct tri_slice slices[MOST];
    struct tri_bucket bucket;
    void *table, *from, *to; /* the last two: of the copy */
    size_t bytes;            /* read and written */
    uint32_t *decision;
};

/* Tensors in a scattered order, each at a multiple of 512 bytes plus `misalign`. */
static size_t scatter(const struct timing *timing, struct tri_slice *slices, char *data)
{
    const size_t size = trib_dtype_size(timing->slice);
    const size_t per_unit = 16 / trib_dtype_size(timing->bucket);
    size_t at = 0, end = 0;
    for (size_t k = 0; k < timing->n; k++) {
        const size_t i = k * 89 % timing->n; /* 89 divides no n */
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

static void pack(const struct moved *m, cudaStream_t stream)
{
    const struct tri_weight half = {NULL, 0.5f}, *weight = m->timing->weighted ? &half : NULL;
    const size_t n = m->timing->n;
    BENCH_OK(m->timing->kept
                 ? tri_cuda_pack_kept(m->table, n, &m->bucket, weight, (trib_stream)stream)
                 : tri_cuda_pack(m->slices, n, &m->bucket, weight, (trib_stream)stream));
}

static void unpack(const struct moved *m, cudaStream_t stream)
{
    const size_t n = m->timing->n;
    const int weighted = m->timing->weighted;
    BENCH_OK(m->timing->kept ? tri_cuda_unpack_kept(m->table, n, &m->bucket, weighted, m->decision,
                                                    (trib_stream)stream)
                             : tri_cuda_unpack(m->slices, n, &m->bucket, weighted, m->decision,
                                               (trib_stream)stream));
}

static void copy(const struct moved *m, cudaStream_t stream)
{
    CUDA_OK(cudaMemcpyAsync(m->to, m->from, m->bytes / 2, cudaMemcpyDeviceToDevice, stream));
}

/* Mean microseconds of a call among ROUNDS of them, the second time that they run. */
static double time_calls(void (*call)(const struct moved *, cudaStream_t), const struct moved *m,
                         cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t calls = NULL;
    cudaEvent_t start, end;
    float ms = 0;
    CUDA_OK(cudaEventCreate(&start));
    CUDA_OK(cudaEventCreate(&end));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int round = 0; round < ROUNDS; round++)
        call(m, stream);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&calls, graph, 0));
    CUDA_OK(cudaGraphLaunch(calls, stream));
    CUDA_OK(cudaEventRecord(start, stream));
    CUDA_OK(cudaGraphLaunch(calls, stream));
    CUDA_OK(cudaEventRecord(end, stream));
    CUDA_OK(cudaEventSynchronize(end));
    CUDA_OK(cudaEventElapsedTime(&ms, start, end));
    CUDA_OK(cudaGraphExecDestroy(calls));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaEventDestroy(start));
    CUDA_OK(cudaEventDestroy(end));
    return (double)ms * 1e3 / ROUNDS;
}

static void print_times(const struct moved *m, cudaStream_t stream)
{
    const double packs = time_calls(pack, m, stream), unpacks = time_calls(unpack, m, stream);
    const double copies = time_calls(copy, m, stream), bytes = (double)m->bytes;
    printf("  %-44s pack %7.1f us %5.0f GB/s   unpack %7.1f us %5.0f GB/s   copy %7.1f us %5.0f "
           "GB/s\n",
           m->timing->name, packs, bytes / packs / 1e3, unpacks, bytes / unpacks / 1e3, copies,
           bytes / copies / 1e3);
}

static void time_list(const struct timing *timing, cudaStream_t stream)
{
    static struct moved m;
    const uint32_t yes = 1;
    const size_t from = trib_dtype_size(timing->slice), to = trib_dtype_size(timing->bucket);
    size_t elements = 0;
    for (size_t i = 0; i < timing->n; i++)
        elements += timing->counts[i];
    const size_t bytes = elements * from + timing->n * 1024;
    char *data = cuda_alloc(bytes);
    const size_t end = scatter(timing, m.slices, data);
    m.timing = timing;
    m.bytes = elements * (from + to);
    m.bucket = (struct tri_bucket){cuda_alloc((end + 1) * to), end + (timing->weighted ? 1 : 0),
                                   timing->bucket};
    m.table = cuda_alloc(tri_table_bytes(timing->n));
    m.from = cuda_alloc(m.bytes / 2);
    m.to = cuda_alloc(m.bytes / 2);
    m.decision = cuda_alloc(sizeof yes);
    CUDA_OK(cudaMemset(data, 0x3c, bytes));
    CUDA_OK(cudaMemset(m.from, 0x3c, m.bytes / 2));
    CUDA_OK(cudaMemcpy(m.decision, &yes, sizeof yes, cudaMemcpyDefault));
    BENCH_OK(tri_cuda_keep(m.table, m.slices, timing->n, &m.bucket, (trib_stream)stream));
    CUDA_OK(cudaDeviceSynchronize());
    print_times(&m, stream);
    void *const memory[] = {data, m.bucket.data, m.table, m.from, m.to, m.decision};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        CUDA_OK(cudaFree(memory[i]));
}

void kernels_time_lists(cudaStream_t stream)
{
    static size_t layers[RESNET50_TENSORS], tiny[MOST], thousand[MOST], odd[MOST];
    const size_t n = RESNET50_TENSORS;
    resnet50(layers);
    for (size_t i = 0; i < MOST; i++) {
        tiny[i] = 64;
        thousand[i] = 1000;
        odd[i] = 1001;
    }
    const struct timing timings[] = {
        {"161 tensors f32", layers, n, TRIB_F32, TRIB_F32, 0, false, false},
        {"161 tensors f32, kept", layers, n, TRIB_F32, TRIB_F32, 0, false, true},
        {"161 tensors f32, 4 bytes off", layers, n, TRIB_F32, TRIB_F32, 4, false, false},
        {"161 tensors bf16", layers, n, TRIB_BF16, TRIB_BF16, 0, false, false},
        {"161 tensors bf16, 2 bytes off", layers, n, TRIB_BF16, TRIB_BF16, 2, false, false},
        {"161 tensors f32, weighted", layers, n, TRIB_F32, TRIB_F32, 0, true, false},
        {"161 tensors bf16, weighted, f32 bucket", layers, n, TRIB_BF16, TRIB_F32, 0, true, false},
        {"161 tensors f16, weighted, f32 bucket", layers, n, TRIB_F16, TRIB_F32, 0, true, false},
        {"200 tensors of 64 f32", tiny, 200, TRIB_F32, TRIB_F32, 0, false, false},
        {"500 tensors of 64 f32", tiny, 500, TRIB_F32, TRIB_F32, 0, false, false},
        {"500 tensors of 64 f32, kept", tiny, 500, TRIB_F32, TRIB_F32, 0, false, true},
        {"2000 tensors of 1000 f32", thousand, 2000, TRIB_F32, TRIB_F32, 0, false, false},
        {"2000 tensors of 1000 f32, kept", thousand, 2000, TRIB_F32, TRIB_F32, 0, false, true},
        {"2000 of 1000 f32, kept, 4 bytes off", thousand, 2000, TRIB_F32, TRIB_F32, 4, false, true},
        {"2000 of 1001 f32, kept", odd, 2000, TRIB_F32, TRIB_F32, 0, false, true},
        {"2000 of 1001 bf16, kept", odd, 2000, TRIB_BF16, TRIB_BF16, 0, false, true},
        {"2000 of 1000 f32, kept, weighted", thousand, 2000, TRIB_F32, TRIB_F32, 0, true, true},
    };
    printf("times, mean of %d calls in a graph, bytes read and written:\n", (int)ROUNDS);
    for (size_t i = 0; i < sizeof timings / sizeof timings[0]; i++)
        time_list(&timings[i], stream);
}
