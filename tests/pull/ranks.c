#include "tests/pull/ranks.h"

#include <string.h>

#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/conformance/cuda_peers.h"

enum { SCRATCH = 4 << 20 };

bool ranks_open(struct ranks *ranks, int devices, int each, const char **why)
{
    memset(ranks, 0, sizeof *ranks);
    *why = "there is no GPU";
    if (cudaGetDeviceCount(&ranks->devices) != cudaSuccess || ranks->devices == 0)
        return false;
    ranks->devices = ranks->devices < devices ? ranks->devices : devices;
    if (ranks->devices * each > TRI_PULL_RANKS)
        ranks->devices = TRI_PULL_RANKS / each;
    *why = "there is one GPU";
    if (ranks->devices * each < 2)
        return false;
    *why = "the GPUs cannot map each other's memory";
    if (!cuda_map_peers(ranks->devices))
        return false;
    ranks->each = each;
    ranks->size = ranks->devices * each;
    ranks->scratch_bytes = SCRATCH;
    ranks->patience_ns = RANKS_PATIENCE_MS * UINT64_C(1000000);
    MUST(cudaHostAlloc((void **)&ranks->abort_flag, sizeof *ranks->abort_flag,
                       cudaHostAllocPortable | cudaHostAllocMapped));
    for (int r = 0; r < ranks->size; r++) {
        ranks->control[r] = ranks_alloc(ranks, r, sizeof *ranks->control[r]);
        ranks->scratch[r] = ranks_alloc(ranks, r, SCRATCH);
        MUST(cudaMemset(ranks->scratch[r], 0xa5, SCRATCH));
    }
    for (int d = 0; d < ranks->devices; d++) {
        MUST(cudaSetDevice(d));
        MUST(cudaStreamCreateWithFlags(&ranks->streams[d], cudaStreamNonBlocking));
        tri_kernels_cuda.preload();
    }
    ranks_renew(ranks);
    return true;
}

void ranks_renew(struct ranks *ranks)
{
    *ranks->abort_flag = 0;
    for (int r = 0; r < ranks->size; r++) {
        MUST(cudaSetDevice(r / ranks->each));
        MUST(cudaMemset(ranks->control[r], 0, sizeof *ranks->control[r]));
        MUST(cudaDeviceSynchronize());
    }
}

void ranks_close(struct ranks *ranks)
{
    ranks_wait(ranks);
    for (int r = 0; r < ranks->size; r++) {
        MUST(cudaSetDevice(r / ranks->each));
        MUST(cudaFree(ranks->control[r]));
        MUST(cudaFree(ranks->scratch[r]));
    }
    for (int d = 0; d < ranks->devices; d++)
        MUST(cudaStreamDestroy(ranks->streams[d]));
    MUST(cudaFreeHost(ranks->abort_flag));
}

void ranks_pull(const struct ranks *ranks, int device, const void *const *send, void *const *recv,
                const struct ranks_call *call)
{
    struct tri_pull_rank here[TRI_PULL_RANKS];
    struct tri_pull job = {.here = here,
                           .n = (size_t)ranks->each,
                           .scratch_bytes = ranks->scratch_bytes,
                           .size = ranks->size,
                           .blocks = call->blocks,
                           .kind = call->kind,
                           .root = call->root,
                           .count = call->count,
                           .dtype = call->dtype,
                           .op = call->op,
                           .way = call->way,
                           .abort_flag = ranks->abort_flag,
                           .patience_ns = ranks->patience_ns};
    memcpy(job.control, ranks->control, sizeof job.control);
    memcpy(job.scratch, ranks->scratch, sizeof job.scratch);
    for (int i = 0; i < ranks->each; i++) {
        const int r = device * ranks->each + i;
        here[i] =
            (struct tri_pull_rank){.send = send[r],
                                   .recv = recv[r],
                                   .mapped = r != call->unmapped,
                                   .rank = r,
                                   .list = {.table = call->tables != NULL ? call->tables[r] : NULL,
                                            .slices = call->slices}};
    }
    MUST(cudaSetDevice(device));
    CHECK_OK(tri_kernels_cuda.pull(&job, (trib_stream)ranks->streams[device]));
}

void ranks_pull_all(const struct ranks *ranks, const void *const *send, void *const *recv,
                    const struct ranks_call *call)
{
    for (int d = 0; d < ranks->devices; d++)
        ranks_pull(ranks, d, send, recv, call);
}

void *ranks_alloc(const struct ranks *ranks, int rank, size_t bytes)
{
    void *data = NULL;
    MUST(cudaSetDevice(rank / ranks->each));
    MUST(cudaMalloc(&data, bytes));
    return data;
}

void ranks_copy(const struct ranks *ranks, int rank, void *to, const void *from, size_t bytes)
{
    MUST(cudaSetDevice(rank / ranks->each));
    MUST(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ranks->streams[rank / ranks->each]));
}

void ranks_wait(const struct ranks *ranks)
{
    for (int d = 0; d < ranks->devices; d++)
        MUST(cudaStreamSynchronize(ranks->streams[d]));
}
