// merge_dense: lists added up into an array, list after list, beginning with 0.
//
// A block makes a few tiles of the result (tile.cuh). Its warps search each list for the ends of
// the tiles' entries; then, tile after tile, the block adds list after list to the sums in shared
// memory (lists.cuh).
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/tile.cuh"

namespace {

struct Target {
    void *out;
    uint32_t *overflow;
    uint64_t first, count;
    uint32_t tiles; // of a block
};

template <typename T, typename Out, uint32_t Capacity>
__global__ void __launch_bounds__(kThreads)
    merge_dense(const Lists<Capacity> lists, const Target target, const Divisor<T> divisor)
{
    __shared__ alignas(16) T sum[kTile<T>];
    __shared__ uint32_t ends[kEnds * Capacity];
    const uint64_t done = uint64_t{blockIdx.x} * target.tiles * kTile<T>;
    const uint32_t n = lists.n;
    bool overflows = false;
    const Run run = {target.first + done, target.first + target.count, kTile<T>};
    Out *out = static_cast<Out *>(target.out) + done;
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
        overflows |= store_tile(out, sum, in.size, divisor);
        __syncthreads();
    }
    note_overflow(target.overflow, overflows);
}

template <typename T, typename Out, uint32_t Capacity>
trib_status launch_dense(Lists<Capacity> lists, Target target, double divisor, trib_stream stream)
{
    const uint32_t tiles = tiles_of<T>(target.count);
    target.tiles = max(1u, min(tiles / kMaxBlocks, kRun));
    Divisor<T> by = divisor_of<T>(divisor);
    void *arguments[] = {&lists, &target, &by};
    return launch_kernel<merge_dense<T, Out, Capacity>>((tiles + target.tiles - 1) / target.tiles,
                                                        kThreads, arguments, stream);
}

template <typename T, typename Out>
trib_status launch_lists(const tri_entries *lists, int32_t n, Target target, double divisor,
                         trib_stream stream)
{
    if (n <= static_cast<int32_t>(kFewLists))
        return launch_dense<T, Out>(lists_of<kFewLists>(lists, n), target, divisor, stream);
    return launch_dense<T, Out>(lists_of<TRI_MAX_LISTS>(lists, n), target, divisor, stream);
}

} // namespace

trib_status tri_cuda_sparse_merge_dense(const struct tri_entries *lists, int32_t n, size_t first,
                                        size_t count, const struct tri_result *out, void *scratch,
                                        trib_stream stream)
{
    (void)scratch;
    const Target target = {out->data, out->overflow, first, count, 1};
    if (count == 0)
        return TRIB_OK;
    return dispatch_float(out->dtype, [&](auto type) {
        using Out = decltype(type);
        return launch_lists<Sum<Out>, Out>(lists, n, target, out->divisor, stream);
    });
}
