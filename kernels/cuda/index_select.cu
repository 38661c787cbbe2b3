// index_select: the values of acc at given indices.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

constexpr uint32_t kDeep = 4; // loads that a thread has in flight

template <typename T>
__global__ void __launch_bounds__(kThreads)
    index_select(const tri_accumulator acc, const tri_entries entries)
{
    const T *sum = sum_of<T>(acc);
    const uint32_t n = count_of(entries);
    const size_t stride = static_cast<size_t>(gridDim.x) * kThreads * kDeep;
    for (size_t base = static_cast<size_t>(blockIdx.x) * kThreads * kDeep; base < n;
         base += stride) {
        uint32_t index[kDeep];
        T value[kDeep];
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            index[j] = i < n ? entries.index[i] : UINT32_MAX;
        }
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++)
            value[j] = index[j] < acc.count ? sum[index[j]] : T(0);
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            if (i < n)
                put_entry(entries.value, entries.dtype, i, value[j]);
        }
    }
}

} // namespace

trib_status tri_cuda_sparse_index_select(const struct tri_accumulator *acc,
                                         const struct tri_entries *entries, trib_stream stream)
{
    if (entries->capacity == 0)
        return TRIB_OK;
    tri_accumulator from = *acc;
    tri_entries list = *entries;
    void *arguments[] = {&from, &list};
    return dispatch_sum(acc->dtype, [&](auto sum) {
        return launch_kernel<index_select<decltype(sum)>>(
            blocks_for(list.capacity, kThreads * kDeep, kMaxBlocks), kThreads, arguments, stream);
    });
}
