// commit: may unpack write?
#include <cstdint>

#include "kernels/cuda/abort.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/cuda/launch.cuh"

namespace {

// The abort flag and the counts are memory that host threads use at the same time.
__device__ inline uint32_t load_pinned(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline uint32_t peek_pinned(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void poke_pinned(uint32_t *word, uint32_t value)
{
    asm volatile("st.relaxed.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

__device__ inline void store_pinned(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

constexpr uint32_t kThreads = 128;

// Unpack may begin meanwhile, and waits for the end. One thread per call. Words of the calls and of the total are this device's.
template <typename T>
__global__ void __launch_bounds__(kThreads) commit(const tri_commit job)
{
    let_next_start();
    // All that crosses the bus is asked for at once. Only commits, one behind the other, write the
    // counts.
    const bool asks = threadIdx.x == 0;
    const uint32_t committed = asks ? peek_pinned(&job.counts->committed) : 0;
    const uint32_t refused = asks ? peek_pinned(&job.counts->refused) : 0;
    const uint32_t flag = asks ? load_pinned(job.abort_flag) : 0;
    bool applied = true;
    for (size_t i = threadIdx.x; i < job.ncalls; i += kThreads)
        applied = applied && *job.calls[i].decision != 0;
    applied = __syncthreads_and(applied) != 0;
    // Read once: all that is written must agree.
    const bool aborted = __syncthreads_or(flag != 0) != 0;
    const T total = job.total == nullptr ? T(1) : *static_cast<const T *>(job.total);
    const bool valid = isfinite(total) && total >= T(0);
    const uint32_t outcome = aborted                    ? TRI_COMMIT_ABORTED
                             : !(valid && total > T(0)) ? TRI_COMMIT_WEIGHTS
                             : !applied                 ? TRI_COMMIT_CALL
                                                        : TRI_COMMIT_DONE;
    for (size_t i = threadIdx.x; outcome != TRI_COMMIT_DONE && i < job.ncalls; i += kThreads) {
        const tri_revocable call = job.calls[i];
        const uint32_t flips = *call.decision;
        *call.current ^= flips;
        if (call.velocity != nullptr)
            *call.velocity ^= flips;
        *call.decision = 0;
    }
    if (threadIdx.x != 0)
        return;
    if (job.total_out != nullptr && job.total != nullptr)
        *job.total_out = !aborted && valid ? static_cast<float>(total) : nanf("");
    *job.decision = outcome == TRI_COMMIT_DONE;
    if (outcome == TRI_COMMIT_DONE)
        poke_pinned(&job.counts->committed, committed + 1);
    else if (!aborted && (!valid || !applied))
        poke_pinned(&job.counts->refused, refused + 1);
    store_pinned(&job.counts->newest, outcome);
    if (aborted)
        await_others(job.abort_flag);
}

struct Forget {
    const tri_revocable *calls;
    size_t n;
};

__global__ void __launch_bounds__(kThreads) forget(const Forget job)
{
    for (size_t i = threadIdx.x; i < job.n; i += kThreads)
        *job.calls[i].decision = 0;
}

} // namespace

trib_status tri_cuda_forget(const struct tri_revocable *calls, size_t n, trib_stream stream)
{
    return launch_job<forget>(1, kThreads, Forget{calls, n}, stream);
}

trib_status tri_cuda_commit(const struct tri_commit *job, trib_stream stream)
{
    return dispatch_sum(job->total_dtype, [&](auto sum) {
        return launch_job<commit<decltype(sum)>>(1, kThreads, *job, stream);
    });
}
