// merge_dense: lists added up into an array, list after list, beginning with 0.
//
// Few lists: a warp makes a run of small tiles (warp_tile.cuh). It searches the lists once, for
// where its run begins, and walks along them with a window on each. No warp waits for another.
//
// Many lists, for whose windows there are not the registers: a block makes a few large tiles
// (tile.cuh). Its warps search each list for the ends of the tiles' entries; then, tile after tile,
// the block adds list after list to the sums in shared memory (lists.cuh).
//
// Beside settle. A call's last merge has a decision, and in front of it in the stream there is
// settle, or commit, or a kernel that has nothing to do with what is read here. Settle says at its
// start that the next may start, and this is launched so that it does: the one writes the residual
// here and there, the other writes the result, and both only read the lists and the decision.
// Settle itself started after all that came before had ended, so that is there for a kernel that
// starts after settle has. Commit, which says nothing, has ended when this starts, with its
// decision behind a fence. For the end of settle the last block alone waits, before it ends: so
// this kernel ends after settle, what follows in the stream comes after both, and no block keeps
// others from the device in the meantime.
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/warp_tile.cuh"

namespace {

constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kLongestRun = 16; // tiles of a warp

struct Target {
    void *out;
    const uint32_t *decision;
    uint64_t first, count;
    uint32_t tiles; // of a warp, or of a block
};

template <typename T, uint32_t Capacity>
struct DenseJob {
    Lists<Capacity> lists;
    Target target;
    Divisor<T> divisor;
};

// How many lists count. Past the first cache: a kernel that ended just now may have written it.
template <typename T, uint32_t Capacity>
__device__ inline uint32_t lists_that_count(const DenseJob<T, Capacity> &job)
{
    const uint32_t *decision = job.target.decision;
    return decision == nullptr || __ldcg(decision) != 0 ? job.lists.n : 0;
}

// --------------------------------------------------------------------------------------- few lists

// Tiles [tile, end) of the result, by one warp.
template <typename T, typename Out, uint32_t Capacity>
__device__ inline void make_run(T *sum, const DenseJob<T, Capacity> &job, uint32_t n,
                                uint32_t tile, uint32_t end)
{
    const Target &target = job.target;
    const uint64_t done = uint64_t{tile} * kWarpTile<T>;
    Out *out = static_cast<Out *>(target.out) + done;
    uint32_t first = static_cast<uint32_t>(target.first + done), at[Capacity];
    uint64_t left = target.count - done;
    Window<T> window[Capacity];
    Loaded<T> loaded[Capacity];
    seek(at, job.lists, n, first);
#pragma unroll
    for (uint32_t l = 0; l < Capacity; l++) {
        const ListPlaces<T> places = {job.lists.list[l]};
        const uint32_t count = l < n ? count_of(job.lists.list[l]) : 0;
        loaded[l] = load_places<T>(places, at[l], count);
        window[l] = {at[l], count, {},
                     load_places<T>(places, uint64_t{at[l]} + kWarp, count)};
    }
#pragma unroll
    for (uint32_t l = 0; l < Capacity; l++)
        window[l].now = entry_at(ListPlaces<T>{job.lists.list[l]}, loaded[l], at[l],
                                 window[l].count);
    for (; tile < end; tile++) {
        const uint32_t size = static_cast<uint32_t>(min(left, uint64_t{kWarpTile<T>}));
#pragma unroll
        for (uint32_t l = 0; l < Capacity; l++) {
            if (l >= n)
                break;
            __syncwarp();
            add_window(sum, first, size, ListPlaces<T>{job.lists.list[l]}, window[l]);
        }
        __syncwarp();
        move_warp_tile(out, sum, size, job.divisor);
        out += kWarpTile<T>;
        first += size;
        left -= size;
    }
}

template <typename T, typename Out, uint32_t Capacity>
__global__ void __launch_bounds__(kThreads, kBlocks<T, Capacity>)
    merge_few(const DenseJob<T, Capacity> job)
{
    __shared__ alignas(16) T sums[kWarps][kWarpTile<T>];
    const uint32_t warp = threadIdx.x / kWarp, run = job.target.tiles;
    const uint32_t tiles =
        static_cast<uint32_t>((job.target.count + kWarpTile<T> - 1) / kWarpTile<T>);
    const uint32_t tile = (blockIdx.x * kWarps + warp) * run;
    begin_beside(job.target.decision);
    clear_warp_tile(sums[warp]);
    if (tile < tiles)
        make_run<T, Out>(sums[warp], job, lists_that_count(job), tile, min(tile + run, tiles));
    end_after_previous();
}

// -------------------------------------------------------------------------------------- many lists

template <typename T, typename Out, uint32_t Capacity>
__global__ void __launch_bounds__(kThreads) merge_many(const DenseJob<T, Capacity> job)
{
    __shared__ alignas(16) T sum[kTile<T>];
    __shared__ uint32_t ends[kEnds * Capacity];
    const Lists<Capacity> &lists = job.lists;
    const Target &target = job.target;
    const uint64_t done = uint64_t{blockIdx.x} * target.tiles * kTile<T>;
    const uint32_t n = lists_that_count(job);
    const Run run = {target.first + done, target.first + target.count, kTile<T>};
    Out *out = static_cast<Out *>(target.out) + done;
    begin_beside(target.decision);
    find_ends(ends, lists, n, run, target.tiles);
    __syncthreads();
    Group<T> group = load_group<T>(Stretches<T, Capacity>(lists, ends, run, 0), n, 0);
    for (uint32_t i = 0; i < target.tiles; i++, out += kTile<T>) {
        const Stretches<T, Capacity> in(lists, ends + i, run, i);
        const AddTo<T> add = {sum, in.size};
        clear_tile(sum);
        __syncthreads();
        add_group(in, n, 0, group, add);
        add_in_order<T>(in, n, add, kAhead);
        if (i + 1 < target.tiles) // on their way while this tile is written
            group = load_group<T>(Stretches<T, Capacity>(lists, ends + i + 1, run, i + 1), n, 0);
        store_tile(out, sum, in.size, job.divisor);
        __syncthreads();
    }
    end_after_previous();
}

// --------------------------------------------------------------------------------------- launching

template <typename T, uint32_t Capacity>
trib_status launch_dense(void (*kernel)(DenseJob<T, Capacity>), const DenseJob<T, Capacity> &job,
                         uint64_t blocks, trib_stream stream)
{
    const uint32_t all = static_cast<uint32_t>(blocks);
    return job.target.decision != nullptr ? launch_next(kernel, all, kThreads, job, stream)
                                          : launch_job(kernel, all, kThreads, job, stream);
}

// A run as long as it can be with work for all of the device.
template <typename T, typename Out, uint32_t Capacity>
trib_status launch_few(const tri_entries *lists, int32_t n, Target target, double divisor,
                       trib_stream stream)
{
    const uint64_t tiles = (target.count + kWarpTile<T> - 1) / kWarpTile<T>;
    const uint64_t warps = kMaxBlocks / 2 * kWarps;
    target.tiles = static_cast<uint32_t>(min((tiles + warps - 1) / warps, uint64_t{kLongestRun}));
    const uint64_t a_block = uint64_t{target.tiles} * kWarps;
    return launch_dense<T, Capacity>(
        merge_few<T, Out, Capacity>,
        {lists_of<Capacity>(lists, n), target, divisor_of<T>(divisor)},
        (tiles + a_block - 1) / a_block, stream);
}

template <typename T, typename Out>
trib_status launch_many(const tri_entries *lists, int32_t n, Target target, double divisor,
                        trib_stream stream)
{
    const uint32_t tiles = tiles_of<T>(target.count);
    target.tiles = max(1u, min(tiles / kMaxBlocks, kRun));
    return launch_dense<T, TRI_MAX_LISTS>(
        merge_many<T, Out, TRI_MAX_LISTS>,
        {lists_of<TRI_MAX_LISTS>(lists, n), target, divisor_of<T>(divisor)},
        (tiles + target.tiles - 1) / target.tiles, stream);
}

template <typename T, typename Out>
trib_status launch_lists(const tri_entries *lists, int32_t n, Target target, double divisor,
                         trib_stream stream)
{
    if (n <= 4)
        return launch_few<T, Out, 4>(lists, n, target, divisor, stream);
    if (n <= static_cast<int32_t>(kFewLists))
        return launch_few<T, Out, kFewLists>(lists, n, target, divisor, stream);
    return launch_many<T, Out>(lists, n, target, divisor, stream);
}

} // namespace

trib_status tri_cuda_sparse_merge_dense(const struct tri_entries *lists, int32_t n, size_t first,
                                        size_t count, void *out, trib_dtype out_dtype,
                                        double divisor, const uint32_t *decision, void *scratch,
                                        trib_stream stream)
{
    (void)scratch;
    const Target target = {out, decision, first, count, 1};
    if (count == 0)
        return TRIB_OK;
    switch (out_dtype) {
    case TRIB_F64:
        return launch_lists<double, double>(lists, n, target, divisor, stream);
    case TRIB_F16:
        return launch_lists<float, F16>(lists, n, target, divisor, stream);
    case TRIB_BF16:
        return launch_lists<float, Bf16>(lists, n, target, divisor, stream);
    default:
        return launch_lists<float, float>(lists, n, target, divisor, stream);
    }
}
