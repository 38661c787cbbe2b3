// chunk_select: the k largest of each chunk. Many chunks of small k and size: chunk_warp.cuh. Others: one block
// per chunk, one pass over memory: elements stay in registers, 16 per thread, from when they are
// loaded until acc is written; the rare chunks that are larger are read again from the L2 cache.
//
// The cut is found from a bound that costs little. Every thread knows the largest of its elements;
// the k-th largest of these maxima, found bit by bit, is a key that at least k elements reach, and
// of a chunk of 4,096 with 1 % taken only a handful more do. Those few are compared with each
// other. If that does not help (k beyond the number of threads, many equal elements), digits are
// counted.
//
// nvcc takes most of a minute for all types of gradients: chunk_select_half.cu has half of them.
#pragma once

#include "kernels/cuda/chunk_warp.cuh"
#include "kernels/cuda/radix_digit.cuh"
#include "kernels/cuda/sign.cuh"
#include "kernels/cuda/sparse_cuda.h"
#include "kernels/cuda/stream.cuh"

namespace {

constexpr uint32_t kSteps = 4;    // fours of a thread
constexpr uint32_t kListed = 256; // keys that are compared with each other, at most
constexpr uint32_t kMaxBlocks = 1u << 20;

template <typename T, uint32_t Threads>
struct Room {
    uint32_t histogram[kDigits];
    DigitRoom<Threads> digit;
    Key<T> list[kListed];
    uint32_t listed;
    Cut<T> cut;
    uint32_t above[Threads / kWarp], equal[Threads / kWarp]; // packed, of warps
};

// One chunk and the part of it that this thread holds. Whole: all of it is in registers; otherwise
// the chunk is walked over in several tiles, which are read from acc again.
template <typename T, typename G, uint32_t Threads, bool Whole>
struct Chunk {
    static constexpr uint32_t kTileSize = Threads * kSteps * kFour;

    const ChunkSelect &job;
    Room<T, Threads> &room;
    Range<T, G> range;
    uint64_t begin, end; // of acc
    T value[kSteps][kFour];

    // body(index in the chunk of this thread's first element of the tile), for each tile, when
    // `value` holds it.
    template <typename Body>
    __device__ void for_tiles(Body body)
    {
        if constexpr (Whole) {
            body(begin);
        } else {
            for (uint64_t tile = begin; tile < end; tile += kTileSize) {
#pragma unroll
                for (uint32_t s = 0; s < kSteps; s++)
#pragma unroll
                    for (uint32_t q = 0; q < kFour; q++) {
                        const uint64_t i = index(tile, s, q);
                        value[s][q] = i < end ? __ldcg(range.sum + i) : T(0);
                    }
                body(tile);
            }
        }
    }

    // body(value) for every element; those beyond the end of the chunk are 0.
    template <typename Body>
    __device__ void for_elements(Body body)
    {
        for_tiles([&](uint64_t) {
#pragma unroll
            for (uint32_t s = 0; s < kSteps; s++)
#pragma unroll
                for (uint32_t q = 0; q < kFour; q++)
                    body(value[s][q]);
        });
    }

    __device__ static uint64_t index(uint64_t tile, uint32_t step, uint32_t q)
    {
        return tile + (step * Threads + threadIdx.x) * kFour + q;
    }

    // Make acc; returns this thread's largest key, and counts what is not finite.
    __device__ Key<T> load(uint32_t &bad)
    {
        Key<T> largest = 0;
        for (uint64_t tile = begin; tile < end; tile += kTileSize) {
            load_tile<Threads>(value, range, tile, threadIdx.x);
            bad += count_nonfinite(value);
#pragma unroll
            for (uint32_t s = 0; s < kSteps; s++)
#pragma unroll
                for (uint32_t q = 0; q < kFour; q++)
                    largest = max(largest, key_of(value[s][q]));
            if (!Whole && Has<G>::kGradient)
                store_tile<Threads>(value, range, tile, threadIdx.x);
        }
        return largest;
    }

    // A key that at least k elements reach, or 1.
    __device__ Key<T> bound(Key<T> largest) const
    {
        Key<T> key = 0;
        if (job.out.k > Threads)
            return 1;
        for (int bit = KeyOf<T>::kBits - 1; bit >= 0; bit--) {
            const Key<T> higher = key | static_cast<Key<T>>(1) << bit;
            const uint32_t reach = __syncthreads_count(largest >= higher);
            if (reach >= job.out.k)
                key = higher;
            if (reach == job.out.k)
                break;
        }
        return key == 0 ? 1 : key;
    }

    // The number of elements that reach `low`; the first to arrive are in room.list.
    __device__ uint32_t list(Key<T> low)
    {
        if (threadIdx.x == 0)
            room.listed = 0;
        __syncthreads();
        for_elements([&](T x) {
            const Key<T> key = key_of(x);
            if (key >= low) {
                const uint32_t place = atomicAdd(&room.listed, 1);
                if (place < kListed)
                    room.list[place] = key;
            }
        });
        __syncthreads();
        return room.listed;
    }

