// pull in two shots, of a list: what pack would put into send, out of the tensors.
#pragma once

#include "kernels/cuda/loads.cuh"
#include "kernels/cuda/pack_weighted.cuh"
#include "kernels/cuda/pull_meet.cuh"
#include "kernels/cuda/pull_units.cuh"

namespace {

// May a bucket of such elements be weighted?
template <typename T>
constexpr bool kIsSum = false;
template <>
constexpr bool kIsSum<float> = true;
template <>
constexpr bool kIsSum<double> = true;

// Where those ranks of a launch that have a table have their elements; the others have them at send.
enum class Source { kSend, kTensors, kWeighted };

// The rank's list, as a bucket that begins at `bucket`.
template <typename T>
__device__ inline Kept list_of(const PullJob &job, const tri_pull_rank &rank, char *bucket)
{
    Head head = {};
    head.bucket = bucket;
    head.count = job.count;
    head.per_unit = Unit<T>::kElements;
    return kept_of(head, rank.list.table, rank.list.slices);
}

// Units [first, last), by all warps of a block.
template <typename Pack>
__device__ inline void gather_units(const Kept &list, uint32_t first, uint32_t last,
                                    const Pack &pack)
{
#pragma unroll 1
    for (uint32_t at = first + threadIdx.x / kWarp * kChunk; at < last;
         at += blockDim.x / kWarp * kChunk)
        move_units(list, at, min(at + kChunk, last), pack);
}

// Elements [begin, end) to `to`, by all threads of a block. `begin` is that of a unit, and `end`, too, or the end of
// all.
template <typename T, Source From>
__device__ inline void gather_elements(char *to, const PullJob &job, const tri_pull_rank &rank,
                                       uint64_t begin, uint64_t end)
{
    constexpr uint64_t kElements = Unit<T>::kElements;
    const uint32_t first = static_cast<uint32_t>(begin / kElements);
    const uint32_t last = static_cast<uint32_t>((end + kElements - 1) / kElements);
    const Kept list = list_of<T>(job, rank, to - uint64_t{first} * kUnit);
    if constexpr (From == Source::kWeighted) {
        const tri_weight &weight = rank.list.weight;
        gather_units(
            list, first, last,
            PackWeighted<T, Kept>{{}, list, weight_of<T>(weight.device, weight.value, job.count)});
    } else {
        gather_units(list, first, last, PackOf<typename Bits<sizeof(T)>::Type, Kept>{list});
    }
}

} // namespace
