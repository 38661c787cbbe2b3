#include "tests/push/gpus.h"

#include <string.h>

#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/conformance/cuda_peers.h"
#include "tests/conformance/kernels/kernels.h"

bool gpus_open(struct gpus *gpus, int each, const char **why)
{
    memset(gpus, 0, sizeof *gpus);
    *why = "fewer than two GPUs";
    if (cudaGetDeviceCount(&gpus->devices) != cudaSuccess || gpus->devices < 2)
        return false;
    if (gpus->devices * each > TRI_PUSH_RANKS)
        gpus->devices = TRI_PUSH_RANKS / each;
    *why = "the GPUs cannot map each other's memory";
    if (!cuda_map_peers(gpus->devices))
        return false;
    gpus->each = each;
    gpus->size = gpus->devices * each;
    gpus->capacity = tri_push_chunks(GPUS_MOST, TRIB_U8);
    gpus->patience_ns = GPUS_PATIENCE_MS * UINT64_C(1000000);
    MUST(cudaHostAlloc((void **)&gpus->abort_flag, sizeof *gpus->abort_flag,
                       cudaHostAllocPortable | cudaHostAllocMapped));
    for (int r = 0; r < gpus->size; r++) {
        gpus->scratch[r] = gpus_alloc(r / each, tri_push_scratch_bytes(gpus->size, gpus->capacity));
        gpus->control[r] = gpus_alloc(r / each, sizeof *gpus->control[r]);
    }
    for (int d = 0; d < gpus->devices; d++) {
        MUST(cudaSetDevice(d));
        MUST(cudaStreamCreateWithFlags(&gpus->streams[d], cudaStreamNonBlocking));
        tri_kernels_cuda.preload();
    }
    gpus_renew(gpus);
    return true;
}

void gpus_renew(struct gpus *gpus)
{
    *gpus->abort_flag = 0;
    for (int r = 0; r < gpus->size; r++) {
        MUST(cudaSetDevice(r / gpus->each));
        MUST(cudaMemset(gpus->scratch[r], TRI_PUSH_EMPTY_BYTE,
                        tri_push_scratch_bytes(gpus->size, gpus->capacity)));
        MUST(cudaMemset(gpus->control[r], 0, sizeof *gpus->control[r]));
        MUST(cudaDeviceSynchronize());
    }
}

void gpus_close(struct gpus *gpus)
{
    for (int d = 0; d < gpus->devices; d++) {
        MUST(cudaSetDevice(d));
        MUST(cudaDeviceSynchronize());
    }
    for (int r = 0; r < gpus->size; r++) {
        MUST(cudaSetDevice(r / gpus->each));
        MUST(cudaFree(gpus->scratch[r]));
        MUST(cudaFree(gpus->control[r]));
    }
    for (int d = 0; d < gpus->devices; d++)
        MUST(cudaStreamDestroy(gpus->streams[d]));
    MUST(cudaFreeHost(gpus->abort_flag));
}

static void queue(const struct gpus *gpus, const struct tri_push_rank *here, size_t n,
                  struct gpus_call of, cudaStream_t stream)
{
    const bool copies = tri_push_copies(of.kind);
    struct tri_push call = {.here = here,
                            .n = n,
                            .size = gpus->size,
                            .capacity = gpus->capacity,
                            .count = of.count * (copies ? trib_dtype_size(of.dtype) : 1),
                            .dtype = copies ? TRIB_U8 : of.dtype,
                            .op = of.op,
                            .kind = of.kind,
                            .root = of.root,
                            .abort_flag = gpus->abort_flag,
                            .patience_ns = gpus->patience_ns};
    memcpy(call.scratch, gpus->scratch, sizeof call.scratch);
    CHECK_OK(tri_kernels_cuda.push(&call, (trib_stream)stream));
}

void gpus_push(const struct gpus *gpus, int device, const void *const *send, void *const *recv,
               struct gpus_call call)
{
    struct tri_push_rank here[TRI_PUSH_RANKS];
    for (int i = 0; i < gpus->each; i++) {
        const int r = device * gpus->each + i;
        here[i] = (struct tri_push_rank){send[r], recv[r], gpus->control[r], r};
    }
    queue(gpus, here, (size_t)gpus->each, call, gpus->streams[device]);
}

void gpus_push_one(const struct gpus *gpus, int rank, const void *send, void *recv,
                   struct gpus_call call, cudaStream_t stream)
{
    const struct tri_push_rank here = {send, recv, gpus->control[rank], rank};
    queue(gpus, &here, 1, call, stream);
}

void *gpus_alloc(int device, size_t bytes)
{
    void *data = NULL;
    MUST(cudaSetDevice(device));
    MUST(cudaMalloc(&data, bytes));
    return data;
}

void gpus_wait(const struct gpus *gpus, int device)
{
    MUST(cudaStreamSynchronize(gpus->streams[device]));
}

bool gpus_same(const void *found, const void *expected, size_t i, trib_dtype dtype)
{
    const size_t size = trib_dtype_size(dtype);
    const char *a = (const char *)found + i * size, *b = (const char *)expected + i * size;
    if (memcmp(a, b, size) == 0)
        return true;
    if (dtype > TRIB_F64)
        return false;
    const double x = kernels_get(a, dtype), y = kernels_get(b, dtype);
    return x != x && y != y;
}
