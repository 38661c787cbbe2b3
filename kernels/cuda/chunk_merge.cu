// chunk_unpack: slots as entries. chunk_merge: the chunks of all ranks added up, rank after rank,
// beginning with 0.
//
// Few ranks, chunks that are not small: warps walk along the slots as in merge_dense, from chunk to
// chunk; nothing is searched, for the place of a chunk's slots is known.
//
// Otherwise one block makes one tile. A tile is as many whole chunks as it can hold; then
// its slots lie side by side, and nothing is searched. A chunk that is larger than a tile is made
// by several blocks, each of which reads all its slots and takes those that are its own. With a
// decision it is made beside settle, as merge_dense is.
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/thin.cuh"
#include "kernels/cuda/warp_tile.cuh"

namespace {

// --------------------------------------------------------------------------------------- unpacking

template <typename T>
struct Slots {
    using Type = T;
    tri_chunks chunks;
    tri_entries out;
    uint32_t slots;

    __device__ uint32_t n() const
    {
        return slots;
    }
    __device__ Level level() const
    {
        return {0, 0}; // above 0
    }
    __device__ Key<T> load(uint32_t i, bool wanted) const
    {
        return load_bits<T>(wanted, chunks.value, chunks.dtype, i);
    }
    __device__ T value(uint32_t i, Key<T> bits) const
    {
        return value_of<T>(bits, chunks.value, chunks.dtype, i);
    }
    __device__ uint32_t load_index(uint32_t i, bool wanted) const
    {
        return load_if(wanted, chunks.index + i, 0);
    }
    __device__ void keep(uint32_t i, uint32_t index, T value, uint32_t at) const
    {
        if (at >= out.capacity)
            return;
        out.index[at] = i / chunks.k * chunks.chunk + index;
        put_value(out.value, out.dtype, at, value);
    }
    __device__ void drop(uint32_t, uint32_t, T, uint32_t) const
    {
    }
    __device__ void end(uint32_t found, uint32_t) const
    {
        if (out.count != nullptr)
            *out.count = found;
    }
};

// ----------------------------------------------------------------------------------------- merging

struct Rank {
    const uint16_t *index;
    const void *value;
    trib_dtype dtype;
    uint32_t k;
};

template <typename T, uint32_t Capacity>
struct ChunkJob {
    static_assert(Capacity % kAhead == 0, "kAhead of them are looked at together");
    void *out;
    const uint32_t *decision;
    uint64_t count;
    uint32_t n, chunk;
    uint32_t run; // chunks of a warp
    Divisor<T> divisor;
    Rank ranks[Capacity];
};

// What a tile holds of its chunks: all of `chunks` chunks from `chunk` on, or of one the elements
// from `first` on.
struct Part {
    uint64_t chunk;
    uint32_t chunks, first, size;
};

template <typename T>
__device__ inline Part part_of(uint64_t done, uint64_t count, uint32_t width)
{
    const uint32_t size = static_cast<uint32_t>(min(count - done, uint64_t(kTile<T>)));
    const uint64_t chunk = done / width;
    const uint32_t first = static_cast<uint32_t>(done % width);
    const uint32_t chunks = width >= kTile<T> ? 1 : (size + width - 1) / width;
    return {chunk, chunks, first, size};
}

// The slots of a tile. One without an entry has no place, for it stands at index 0, where an entry
// may be added at the same time.
template <typename T, uint32_t Capacity>
struct TileSlots {
    const ChunkJob<T, Capacity> &job;
    Part part;

