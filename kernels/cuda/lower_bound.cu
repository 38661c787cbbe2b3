// lower_bound, index_histogram, find_starts: where entries lie. One warp looks for one bound. Starts are
// not looked for: every entry knows those between the one before it and itself.
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

constexpr uint32_t kStartRows = 4; // entries of a thread

// Lanes with starts to write take turns, and the whole warp writes: where there is no entry, they may
// be very many.
__device__ inline void write_starts(uint32_t *starts, uint32_t first, uint32_t end, uint32_t entry)
{
    uint32_t writing = __ballot_sync(kAllLanes, first < end);
    for (; writing != 0; writing &= writing - 1) {
        const int lane = __ffs(static_cast<int>(writing)) - 1;
        const uint32_t begin = __shfl_sync(kAllLanes, first, lane);
        const uint32_t last = __shfl_sync(kAllLanes, end, lane);
        const uint32_t value = __shfl_sync(kAllLanes, entry, lane);
        for (uint32_t s = begin + lane_of(); s < last; s += kWarp)
            starts[s] = value;
    }
}

__global__ void __launch_bounds__(kThreads) find_starts(const tri_entries entries, uint32_t starts)
{
    wait_for_previous();
    const uint32_t n = count_of(entries);
    const uint32_t base = blockIdx.x * kStartRows * kThreads + threadIdx.x;
    uint32_t before[kStartRows], own[kStartRows];
#pragma unroll
    for (uint32_t r = 0; r < kStartRows; r++) {
        const uint32_t i = base + r * kThreads;
        before[r] = load_if(i > 0 && i <= n, entries.index + i - 1, 0);
        own[r] = load_if(i < n, entries.index + i, 0);
    }
#pragma unroll
    for (uint32_t r = 0; r < kStartRows; r++) {
        const uint32_t i = base + r * kThreads;
        const uint32_t first = i == 0 ? 0 : before[r] / TRI_STRETCH + 1;
        const uint32_t end = i < n    ? min(own[r] / TRI_STRETCH + 1, starts)
                             : i == n ? starts // behind the last entry
                                      : 0;
        write_starts(entries.starts, first, end, i);
    }
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
    constexpr uint32_t kEach = kStartRows * kThreads; // one more than entries: the end
    return launch_next_kernel<find_starts>(list.capacity / kEach + 1, kThreads, arguments, stream);
}
