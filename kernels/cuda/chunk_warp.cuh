// chunk_select by warps, for small k: one warp per chunk, which its registers hold, and no barrier.
//
// Every lane knows the largest of some groups of its elements. A key that k of these maxima reach,
// and hardly more, is found in a few steps; at least k elements reach it then, and of a chunk of
// 4,096 with 1 % taken only a handful more do. These are listed in index order in shared memory,
// and the list is cut. If very many reach it, because they are equal, the cut is searched among all
// elements.
#pragma once

#include "kernels/cuda/fours.cuh"

namespace {

constexpr uint32_t kWarpsTogether = 4; // of a block
constexpr uint32_t kWarpListed = 128;  // elements of a list, at most
constexpr uint32_t kWarpK = 64;        // the largest k
constexpr uint32_t kSlack = 6;         // maxima that may reach the key beyond k

struct ChunkSelect {
    tri_accumulator acc;
    tri_chunks out;
    uint32_t *nonfinite;
    uint32_t chunks;
    bool clear;
};

// Above `key`: in; equal to it: the first `ties` are.
template <typename T>
struct Cut {
    Key<T> key;
    uint32_t ties;
};

template <typename T>
struct WarpRoom {
    Stage<T, kWarpListed> stage;
    T value[kWarpListed];
    uint16_t index[kWarpListed]; // in the chunk
};

template <typename K>
__device__ inline K warp_max(K x)
{
#pragma unroll
    for (uint32_t d = kWarp / 2; d > 0; d /= 2)
        x = max(x, __shfl_xor_sync(kAllLanes, x, d));
    return x;
}

// The largest key in [low, high] that at least k of the keys that count(key) counts reach; less, if
// as few as k + slack reach it. k reach `low`.
template <typename K, typename Count>
__device__ inline K largest_reached(K low, K high, uint32_t k, uint32_t slack, uint32_t &reach,
                                    Count count)
{
    while (low < high) {
        const K middle = low + (high - low + 1) / 2;
        const uint32_t n = count(middle);
        if (n < k) {
            high = middle - 1;
            continue;
        }
        low = middle;
        reach = n;
        if (n <= k + slack)
            break;
    }
    return low;
}

// Nothing happens, but the compiler no longer knows what it has computed from the value. Otherwise
// it keeps 128 keys beside the 128 elements, and runs out of registers.
__device__ inline void forget(float &x)
{
    uint32_t bits = __float_as_uint(x);
    asm volatile("" : "+r"(bits));
    x = __uint_as_float(bits);
}

template <typename T, typename G, uint32_t Steps>
struct WarpChunk {
    static constexpr uint32_t kMaxima = Steps < 8 ? Steps : 8; // of a lane
    static constexpr uint32_t kBatch = Steps < 8 ? Steps : 8;  // steps loaded together
    static constexpr uint32_t kRows = kWarpListed / kWarp;

    const ChunkSelect &job;
    WarpRoom<T> &room;
    const Range<T, G> &range; // of the chunk
    uint64_t slot;            // its first
    T value[Steps][kFour];

