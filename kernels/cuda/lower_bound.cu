// lower_bound, index_histogram, find_starts: where entries lie. One warp looks for one bound, but of the
// starts, of which there are many, one thread: neighbours read almost the same.
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

constexpr uint32_t kBoundThreads = 1024;

struct Bounds {
    uint64_t bound[TRI_MAX_LISTS + 1];
};

__global__ void __launch_bounds__(kBoundThreads)
    lower_bound(const tri_entries entries, const Bounds bounds, uint32_t n, uint32_t *positions)
{
    const uint32_t length = count_of(entries);
    for (uint32_t b = threadIdx.x / kWarp; b <= n; b += kBoundThreads / kWarp) {
        const uint32_t position = count_below(entries.index, length, bounds.bound[b]);
        if (threadIdx.x % kWarp == 0)
            positions[b] = position;
    }
}

__global__ void __launch_bounds__(kThreads)
    index_histogram(const tri_entries entries, uint32_t width, uint32_t *bins, uint32_t nbins)
{
    constexpr uint32_t kWarps = kThreads / kWarp;
    const uint32_t n = count_of(entries);
    for (uint64_t b = blockIdx.x * kWarps + threadIdx.x / kWarp; b < nbins;
         b += gridDim.x * kWarps) {
        const uint32_t begin = count_below(entries.index, n, b * width);
        const uint32_t end = begin + count_below(entries.index + begin, n - begin, (b + 1) * width);
        if (threadIdx.x % kWarp == 0)
            bins[b] = end - begin;
    }
}

__global__ void __launch_bounds__(kThreads) find_starts(const tri_entries entries, uint32_t starts)
{
    const uint32_t n = count_of(entries), i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= starts)
        return;
    const uint64_t bound = uint64_t{i} * TRI_STRETCH;
    entries.starts[i] =
        bound > UINT32_MAX ? n : first_at_least(entries.index, 0, n, static_cast<uint32_t>(bound));
}

} // namespace

trib_status tri_cuda_sparse_lower_bound(const struct tri_entries *entries, const uint64_t *bounds,
                                        int32_t n, uint32_t *positions, trib_stream stream)
{
    tri_entries list = *entries;
    Bounds all = {};
    for (int32_t b = 0; b <= n; b++)
        all.bound[b] = bounds[b];
    uint32_t count = static_cast<uint32_t>(n);
    void *arguments[] = {&list, &all, &count, &positions};
    return launch_kernel<lower_bound>(1, kBoundThreads, arguments, stream);
}

trib_status tri_cuda_sparse_index_histogram(const struct tri_entries *entries, uint32_t width,
                                            uint32_t *bins, uint32_t nbins, trib_stream stream)
{
    if (nbins == 0)
        return TRIB_OK;
    tri_entries list = *entries;
    void *arguments[] = {&list, &width, &bins, &nbins};
    return launch_kernel<index_histogram>(blocks_for(nbins, kThreads / kWarp, kMaxBlocks), kThreads,
                                          arguments, stream);
}

trib_status tri_cuda_sparse_find_starts(const struct tri_entries *entries, size_t count,
                                        trib_stream stream)
{
    tri_entries list = *entries;
    uint32_t starts = static_cast<uint32_t>(tri_starts(count));
    void *arguments[] = {&list, &starts};
    return launch_kernel<find_starts>((starts + kThreads - 1) / kThreads, kThreads, arguments,
                                      stream);
}