    __device__ uint32_t length(uint32_t r) const
    {
        return part.chunks * job.ranks[r].k;
    }
    __device__ Loaded<T> load(uint32_t r, uint32_t at, bool wanted) const
    {
        const Rank &rank = job.ranks[r];
        const size_t i = part.chunk * rank.k + at;
        return {load_if(wanted, rank.index + i, 0),
                load_bits<T>(wanted, rank.value, rank.dtype, i)};
    }
    __device__ Addend<T> addend(uint32_t r, uint32_t at, const Loaded<T> &loaded) const
    {
        const Rank &rank = job.ranks[r];
        const size_t i = part.chunk * rank.k + at;
        const T value = value_of<T>(loaded.bits, rank.value, rank.dtype, i);
        const uint32_t place = at / rank.k * job.chunk + loaded.index - part.first;
        return {value != 0 ? place : UINT32_MAX, value};
    }
};

template <typename T, typename Out, uint32_t Capacity>
__global__ void __launch_bounds__(kThreads) chunk_merge(const ChunkJob<T, Capacity> job)
{
    __shared__ alignas(16) T sum[kTile<T>];
    const uint64_t done = static_cast<uint64_t>(blockIdx.x) * kTile<T>;
    const Part part = part_of<T>(done, job.count, job.chunk);
    const uint32_t n = job.decision == nullptr || __ldcg(job.decision) != 0 ? job.n : 0;
    begin_beside(job.decision);
    clear_tile(sum);
    __syncthreads();
    add_in_order<T>(TileSlots<T, Capacity>{job, part}, n, AddTo<T>{sum, part.size});
    store_tile(static_cast<Out *>(job.out) + done, sum, part.size, job.divisor);
    end_after_previous();
}

// The slots of a rank. One without an entry stands at index 0 of its chunk, behind its place in the
// order: it holds up nothing, and is added nowhere. So is a value that was rounded to 0 among others.
template <typename T>
struct SlotPlaces {
    const Rank &rank;
    uint32_t chunk;

