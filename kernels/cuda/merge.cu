// merge: the union of lists, values added up list after list, beginning with 0.
//
// A tile is as many indices as have their bits in shared memory, fewer if there are many entries.
// The bits of all lists' entries say what the union is; how many are set before an index is its
// place in the union. One launch counts the union of each block's tiles. A second adds up the
// counts of the blocks before its own and writes, in windows of the union: sums and indices are
// gathered in shared memory and written side by side.
//
// Between tiles the blocks of a long merge ask whether to leave (abort.cuh): in kernels of its own, so
// that a short merge does not pay for it. A block that has left has not counted, so those behind it
// write anywhere in `out`, but not beyond it.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/lists.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

constexpr uint32_t kMinMasks = kThreads, kMaxMasks = 2048; // of 32 bits, of a tile
constexpr uint32_t kFewEntries = 512, kManyEntries = 4096; // of a tile, on average
constexpr uint32_t kWindow = 2048;
constexpr uint32_t kMaxSpans = 4096; // blocks: each adds up the counts of those before it
constexpr size_t kTableBytes = kMaxSpans * sizeof(uint32_t); // in scratch; behind it what asks
static_assert(kTableBytes + sizeof(AbortCopy) <= kEntriesScratch, "more than the scratch");

struct Union {
    uint64_t first, count; // indices
    uint32_t *table;       // indices in the union, of each block
    tri_entries out;
    Asking asking;
};

// The cut of the indices into tiles, and the number of tiles per block. All blocks of both launches
// find the same.
struct Tiling {
    uint32_t masks; // of a tile: a multiple of kThreads
    uint32_t tiles; // of a block
};

// Tiles are as large as can be, but of not too many entries, unless there would be too few tiles to
// keep the device busy.
template <uint32_t Capacity>
__device__ inline Tiling tiling_of(const Lists<Capacity> &lists, uint64_t count, uint64_t *room)
{
    uint64_t entries = 0;
    if (threadIdx.x < kWarp) {
        for (uint32_t l = lane_of(); l < lists.n; l += kWarp)
            entries += count_of(lists.list[l]);
        for (uint32_t d = kWarp / 2; d > 0; d /= 2)
            entries += __shfl_xor_sync(kAllLanes, entries, d);
        if (lane_of() == 0)
            *room = entries;
    }
    __syncthreads();
    entries = *room;
    uint32_t masks = kMinMasks;
    for (; masks < kMaxMasks; masks *= 2) {
        const uint64_t width = uint64_t{2} * masks * kWarp;
        if (width * entries > count * kManyEntries ||
            (width * kMaxBlocks > count && width * entries > count * kFewEntries))
            break;
    }
    const uint64_t width = uint64_t{masks} * kWarp, tiles = (count + width - 1) / width;
    return {masks, static_cast<uint32_t>((tiles + gridDim.x - 1) / gridDim.x)};
}

// The i-th tile of this block. Beyond the end it is empty.
__device__ inline Run run_of(const Union &job, const Tiling &tiling, uint32_t i)
{
    const uint32_t width = tiling.masks * kWarp;
    const uint64_t done = (uint64_t{blockIdx.x} * tiling.tiles + i) * width;
    return {job.first + min(done, job.count), job.first + job.count, width};
}

__device__ inline void set_bit(uint32_t *bits, uint32_t size, uint32_t place)
{
    if (place < size)
        atomicOr(&bits[place / kWarp], 1u << place % kWarp);
}

// Set the bits of all entries in the tile; `ends` are found on the way. Barriers at both ends.
template <uint32_t Capacity>
__device__ inline void mark(uint32_t *bits, uint32_t *ends, const Lists<Capacity> &lists,
                            uint32_t masks, const Run &run)
{
    const uint32_t t = threadIdx.x;
    __syncthreads();
    for (uint32_t mask = t; mask < masks; mask += kThreads)
        bits[mask] = 0;
    find_ends(ends, lists, lists.n, run, 1);
    __syncthreads();
    const Stretches<float, Capacity> in(lists, ends, run, 0);
    for (uint32_t l = 0; l < lists.n; l += kAhead) {
        uint32_t index[kAhead], length[kAhead];
#pragma unroll
        for (uint32_t j = 0; j < kAhead; j++) {
            length[j] = l + j < lists.n ? in.length(l + j) : 0;
            index[j] = in.load_index(l + j, t, t < length[j]);
        }
#pragma unroll
        for (uint32_t j = 0; j < kAhead; j++) {
            set_bit(bits, in.size, index[j] - in.first);
            for (uint32_t at = t + kThreads; at < length[j]; at += kThreads)
                set_bit(bits, in.size, in.load_index(l + j, at, true) - in.first);
        }
    }
    __syncthreads();
}

// The number of bits set in this thread's masks: as many side by side as every other thread has.
__device__ inline uint32_t own_bits(const uint32_t *bits, uint32_t masks)
{
    const uint32_t each = masks / kThreads;
    uint32_t own = 0;
    for (uint32_t i = 0; i < each; i++)
        own += __popc(bits[threadIdx.x * each + i]);
    return own;
}

template <uint32_t Capacity, bool Asks>
__global__ void __launch_bounds__(kThreads)
    merge_count(const Lists<Capacity> lists, const Union job)
{
    __shared__ uint32_t bits[kMaxMasks], ends[kEnds * Capacity];
    __shared__ ScanRoom<kThreads> room;
    __shared__ uint64_t entries;
    [[maybe_unused]] __shared__ long long asked;
    const Tiling tiling = tiling_of(lists, job.count, &entries);
    uint32_t found = 0;
    for (uint32_t i = 0; i < tiling.tiles; i++) {
        if constexpr (Asks)
            if (block_leaves(job.asking, asked, i == 0))
                return;
        mark(bits, ends, lists, tiling.masks, run_of(job, tiling, i));
        found += own_bits(bits, tiling.masks);
    }
    found = block_sum(found, room);
    if (threadIdx.x == 0)
        job.table[blockIdx.x] = found;
}