    __device__ void load()
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s += kBatch)
            load_tile<kWarp>(reinterpret_cast<T(&)[kBatch][kFour]>(value[s]), range,
                             range.begin + s * kWarp * kFour, lane_of());
    }

    // Only what was made has to be stored. Other lanes may then write to it.
    __device__ void store() const
    {
        if constexpr (Has<G>::kGradient) {
#pragma unroll
            for (uint32_t s = 0; s < Steps; s += kBatch)
                store_tile<kWarp>(reinterpret_cast<const T(&)[kBatch][kFour]>(value[s]), range,
                                  range.begin + s * kWarp * kFour, lane_of());
            __syncwarp();
        }
    }

    __device__ void forget_all()
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                forget(value[s][q]);
    }

    // Infinities and NaNs of this lane go to `bad`; the largest key of the chunk to `high`.
    __device__ Key<T> bound(uint32_t &bad, Key<T> &high) const
    {
        Key<T> maxima[kMaxima], low = 0, largest = 0;
#pragma unroll
        for (uint32_t m = 0; m < kMaxima; m++) {
            maxima[m] = 0;
#pragma unroll
            for (uint32_t s = m * (Steps / kMaxima); s < (m + 1) * (Steps / kMaxima); s++)
#pragma unroll
                for (uint32_t q = 0; q < kFour; q++)
                    maxima[m] = max(maxima[m], key_of(value[s][q]));
            low = m == 0 ? maxima[m] : min(low, maxima[m]);
            largest = max(largest, maxima[m]);
        }
        if (largest >= KeyOf<T>::kInfinity)
            bad += count_nonfinite(value);
        high = warp_max(largest);
        low = ~warp_max(static_cast<Key<T>>(~low)); // all maxima reach it
        uint32_t reach = 0;
        low = largest_reached(low, high, job.out.k, kSlack, reach, [&](Key<T> key) {
            uint32_t n = 0;
#pragma unroll
            for (uint32_t m = 0; m < kMaxima; m++)
                n += __popc(__ballot_sync(kAllLanes, maxima[m] >= key));
            return n;
        });
        return low == 0 ? 1 : low;
    }

    // The elements of `mask`, `total` of them, into the list.
    __device__ void list(const Mask<Steps> &mask)
    {
        const Ranks<Steps> ranks = rank_candidates(mask);
        const uint32_t fours = count_fours(mask), last = warp_inclusive(fours);
        const uint32_t n = __shfl_sync(kAllLanes, last, kWarp - 1);
        stage_fours(room.stage, value, mask, ranks, last - fours);
        __syncwarp();
        for (uint32_t i = lane_of(); i < n; i += kWarp) {
            const FourTag tag = room.stage.tag[i];
            uint32_t at = tag.before();
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                if (tag.has(q)) {
                    room.value[at] = room.stage.value[i][q];
                    room.index[at] = static_cast<uint16_t>(tag.place(q));
                    at++;
                }
        }
        __syncwarp();
    }

    // The cut through more than k keys that reach `low`; none is above `high`.
    template <typename Count>
    __device__ Cut<T> cut_between(Key<T> low, Key<T> high, Count count) const
    {
        uint32_t reach = 0;
        const Key<T> key = largest_reached(low, high, job.out.k, 0, reach, count);
        if (reach == job.out.k)
            return {static_cast<Key<T>>(key - 1), 0};
        return {key, job.out.k - count(key + 1)};
    }

    // The cut through the list of `total`.
    __device__ Cut<T> cut_list(uint32_t total, Key<T> low, Key<T> high) const
    {
        if (total <= job.out.k)
            return {low - 1, 0};
        T mine[kRows];
#pragma unroll
        for (uint32_t r = 0; r < kRows; r++)
            mine[r] = r * kWarp + lane_of() < total ? room.value[r * kWarp + lane_of()] : T(0);
        return cut_between(low, high, [&](Key<T> key) {
            uint32_t n = 0;
#pragma unroll
            for (uint32_t r = 0; r < kRows; r++)
                n += __popc(__ballot_sync(kAllLanes, key_of(mine[r]) >= key));
            return n;
        });
    }

    // Clear the elements above the cut. Those equal to it follow one by one: there is hardly ever
    // more than one that is in.
    __device__ void clear_above(Key<T> cut)
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                if (key_of(value[s][q]) > cut)
                    value[s][q] = left_of(value[s][q], job.out.dtype);
    }

    // Write what is in of the list of `total`; returns how many are. acc stands in memory, and what
    // is above the cut is cleared there.
    __device__ uint32_t emit_list(uint32_t total, Cut<T> cut) const
    {
        const uint32_t lower = (1u << lane_of()) - 1;
        uint32_t above = 0, equal = 0; // so far
        for (uint32_t r = 0; r * kWarp < total; r++) {
            const uint32_t i = r * kWarp + lane_of();
            const T x = i < total ? room.value[i] : T(0);
            const Key<T> key = key_of(x);
            const uint32_t higher = __ballot_sync(kAllLanes, key > cut.key);
            const uint32_t same = __ballot_sync(kAllLanes, key == cut.key);
            const uint32_t tie = equal + __popc(same & lower);
            if (key > cut.key || (key == cut.key && tie < cut.ties))
                write(above + __popc(higher & lower) + min(tie, cut.ties),
                      i < total ? room.index[i] : 0, x, key == cut.key);
            above += __popc(higher);
            equal += __popc(same);
        }
        return above + min(equal, cut.ties);
    }

    // The cut through all elements.
    __device__ Cut<T> cut_all(Key<T> low, Key<T> high)
    {
        const Cut<T> cut = cut_between(low, high, [&](Key<T> key) {
            forget_all();
            uint32_t n = 0;
#pragma unroll
            for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
                for (uint32_t q = 0; q < kFour; q++)
                    n += key_of(value[s][q]) >= key;
            return warp_sum(n);
        });
        forget_all();
        return cut;
    }

    // As emit_list, of all elements, where nothing is cleared yet.
    __device__ uint32_t emit_all(Cut<T> cut)
    {
        const uint32_t lower = (1u << lane_of()) - 1;
        uint32_t above = 0, equal = 0;
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++) {
            uint32_t higher = 0, tie = 0, all_higher = 0, all_same = 0;
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++) {
                const Key<T> key = key_of(value[s][q]);
                const uint32_t a = __ballot_sync(kAllLanes, key > cut.key);
                const uint32_t b = __ballot_sync(kAllLanes, key == cut.key);
                higher += __popc(a & lower);
                tie += __popc(b & lower);
                all_higher += __popc(a);
                all_same += __popc(b);
            }
            higher += above;
            tie += equal;
            for (uint32_t q = 0; q < kFour; q++) {
                const Key<T> key = key_of(value[s][q]);
                if (key > cut.key || (key == cut.key && tie < cut.ties))
                    write(higher + min(tie, cut.ties), (s * kWarp + lane_of()) * kFour + q,
                          value[s][q], true);
                higher += key > cut.key;
                tie += key == cut.key;
            }
            above += all_higher;
            equal += all_same;
        }
        return above + min(equal, cut.ties);
    }

    // The place-th that is in; it is still to be cleared if `whole`.
    __device__ void write(uint32_t place, uint32_t index, T x, bool whole) const
    {
        job.out.index[slot + place] = static_cast<uint16_t>(index);
        put_entry(job.out.value, job.out.dtype, slot + place, x);
        if (Has<G>::kGradient && job.clear && whole)
            range.sum[range.begin + index] = left_of(x, job.out.dtype);
    }

    __device__ void select(uint32_t &bad)
    {
        load();
        Key<T> high;
        const Key<T> low = bound(bad, high);
        forget_all();
        const Mask<Steps> mask = find_candidates(value, low);
        forget_all();
        uint32_t total = 0;
#pragma unroll
        for (uint32_t w = 0; w < sizeof mask / sizeof mask.word[0]; w++)
            total += __popc(mask.word[w]);
        total = warp_sum(total);
        uint32_t taken;
        if (total <= kWarpListed) {
            list(mask);
            const Cut<T> cut = cut_list(total, low, high);
            if (Has<G>::kGradient && job.clear)
                clear_above(cut.key);
            store();
            taken = emit_list(total, cut);
        } else {
            store();
            taken = emit_all(cut_all(low, high));
        }
        for (uint32_t i = taken + lane_of(); i < job.out.k; i += kWarp) {
            job.out.index[slot + i] = 0;
            put_entry(job.out.value, job.out.dtype, slot + i, T(0));
        }
        __syncwarp();
    }
};

template <typename T, typename G, uint32_t Steps>
__global__ void __launch_bounds__(kWarpsTogether *kWarp, 3)
    chunk_select_warps(const ChunkSelect job)
{
    __shared__ WarpRoom<T> rooms[kWarpsTogether];
    const uint32_t warp = threadIdx.x / kWarp;
    const Range<T, G> whole = range_of<T, G>(job.acc, 0, job.acc.count, false);
    uint32_t bad = 0;
    for (uint64_t c = static_cast<uint64_t>(blockIdx.x) * kWarpsTogether + warp; c < job.chunks;
         c += static_cast<uint64_t>(gridDim.x) * kWarpsTogether) {
        Range<T, G> range = whole;
        range.begin = c * job.out.chunk;
        range.end = min(range.begin + job.out.chunk, whole.end);
        WarpChunk<T, G, Steps> chunk = {job, rooms[warp], range, c * job.out.k, {}};
        chunk.select(bad);
    }
    bad = warp_sum(bad);
    if (bad != 0 && job.nonfinite != nullptr && lane_of() == 0)
        atomicAdd(job.nonfinite, bad);
}

} // namespace