    // The cut, where the list is complete and longer than k.
    __device__ Cut<T> compare(uint32_t n)
    {
        for (uint32_t i = threadIdx.x; i < n; i += Threads) {
            const Key<T> mine = room.list[i];
            uint32_t above = 0, equal = 0;
            for (uint32_t j = 0; j < n; j++) {
                above += room.list[j] > mine;
                equal += room.list[j] == mine;
            }
            if (above < job.out.k && job.out.k <= above + equal) // so say all that are equal
                room.cut = {mine, job.out.k - above};
        }
        __syncthreads();
        return room.cut;
    }

    // The cut, where more than k elements are not 0.
    __device__ Cut<T> search()
    {
        Cut<T> cut = {0, job.out.k};
        for (int shift = KeyOf<T>::kBits; shift > 0;) {
            const int next =
                shift > static_cast<int>(kDigitBits) ? shift - static_cast<int>(kDigitBits) : 0;
            for (uint32_t d = threadIdx.x; d < kDigits; d += Threads)
                room.histogram[d] = 0;
            __syncthreads();
            for_elements([&](T x) {
                const Key<T> key = key_of(x), distance = key - cut.key;
                if (key != 0 && key >= cut.key && distance >> shift == 0)
                    atomicAdd(&room.histogram[distance >> next], 1);
            });
            __syncthreads();
            uint32_t total;
            cut.key +=
                static_cast<Key<T>>(find_digit(room.histogram, 0, cut.ties, total, room.digit))
                << next;
            shift = next;
        }
        return cut;
    }

    __device__ Cut<T> cut_of(Key<T> largest)
    {
        const Key<T> low = bound(largest);
        const uint32_t n = list(low);
        if (n <= job.out.k)
            return {low - 1, 0};
        return n <= kListed ? compare(n) : search();
    }

    // This thread's numbers of elements above the cut and equal to it: one byte per step.
    struct Mine {
        uint32_t above, equal;
    };

    __device__ Mine count(Key<T> cut) const
    {
        Mine mine = {0, 0};
#pragma unroll
        for (uint32_t s = 0; s < kSteps; s++)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++) {
                const Key<T> key = key_of(value[s][q]);
                mine.above += key > cut ? 1u << s * 8 : 0;
                mine.equal += key == cut && key != 0 ? 1u << s * 8 : 0;
            }
        return mine;
    }

    // Write what is in, and clear it. Returns how many slots are taken.
    __device__ uint32_t emit(Cut<T> cut, uint64_t first_slot)
    {
        uint32_t above_before = 0, equal_before = 0; // of the tiles before
        for_tiles([&](uint64_t tile) {
            const Mine mine = count(cut.key);
            const Places above = places(mine.above, room.above);
            const Places equal = places(mine.equal, room.equal);
            if ((mine.above | mine.equal) != 0)
                write(tile, cut, above, above_before, equal, equal_before, first_slot);
            above_before += above.total;
            equal_before += equal.total;
            __syncthreads();
        });
        return above_before + min(equal_before, cut.ties);
    }

    // Of each step, how many elements of the tile come before this thread's.
    struct Places {
        uint32_t before[kSteps], total;
    };

    // From the bytes of all threads. At most 128 per step of a warp, and 4,096 per step of a block.
    __device__ static Places places(uint32_t mine, uint32_t *warps)
    {
        const uint32_t warp = threadIdx.x / kWarp;
        const uint32_t inclusive = warp_inclusive(mine);
        if (lane_of() == kWarp - 1)
            warps[warp] = inclusive;
        __syncthreads();
        constexpr uint32_t kBytes = 0x00ff00ffu; // of steps 0 and 2; shifted, of 1 and 3
        uint32_t below_even = inclusive - mine, below_odd = below_even >> 8 & kBytes;
        uint32_t all_even = 0, all_odd = 0;
        below_even &= kBytes;
#pragma unroll
        for (uint32_t w = 0; w < Threads / kWarp; w++) {
            const uint32_t even = warps[w] & kBytes, odd = warps[w] >> 8 & kBytes;
            below_even += w < warp ? even : 0;
            below_odd += w < warp ? odd : 0;
            all_even += even;
            all_odd += odd;
        }
        const uint32_t all[kSteps] = {all_even & 0xffff, all_odd & 0xffff, all_even >> 16,
                                      all_odd >> 16};
        const uint32_t below[kSteps] = {below_even & 0xffff, below_odd & 0xffff, below_even >> 16,
                                        below_odd >> 16};
        Places result;
        result.total = 0;
#pragma unroll
        for (uint32_t s = 0; s < kSteps; s++) {
            result.before[s] = result.total + below[s];
            result.total += all[s];
        }
        return result;
    }

