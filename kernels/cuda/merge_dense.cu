// merge_dense: lists added up into an array, list after list, beginning with 0.
//
// A block makes a few tiles of the result (tile.cuh). Its warps search each list for the ends of
// the tiles' entries, or its threads look them up in the lists' starts; then, tile after tile, the
// block adds list after list to the sums in shared memory (lists.cuh). Before that a block of a long merge asks whether to leave (abort.cuh): between
// tiles it would need 16 registers more, and a third of the blocks would find no room.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/tile.cuh"

namespace {

struct Target {
    void *out;
    uint32_t *overflow;
    uint64_t first, count;
    uint32_t tiles; // of a block
    Asking asking;
};

template <typename T, typename Out, uint32_t Capacity, bool Starts>
__global__ void __launch_bounds__(kThreads)
    merge_dense(const Lists<Capacity> lists, const Target target, const Divisor<T> divisor)
{
    __shared__ alignas(16) T sum[kTile<T>];
    __shared__ uint32_t ends[kEnds * Capacity];
    let_next_start();
    if (block_leaves(target.asking))
        return;
    static_assert(kTile<T> % TRI_STRETCH == 0, "a tile begins at a start");
    const uint64_t done = uint64_t{blockIdx.x} * target.tiles * kTile<T>;
    const uint32_t n = lists.n;
    bool overflows = false;
    const Run run = {target.first + done, target.first + target.count, kTile<T>};
    Out *out = static_cast<Out *>(target.out) + done;
    if constexpr (Starts)
        load_ends(ends, lists, n, run, target.tiles);
    else
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
    const uint32_t blocks = (tiles + target.tiles - 1) / target.tiles;
    if (lists.list[0].starts == nullptr)
        return launch_kernel<merge_dense<T, Out, Capacity, false>>(blocks, kThreads, arguments,
                                                                   stream);
    return launch_kernel<merge_dense<T, Out, Capacity, true>>(blocks, kThreads, arguments, stream);
}

template <typename T, typename Out>
trib_status launch_lists(const tri_merge &merge, Target target, double divisor, trib_stream stream)
{
    if (merge.n <= static_cast<int32_t>(kFewLists))
        return launch_dense<T, Out>(lists_of<kFewLists>(merge), target, divisor, stream);
    return launch_dense<T, Out>(lists_of<TRI_MAX_LISTS>(merge), target, divisor, stream);
}

} // namespace

trib_status tri_cuda_sparse_merge_dense(const struct tri_merge *merge, const struct tri_result *out,
                                        void *scratch, trib_stream stream)
{
    const uint64_t result = merge->count * trib_dtype_size(out->dtype);
    const Target target = {out->data,
                           out->overflow,
                           merge->first,
                           merge->count,
                           1,
                           asking_of(*merge, result, scratch)};
    if (merge->count == 0)
        return TRIB_OK;
    const trib_status status = begin_asking(target.asking, stream);
    if (status != TRIB_OK)
        return status;
    return dispatch_float(out->dtype, [&](auto type) {
        using Out = decltype(type);
        return launch_lists<Sum<Out>, Out>(*merge, target, out->divisor, stream);
    });
}
