// commit: may unpack write?
#include <cstdint>

#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernels_cuda.h"
#include "kernels/cuda/launch.cuh"

namespace {

// The abort flag and the counter are memory that host threads use at the same time.
__device__ inline uint32_t load_pinned(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ inline void store_pinned(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

// This stream is the only writer.
__device__ inline void count(uint32_t *counter)
{
    store_pinned(counter, load_pinned(counter) + 1);
}

template <typename T>
__global__ void commit(uint32_t *decision, const uint32_t *abort_flag, tri_list_counts *counts,
                       const T *total, float *total_out)
{
    // Read once: decision and total_out must agree.
    const bool aborted = load_pinned(abort_flag) != 0;
    bool go = !aborted, none = false;
    if (total != nullptr) {
        const T sum = *total;
        go = go && isfinite(sum) && sum > T(0);
        none = !aborted && sum == T(0);
        if (total_out != nullptr)
            *total_out = go || none ? static_cast<float>(sum) : nanf("");
    }
    *decision = go ? 1 : 0;
    if (go)
        count(&counts->committed);
    else if (!aborted && !none)
        count(&counts->refused);
}

} // namespace

trib_status tri_cuda_commit(uint32_t *decision, const uint32_t *abort_flag,
                            struct tri_list_counts *counts, const void *total,
                            trib_dtype total_dtype, float *total_out, trib_stream stream)
{
    void *arguments[] = {&decision, &abort_flag, &counts, &total, &total_out};
    return dispatch_sum(total_dtype, [&](auto sum) {
        return launch_kernel<commit<decltype(sum)>>(1, 1, arguments, stream);
    });
}