// Count the bits set in the masks before each; returns the number of all bits.
__device__ inline uint32_t count_before(uint16_t *before, const uint32_t *bits, uint32_t masks,
                                        ScanRoom<kThreads> &room)
{
    const uint32_t each = masks / kThreads;
    uint32_t total = 0;
    uint32_t sum = block_exclusive(own_bits(bits, masks), total, room);
    for (uint32_t i = 0; i < each; i++) {
        before[threadIdx.x * each + i] = static_cast<uint16_t>(sum);
        sum += __popc(bits[threadIdx.x * each + i]);
    }
    __syncthreads();
    return total;
}

// Adds to the sums of the window of the union that begins at `begin`.
template <typename T>
struct AddToWindow {
    const uint32_t *bits;
    const uint16_t *before;
    uint32_t size, begin;
    T *sum;
    uint16_t *places;

    __device__ void operator()(const Addend<T> &addend) const
    {
        if (addend.place >= size)
            return;
        const uint32_t mask = addend.place / kWarp;
        const uint32_t below = (1u << addend.place % kWarp) - 1;
        const uint32_t at = before[mask] + __popc(bits[mask] & below) - begin;
        if (at >= kWindow)
            return;
        sum[at] += addend.value;
        places[at] = static_cast<uint16_t>(addend.place);
    }
};

template <typename T>
__device__ inline void write_window(const tri_entries &out, uint32_t first, const T *sum,
                                    const uint16_t *places, uint32_t base, uint32_t size)
{
    for (uint32_t i = threadIdx.x; i < size; i += kThreads)
        if (base + i < out.capacity) {
            out.index[base + i] = first + places[i];
            put_value(out.value, out.dtype, base + i, sum[i]);
        }
}

template <typename T, uint32_t Capacity, bool Asks>
__global__ void __launch_bounds__(kThreads, 4)
    merge_write(const Lists<Capacity> lists, const Union job)
{
    __shared__ uint32_t bits[kMaxMasks], ends[kEnds * Capacity];
    __shared__ uint16_t before[kMaxMasks], places[kWindow];
    __shared__ T sum[kWindow];
    __shared__ ScanRoom<kThreads> room;
    __shared__ uint64_t entries;
    [[maybe_unused]] __shared__ long long asked;
    const Tiling tiling = tiling_of(lists, job.count, &entries);
    uint32_t base = 0;
    for (uint32_t span = threadIdx.x; span < blockIdx.x; span += kThreads)
        base += job.table[span];
    base = block_sum(base, room);
    for (uint32_t i = 0; i < tiling.tiles; i++) {
        if constexpr (Asks)
            if (block_leaves(job.asking, asked, i == 0))
                break;
        const Run run = run_of(job, tiling, i);
        mark(bits, ends, lists, tiling.masks, run);
        const uint32_t total = count_before(before, bits, tiling.masks, room);
        const Stretches<T, Capacity> in(lists, ends, run, 0);
        for (uint32_t begin = 0; begin < total; begin += kWindow) {
            const uint32_t size = min(total - begin, kWindow);
            for (uint32_t at = threadIdx.x; at < size; at += kThreads)
                sum[at] = 0;
            __syncthreads();
            add_in_order<T>(in, lists.n, AddToWindow<T>{bits, before, in.size, begin, sum, places});
            write_window(job.out, in.first, sum, places, base + begin, size);
            __syncthreads();
        }
        base += total;
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0 && job.out.count != nullptr)
        *job.out.count = min(base, job.out.capacity);
}

// ------------------------------------------------------------------------------------- on the host

template <typename T, uint32_t Capacity, bool Asks>
trib_status launch_merge(Lists<Capacity> lists, Union job, uint32_t blocks, trib_stream stream)
{
    void *arguments[] = {&lists, &job};
    if (blocks != 1) {
        const trib_status status =
            launch_kernel<merge_count<Capacity, Asks>>(blocks, kThreads, arguments, stream);
        if (status != TRIB_OK)
            return status;
    }
    return launch_kernel<merge_write<T, Capacity, Asks>>(blocks, kThreads, arguments, stream);
}

template <uint32_t Capacity>
trib_status launch_typed(const Lists<Capacity> &lists, const Union &job, uint32_t blocks,
                         trib_stream stream)
{
    return dispatch_sum(job.out.dtype, [&](auto sum) {
        using T = decltype(sum);
        return job.asking.word == nullptr
                   ? launch_merge<T, Capacity, false>(lists, job, blocks, stream)
                   : launch_merge<T, Capacity, true>(lists, job, blocks, stream);
    });
}

} // namespace

trib_status tri_cuda_sparse_merge(const struct tri_merge *merge, const struct tri_entries *out,
                                  void *scratch, trib_stream stream)
{
    const Asking asking = asking_of(*merge, 0, static_cast<char *>(scratch) + kTableBytes);
    const Union job = {merge->first, merge->count, static_cast<uint32_t *>(scratch), *out, asking};
    const uint32_t blocks = blocks_for(merge->count, kMinMasks * kWarp, kMaxSpans);
    const trib_status status = begin_asking(asking, stream);
    if (status != TRIB_OK)
        return status;
    if (merge->n <= static_cast<int32_t>(kFewLists))
        return launch_typed(lists_of<kFewLists>(*merge), job, blocks, stream);
    return launch_typed(lists_of<TRI_MAX_LISTS>(*merge), job, blocks, stream);
}
