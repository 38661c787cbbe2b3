// clear_result: the result of a call that is not applied is 0.
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

struct ClearJob {
    unsigned char *dense;
    size_t bytes;
    uint32_t *count;
    const uint32_t *decision;
};

// In 16 bytes, but for what lies before the first such unit and behind the last.
__global__ void __launch_bounds__(kThreads) clear_result(const ClearJob job)
{
    if (*job.decision != 0)
        return;
    const size_t place = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
    const size_t misplaced = reinterpret_cast<uintptr_t>(job.dense) % 16;
    const size_t head = min((16 - misplaced) % 16, job.bytes), units = (job.bytes - head) / 16;
    uint4 *to = reinterpret_cast<uint4 *>(job.dense + head);
    for (size_t i = place; i < units; i += static_cast<size_t>(gridDim.x) * kThreads)
        to[i] = uint4{};
    if (place < head)
        job.dense[place] = 0;
    const size_t tail = head + units * 16 + place;
    if (place < 16 && tail < job.bytes)
        job.dense[tail] = 0;
    if (place == 0 && job.count != nullptr)
        *job.count = 0;
}

} // namespace

// Few blocks, for there is next to never anything to do.
trib_status tri_cuda_sparse_clear_result(void *dense, size_t bytes, uint32_t *count,
                                         const uint32_t *decision, trib_stream stream)
{
    const ClearJob job = {static_cast<unsigned char *>(dense), dense == nullptr ? 0 : bytes, count,
                          decision};
    return launch_job<clear_result>(blocks_for(job.bytes, kThreads * 64, kMaxBlocks / 4), kThreads,
                                    job, stream);
}
