// select of few of not too many: the fourth launch without the third. Its blocks are few and so are the
// candidates: every block reads them all, and so knows the cut, and how many that are selected lie
// before its own span of the tensor. Within the span a bit an element says which are selected, and the
// bits before it at which place; so nothing is walked in index order.
#pragma once

#include "kernels/cuda/select_filter.cuh"

namespace {

constexpr uint32_t kFewSpan =
    kFinishThreads * kWarp; // elements of a block: a word of bits a thread
constexpr uint32_t kFewBlocks = 128, kMostFew = 1u << 14; // selected
template <typename T>
constexpr uint32_t kFewRows =
    sizeof(T) == 8 ? 8 : 16; // candidates of a thread that are loaded together

inline bool selects_few(uint64_t count, uint32_t k)
{
    return k <= kMostFew && count <= static_cast<uint64_t>(kFewBlocks) * kFewSpan;
}

struct FewRoom {
    uint32_t above[kFinishThreads], equal[kFinishThreads]; // bits of the span
    Counts before[kFinishThreads];                         // selected before each word of bits
    Counts sums;                                           // and before the span
    uint32_t histogram[kDigits];
    DigitRoom<kFinishThreads> digit;
};

template <typename T>
struct Few {
    const Select &job;
    FewRoom &room;

    __device__ static uint32_t begin()
    {
        return blockIdx.x * kFewSpan;
    }

    // body(value, element) of all candidates, by the threads of the block; the element is counted from
    // the first of the range on. Without Elements it is not asked for.
    template <bool Elements, typename Body>
    __device__ void each(Body body) const
    {
        const uint32_t places = places_of(job);
        for (uint32_t first = threadIdx.x; first < places; first += kFewRows<T> * kFinishThreads) {
            T value[kFewRows<T>];
            uint32_t index[kFewRows<T>];
#pragma unroll
            for (uint32_t r = 0; r < kFewRows<T>; r++) {
                const uint32_t at = first + r * kFinishThreads;
                value[r] = at < places ? static_cast<const T *>(job.value)[at] : T(0);
                index[r] = Elements && at < places ? job.index[at] : 0;
            }
#pragma unroll
            for (uint32_t r = 0; r < kFewRows<T>; r++)
                if (value[r] != T(0))
                    body(value[r], index[r] - static_cast<uint32_t>(job.first));
        }
    }

    // The cut, as Search.base, and how many of those equal to it are in, as Search.wanted.
    __device__ Search<T> cut(const Search<T> &interval) const
    {
        return narrow<T>(interval, room.histogram, room.digit, [&](auto body) {
            each<false>([&](T value, uint32_t) { body(key_of(value)); });
        });
    }

    // An element that is selected, or may be: before the span it is counted, in the span it is noted.
    __device__ void note(uint32_t element, uint32_t *bits, uint32_t &before) const
    {
        before += element < begin();
        if (element - begin() < kFewSpan)
            atomicOr(&bits[(element - begin()) / kWarp], 1u << element % kWarp);
    }

    // room.before.
    __device__ void count(Key<T> cut) const
    {
        Counts before = {0, 0};
        room.above[threadIdx.x] = room.equal[threadIdx.x] = 0;
        if (threadIdx.x == 0)
            room.sums = {0, 0};
        __syncthreads();
        each<true>([&](T value, uint32_t element) {
            if (key_of(value) > cut)
                note(element, room.above, before.above);
            else if (key_of(value) == cut)
                note(element, room.equal, before.equal);
        });
        before = {warp_sum(before.above), warp_sum(before.equal)};
        if (lane_of() == 0 && (before.above | before.equal) != 0) {
            atomicAdd(&room.sums.above, before.above);
            atomicAdd(&room.sums.equal, before.equal);
        }
        __syncthreads();
        uint32_t total;
        const uint32_t above =
            block_exclusive(__popc(room.above[threadIdx.x]), total, room.digit.scan);
        const uint32_t equal =
            block_exclusive(__popc(room.equal[threadIdx.x]), total, room.digit.scan);
        room.before[threadIdx.x] = {room.sums.above + above, room.sums.equal + equal};
        __syncthreads();
    }

    // Write what of the span is selected, and restore what partition has cleared and is not.
    __device__ void write(Key<T> cut, uint32_t ties) const
    {
        T *const sum = sum_of<T>(job.acc);
        each<true>([&](T value, uint32_t element) {
            if (element - begin() >= kFewSpan)
                return;
            const Key<T> key = key_of(value);
            const uint32_t word = (element - begin()) / kWarp, lower = (1u << element % kWarp) - 1;
            const Counts before = room.before[word];
            const uint32_t tie = before.equal + __popc(room.equal[word] & lower);
            const uint32_t index = static_cast<uint32_t>(job.first) + element;
            if (key > cut || (key == cut && tie < ties)) {
                const uint32_t place =
                    before.above + __popc(room.above[word] & lower) + min(tie, ties);
                job.out.index[place] = index;
                put_entry(job.out.value, job.out.dtype, place, value);
            } else if (job.clear) {
                sum[index] = value;
            }
        });
    }
};

// Returns the cut.
template <typename T>
__device__ inline Key<T> finish_few(const Select &job, const Need &need, FewRoom &room)
{
    const Few<T> few = {job, room};
    uint32_t inside;
    const Search<T> found =
        few.cut(find_interval<T>(job, need, room.histogram, room.digit, inside));
    few.count(found.base);
    few.write(found.base, found.wanted);
    return found.base;
}

} // namespace
