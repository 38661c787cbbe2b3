// chunk_unpack: slots as entries. chunk_merge: the chunks of all ranks added up, rank after rank,
// beginning with 0.
//
// As in merge_dense one block makes one tile. A tile is as many whole chunks as it can hold; then
// its slots lie side by side, and nothing is searched. A chunk that is larger than a tile is made
// by several blocks, each of which reads all its slots and takes those that are its own.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/partition.cuh"
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/tile.cuh"

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
            *out.count = min(found, out.capacity);
    }
};

// ----------------------------------------------------------------------------------------- merging

struct Rank {
    const uint16_t *index;
    const void *value;
    trib_dtype dtype;
    uint32_t k;
};

template <uint32_t Capacity>
struct ChunkJob {
    static_assert(Capacity % kAhead == 0, "kAhead of them are looked at together");
    void *out;
    uint32_t *overflow;
    uint64_t count;
    uint32_t n, chunk;
    Rank ranks[Capacity];
};

// A tile's part of its chunks: all of `chunks` chunks from `chunk` on, or of one the elements
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
// may be added at the same time; nor has one whose index is not in its chunk.
template <typename T, uint32_t Capacity>
struct TileSlots {
    const ChunkJob<Capacity> &job;
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
        return {value != 0 && loaded.index < job.chunk ? place : UINT32_MAX, value};
    }
};

template <typename T, typename Out, uint32_t Capacity>
__global__ void __launch_bounds__(kThreads)
    chunk_merge(const ChunkJob<Capacity> job, const Divisor<T> divisor)
{
    __shared__ alignas(16) T sum[kTile<T>];
    wait_for_previous();
    let_next_start();
    const uint64_t done = static_cast<uint64_t>(blockIdx.x) * kTile<T>;
    const Part part = part_of<T>(done, job.count, job.chunk);
    clear_tile(sum);
    __syncthreads();
    add_in_order<T>(TileSlots<T, Capacity>{job, part}, job.n, AddTo<T>{sum, part.size});
    note_overflow(job.overflow,
                  store_tile(static_cast<Out *>(job.out) + done, sum, part.size, divisor));
}

template <typename T, typename Out, uint32_t Capacity>
trib_status launch_chunks(const ChunkJob<TRI_MAX_LISTS> &all, double divisor, trib_stream stream)
{
    ChunkJob<Capacity> job = {all.out, all.overflow, all.count, all.n, all.chunk, {}};
    for (uint32_t r = 0; r < all.n; r++)
        job.ranks[r] = all.ranks[r];
    Divisor<T> by = divisor_of<T>(divisor);
    void *arguments[] = {&job, &by};
    return launch_next_kernel<chunk_merge<T, Out, Capacity>>(tiles_of<T>(all.count), kThreads,
                                                             arguments, stream);
}

template <typename T, typename Out>
trib_status launch_ranks(const ChunkJob<TRI_MAX_LISTS> &all, double divisor, trib_stream stream)
{
    return all.n <= kFewLists ? launch_chunks<T, Out, kFewLists>(all, divisor, stream)
                              : launch_chunks<T, Out, TRI_MAX_LISTS>(all, divisor, stream);
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
    return dispatch_sum(out->dtype, [&](auto sum) {
        return partition(Slots<decltype(sum)>{*chunks, *out, slots}, slots, scratch, stream);
    });
}

trib_status tri_cuda_sparse_chunk_merge(const struct tri_chunks *ranks, int32_t n, size_t count,
                                        const struct tri_result *out, trib_stream stream)
{
    if (count == 0)
        return TRIB_OK;
    ChunkJob<TRI_MAX_LISTS> job = {out->data, out->overflow, count, static_cast<uint32_t>(n), 1,
                                   {}};
    for (int32_t r = 0; r < n; r++) {
        job.ranks[r] = {ranks[r].index, ranks[r].value, ranks[r].dtype, ranks[r].k};
        job.chunk = ranks[r].chunk;
    }
    return dispatch_float(out->dtype, [&](auto type) {
        using Out = decltype(type);
        return launch_ranks<Sum<Out>, Out>(job, out->divisor, stream);
    });
}
