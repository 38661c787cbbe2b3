// select, third launch: the k-th largest is looked for in an interval so small that only a few candidates
// lie in it. gather has counted them by their distance from the guess, so the interval is known at once,
// and how many lie in it. Every warp walks over its part of the candidates, counts what is beyond the
// interval, and sets aside what is inside: enough for finish to know the cut, and all that lies before
// each part, without looking at the candidates once more.
//
// If too many lie inside, as where very many are equal, nothing happens here.
#pragma once

#include "kernels/cuda/digits.cuh"
#include "kernels/cuda/select_parts.cuh"

namespace {

struct SiftRoom {
    uint32_t histogram[kDigits];
    uint32_t above;
    DigitRoom<kFinishThreads> digit;
    PartsRoom parts;
};

// Where to look for the wanted-th largest candidate, for all threads of a block; `inside` becomes how
// many are there. The window of gather says it nearly; what lies above the window may be anything.
template <typename T>
__device__ inline Search<T> aimed(const Select &job, const Need &need, uint32_t *histogram,
                                  DigitRoom<kFinishThreads> &room, uint32_t &inside)
{
    for (uint32_t d = threadIdx.x; d < kDigits; d += kFinishThreads)
        histogram[d] = job.control->window[d];
    __syncthreads();
    Search<T> search = {0, KeyOf<T>::kBits, need.wanted};
    uint32_t total;
    const uint32_t digit = find_digit(histogram, need.candidates, search.wanted, total, room);
    inside = need.candidates;
    if (digit != kDigits) {
        inside = histogram[digit];
        search.base = static_cast<Key<T>>(job.control->low) +
                      (static_cast<Key<T>>(digit) << kWindowShift<T>);
        search.shift = kWindowShift<T>;
    }
    return search;
}

// Set aside what is inside; returns how many of this lane's are beyond.
template <typename T>
__device__ inline uint32_t sift_part(const Select &job, const Search<T> &search,
                                     const PartsRoom &parts, Place place)
{
    const Listed<T> items = {job, parts};
    uint32_t above = 0;
    items.template walk<false>(
        part_of(items.size(), place), [&](bool there, T value, uint32_t) {
            const Key<T> key = key_of(value), distance = key - search.base;
            const bool reaches = there && key >= search.base;
            const bool inside = reaches && distance >> search.shift == 0;
            const uint32_t lanes = __ballot_sync(kAllLanes, inside);
            above += reaches && !inside;
            if (lanes == 0)
                return;
            uint32_t at = 0;
            if (lane_of() == 0)
                at = atomicAdd(&job.control->inside, __popc(lanes));
            at = __shfl_sync(kAllLanes, at, 0) + __popc(lanes & ((1u << lane_of()) - 1));
            if (inside) {
                static_cast<Key<T> *>(job.inside)[at] = distance;
                job.owner[at] = place.warp();
            }
        });
    return above;
}

template <typename T>
__global__ void __launch_bounds__(kFinishThreads, 1) select_sift(const Select job)
{
    __shared__ SiftRoom room;
    wait_for_previous();
    let_next_start();
    const Need need = need_of(job);
    if (need.missed || need.wanted == 0)
        return;
    uint32_t inside;
    const Search<T> search = aimed<T>(job, need, room.histogram, room.digit, inside);
    if (inside > job.inside_capacity)
        return;
    if (threadIdx.x == 0)
        room.above = 0;
    scan_groups(job, room.parts);
    const Place place = {blockIdx.x};
    const uint32_t above = warp_sum(sift_part(job, search, room.parts, place));
    if (lane_of() == 0) {
        job.parts[place.warp()].above = above;
        atomicAdd(&room.above, above);
    }
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    job.control->above[blockIdx.x] = room.above;
    if (blockIdx.x == 0) {
        job.control->base = search.base;
        job.control->shift = search.shift;
        job.control->wanted = search.wanted;
        job.control->sifted = 1;
    }
}

} // namespace