    __device__ Loaded<T> load(size_t i, bool wanted) const
    {
        return {load_if(wanted, rank.index + i, 0),
                load_bits<T>(wanted, rank.value, rank.dtype, i)};
    }
    __device__ Entry<T> entry(const Loaded<T> &loaded, size_t i, bool wanted) const
    {
        const T value = value_of<T>(loaded.bits, rank.value, rank.dtype, i);
        const uint32_t begin = static_cast<uint32_t>(i) / rank.k * chunk;
        return {wanted ? begin + loaded.index : UINT32_MAX, value};
    }
};

// Chunks [from, end) of the result, by one warp.
template <typename T, typename Out, uint32_t Capacity>
__device__ inline void make_chunks(T *sum, const ChunkJob<T, Capacity> &job, uint32_t n,
                                   uint64_t from, uint64_t end)
{
    const uint64_t done = from * job.chunk;
    uint64_t left = min(end * job.chunk, job.count) - done;
    Out *out = static_cast<Out *>(job.out) + done;
    uint32_t first = static_cast<uint32_t>(done);
    Window<T> window[Capacity];
    Loaded<T> loaded[Capacity];
#pragma unroll
    for (uint32_t r = 0; r < Capacity; r++) {
        const SlotPlaces<T> places = {job.ranks[r], job.chunk};
        const uint64_t at = from * job.ranks[r].k, stop = end * job.ranks[r].k;
        const uint32_t count = r < n ? static_cast<uint32_t>(min(stop, uint64_t{UINT32_MAX})) : 0;
        loaded[r] = load_places<T>(places, at, count);
        window[r] = {static_cast<uint32_t>(at), count, {},
                     load_places<T>(places, at + kWarp, count)};
    }
#pragma unroll
    for (uint32_t r = 0; r < Capacity; r++)
        window[r].now = entry_at(SlotPlaces<T>{job.ranks[r], job.chunk}, loaded[r], window[r].at,
                                 window[r].count);
    while (left != 0) {
        const uint32_t size = static_cast<uint32_t>(min(left, uint64_t{kWarpTile<T>}));
#pragma unroll
        for (uint32_t r = 0; r < Capacity; r++) {
            if (r >= n)
                break;
            __syncwarp();
            add_window(sum, first, size, SlotPlaces<T>{job.ranks[r], job.chunk}, window[r]);
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
    chunk_walk(const ChunkJob<T, Capacity> job)
{
    __shared__ alignas(16) T sums[kThreads / kWarp][kWarpTile<T>];
    const uint32_t warp = threadIdx.x / kWarp;
    const uint64_t chunks = (job.count + job.chunk - 1) / job.chunk;
    const uint64_t from = (uint64_t{blockIdx.x} * (kThreads / kWarp) + warp) * job.run;
    const uint32_t n = job.decision == nullptr || __ldcg(job.decision) != 0 ? job.n : 0;
    begin_beside(job.decision);
    clear_warp_tile(sums[warp]);
    if (from < chunks)
        make_chunks<T, Out>(sums[warp], job, n, from, min(from + job.run, chunks));
    end_after_previous();
}

// A warp's run is about 64 KiB, or less where that leaves a part of the device without work.
template <typename T, typename Out, uint32_t Capacity>
trib_status launch_walk(ChunkJob<T, Capacity> job, trib_stream stream)
{
    constexpr uint64_t kWarps = kThreads / kWarp, kLongest = 16 * uint64_t{kWarpTile<T>};
    const uint64_t chunks = (job.count + job.chunk - 1) / job.chunk;
    const uint64_t share = (chunks + kMaxBlocks / 2 * kWarps - 1) / (kMaxBlocks / 2 * kWarps);
    job.run = static_cast<uint32_t>(
        max(uint64_t{1}, min(share, kLongest / uint64_t{job.chunk})));
    const uint32_t blocks =
        static_cast<uint32_t>((chunks + job.run * kWarps - 1) / (job.run * kWarps));
    return job.decision != nullptr
               ? launch_next(chunk_walk<T, Out, Capacity>, blocks, kThreads, job, stream)
               : launch_job(chunk_walk<T, Out, Capacity>, blocks, kThreads, job, stream);
}

template <typename T, typename Out, uint32_t Capacity>
trib_status launch_chunks(ChunkJob<T, Capacity> job, const tri_chunks *ranks, trib_stream stream)
{
    bool any = false;
    for (uint32_t r = 0; r < job.n; r++) {
        job.ranks[r] = {ranks[r].index, ranks[r].value, ranks[r].dtype, ranks[r].k};
        job.chunk = ranks[r].chunk;
        any = any || ranks[r].k != 0;
    }
    if constexpr (Capacity <= kFewLists)
        if (any && job.chunk >= kWarpTile<T> && job.chunk <= 8 * kWarpTile<T>)
            return launch_walk<T, Out, Capacity>(job, stream);
    const uint32_t tiles = tiles_of<T>(job.count);
    return job.decision != nullptr
               ? launch_next(chunk_merge<T, Out, Capacity>, tiles, kThreads, job, stream)
               : launch_job(chunk_merge<T, Out, Capacity>, tiles, kThreads, job, stream);
}

// What a caller asks for.
struct Request {
    const tri_chunks *ranks;
    int32_t n;
    size_t count;
    void *out;
    double divisor;
    const uint32_t *decision;
};

template <typename T, typename Out>
trib_status launch_ranks(const Request &of, trib_stream stream)
{
    const Divisor<T> divisor = divisor_of<T>(of.divisor);
    const uint32_t n = static_cast<uint32_t>(of.n);
    if (n <= 4)
        return launch_chunks<T, Out, 4>(
            {of.out, of.decision, of.count, n, 1, 1, divisor, {}}, of.ranks, stream);
    if (n <= kFewLists)
        return launch_chunks<T, Out, kFewLists>(
            {of.out, of.decision, of.count, n, 1, 1, divisor, {}}, of.ranks, stream);
    return launch_chunks<T, Out, TRI_MAX_LISTS>(
        {of.out, of.decision, of.count, n, 1, 1, divisor, {}}, of.ranks, stream);
}

} // namespace

trib_status tri_cuda_sparse_chunk_unpack(const struct tri_chunks *chunks, size_t count,
                                         const struct tri_entries *out, void *scratch,
                                         trib_stream stream)
{
    const uint64_t parts = (count + chunks->chunk - 1) / chunks->chunk;
    // Of 2^32 slots the last is empty, for there are fewer elements.
    const uint64_t all = parts * chunks->k;
    const uint32_t slots = all < UINT32_MAX ? static_cast<uint32_t>(all) : UINT32_MAX;
    if (out->dtype == TRIB_F64)
        return thin(Slots<double>{*chunks, *out, slots}, slots, scratch, stream);
    return thin(Slots<float>{*chunks, *out, slots}, slots, scratch, stream);
}

trib_status tri_cuda_sparse_chunk_merge(const struct tri_chunks *ranks, int32_t n, size_t count,
                                        void *out, trib_dtype out_dtype, double divisor,
                                        const uint32_t *decision, trib_stream stream)
{
    if (count == 0)
        return TRIB_OK;
    const Request job = {ranks, n, count, out, divisor, decision};
    switch (out_dtype) {
    case TRIB_F64:
        return launch_ranks<double, double>(job, stream);
    case TRIB_F16:
        return launch_ranks<float, F16>(job, stream);
    case TRIB_BF16:
        return launch_ranks<float, Bf16>(job, stream);
    default:
        return launch_ranks<float, float>(job, stream);
    }
}