    __device__ void write(uint64_t tile, Cut<T> cut, const Places &above, uint32_t above_before,
                          const Places &equal, uint32_t equal_before, uint64_t first_slot)
    {
#pragma unroll
        for (uint32_t s = 0; s < kSteps; s++) {
            uint32_t higher = above_before + above.before[s];
            uint32_t tie = equal_before + equal.before[s];
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++) {
                const Key<T> key = key_of(value[s][q]);
                const bool equals = key == cut.key && key != 0;
                if (key > cut.key || (equals && tie < cut.ties)) {
                    const uint64_t slot = first_slot + higher + min(tie, cut.ties);
                    job.out.index[slot] = static_cast<uint16_t>(index(tile, s, q) - begin);
                    put_entry(job.out.value, job.out.dtype, slot, value[s][q]);
                    if (Has<G>::kGradient && job.clear) {
                        value[s][q] = left_of(value[s][q], job.out.dtype);
                        if (!Whole)
                            range.sum[index(tile, s, q)] = value[s][q];
                    }
                }
                higher += key > cut.key;
                tie += equals;
            }
        }
    }
};

template <typename T, typename G, uint32_t Threads, bool Whole>
__global__ void __launch_bounds__(Threads, 1024 / Threads) chunk_select(const ChunkSelect job)
{
    __shared__ Room<T, Threads> room;
    const Range<T, G> range = range_of<T, G>(job.acc, 0, job.acc.count, false);
    const uint32_t k = job.out.k;
    uint32_t bad = 0;
    for (uint32_t c = blockIdx.x; c < job.chunks; c += gridDim.x) {
        Chunk<T, G, Threads, Whole> chunk = {job, room, range, 0, 0, {}};
        chunk.begin = static_cast<uint64_t>(c) * job.out.chunk;
        chunk.end = min(chunk.begin + job.out.chunk, range.end);
        chunk.range.end = chunk.end;
        const Key<T> largest = chunk.load(bad);
        if (k != 0) {
            const uint64_t slot = static_cast<uint64_t>(c) * k;
            const uint32_t taken = chunk.emit(chunk.cut_of(largest), slot);
            for (uint32_t i = taken + threadIdx.x; i < k; i += Threads) {
                job.out.index[slot + i] = 0;
                put_entry(job.out.value, job.out.dtype, slot + i, T(0));
            }
        }
        if (Whole && Has<G>::kGradient)
            store_tile<Threads>(chunk.value, chunk.range, chunk.begin, threadIdx.x);
    }
    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
}

template <typename T, typename G, uint32_t Threads, bool Whole>
trib_status launch_chunks(const ChunkSelect &job, trib_stream stream)
{
    return launch_job<chunk_select<T, G, Threads, Whole>>(blocks_for(job.chunks, 1, kMaxBlocks),
                                                          Threads, job, stream);
}

template <typename T, typename G, uint32_t Steps>
trib_status launch_warps(const ChunkSelect &job, trib_stream stream)
{
    return launch_job<chunk_select_warps<T, G, Steps>>(
        blocks_for(job.chunks, kWarpsTogether, kMaxBlocks), kWarpsTogether * kWarp, job, stream);
}

template <typename T, typename G>
trib_status run(const ChunkSelect &job, trib_stream stream)
{
    if (job.chunks == 0)
        return TRIB_OK;
    // A warp that loads gradients, too, takes its time for a chunk: if there are few, a block takes each.
    if constexpr (sizeof(T) == 4)
        if (!(Has<G>::kGradient && job.chunks <= multiprocessors() * kWarpsTogether) &&
            job.out.k != 0 && job.out.k <= kWarpK && job.out.chunk <= 32 * kWarp * kFour)
            return job.out.chunk <= 4 * kWarp * kFour    ? launch_warps<T, G, 4>(job, stream)
                   : job.out.chunk <= 16 * kWarp * kFour ? launch_warps<T, G, 16>(job, stream)
                                                         : launch_warps<T, G, 32>(job, stream);
    constexpr uint32_t kEach = kSteps * kFour;
    if (job.out.chunk <= 64 * kEach)
        return launch_chunks<T, G, 64, true>(job, stream);
    if (job.out.chunk <= 256 * kEach)
        return launch_chunks<T, G, 256, true>(job, stream);
    if (job.out.chunk <= 1024 * kEach)
        return launch_chunks<T, G, 1024, true>(job, stream);
    return launch_chunks<T, G, 1024, false>(job, stream);
}

template <typename T, typename G>
trib_status select_chunks(const tri_accumulator &acc, bool clear, const tri_chunks &out,
                          tri_signing signing, trib_stream stream)
{
    const trib_status status = tri_cuda_sign(signing, stream);
    if (status != TRIB_OK)
        return status;
    const uint64_t chunks = (static_cast<uint64_t>(acc.count) + out.chunk - 1) / out.chunk;
    const ChunkSelect job = {acc, out, nonfinite_of(signing), static_cast<uint32_t>(chunks), clear};
    return run<T, G>(job, stream);
}

} // namespace

// Gradients of f16 and bf16.
trib_status tri_cuda_chunk_select_half(const tri_accumulator &acc, bool clear,
                                       const tri_chunks &out, tri_signing signing,
                                       trib_stream stream);
