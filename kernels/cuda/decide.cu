// decide: is this call applied?
#include "kernels/cuda/abort.cuh"
#include "kernels/cuda/sparse.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

__device__ inline uint32_t load_acquire(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

constexpr uint32_t kReaders = 64;

struct Packets {
    const tri_header *of[TRI_MAX_LISTS]; // of all ranks; or of[0] is NULL
};

// One thread per header, and a warp of its own for the abort flag, which lies in the host's memory:
// so that all are on their way at once.
__global__ void __launch_bounds__(kReaders + kWarp)
    decide(const tri_decide job, const Packets packets)
{
    wait_for_previous();
    let_next_start();
    bool aborted = false, differs = false, anew = false, nonfinite = false;
    if (threadIdx.x == kReaders)
        aborted = load_acquire(job.abort_flag) != 0;
    for (uint32_t r = threadIdx.x; threadIdx.x < kReaders && r < static_cast<uint32_t>(job.n);
         r += kReaders) {
        const tri_header *header = reinterpret_cast<const tri_header *>(
            static_cast<const char *>(job.headers) + r * job.stride);
        const uint32_t signature = header->signature, found = header->nonfinite;
        const uint32_t count = header->count;
        if (packets.of[0] != nullptr)
            anew = anew || load_acquire(&packets.of[r]->calls) != header->calls;
        differs = differs || signature != job.signature || count > job.capacity;
        nonfinite = nonfinite || found != 0;
    }
    const bool any_aborted = __syncthreads_or(aborted) != 0;
    const bool any_differs = __syncthreads_or(differs) != 0;
    const bool any_anew = __syncthreads_or(anew) != 0;
    const bool any_nonfinite = __syncthreads_or(nonfinite) != 0;
    if (threadIdx.x != 0)
        return;
    const bool overflows = job.overflow != nullptr && *job.overflow != 0;
    const uint32_t outcome = any_aborted     ? TRI_OUTCOME_ABORTED
                             : any_differs   ? TRI_OUTCOME_MISMATCH
                             : any_anew      ? TRI_OUTCOME_ABORTED
                             : any_nonfinite ? TRI_OUTCOME_NON_FINITE
                             : overflows     ? TRI_OUTCOME_OVERFLOW
                                             : TRI_OUTCOME_APPLIED;
    const uint32_t applies = outcome == TRI_OUTCOME_APPLIED;
    const uint32_t flips = job.revokes ? *job.decision : applies;
    *job.outcome = outcome;
    *job.decision = applies;
    if (job.current != nullptr)
        *job.current ^= flips;
    if (job.velocity != nullptr)
        *job.velocity ^= flips;
    if (job.overflow != nullptr)
        *job.overflow = 0;
    if (any_aborted)
        await_others(job.abort_flag);
}

} // namespace

trib_status tri_cuda_sparse_decide(const struct tri_decide *job, trib_stream stream)
{
    tri_decide parameters = *job;
    Packets packets = {};
    for (int32_t r = 0; r < job->n && job->packets != nullptr; r++)
        packets.of[r] = job->packets[r];
    void *arguments[] = {&parameters, &packets};
    return launch_next_kernel<decide>(1, kReaders + kWarp, arguments, stream);
}
