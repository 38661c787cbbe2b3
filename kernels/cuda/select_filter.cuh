// select, third launch: find an interval that holds the k-th largest and few other candidates.
// partition has counted them by their distance from the guess, so the interval is known at once,
// and how many lie in it. Every warp walks over its part of the candidates, counts those above the
// interval, and copies those inside. From that, finish knows the cut, and how many are selected
// before each part, without reading the candidates twice.
//
// If too many lie inside, as when very many are equal, this launch does nothing.
#pragma once

#include "kernels/cuda/radix_digit.cuh"
#include "kernels/cuda/select_parts.cuh"

namespace {

struct FilterRoom {
    uint32_t histogram[kDigits];
    uint32_t above;
    DigitRoom<kFinishThreads> digit;
    PartsRoom parts;
};

// The interval of the wanted-th largest candidate, for all threads of a block; `inside` becomes the
// number of candidates in it. The window of partition says it nearly; above the window there is no
// histogram.
template <typename T>
__device__ inline Search<T> find_interval(const Select &job, const Need &need, uint32_t *histogram,
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
        search.base =
            static_cast<Key<T>>(job.control->low) + (static_cast<Key<T>>(digit) << kWindowShift<T>);
        search.shift = kWindowShift<T>;
    }
    return search;
}

// Copy the candidates inside; returns how many of this lane's are above.
template <typename T>
__device__ inline uint32_t filter_part(const Select &job, const Search<T> &search,
                                       const PartsRoom &parts, Place place)
{
    const Listed<T> items = {job, parts};
    uint32_t above = 0;
    items.template walk<false>(part_of(items.size(), place), [&](bool there, T value, uint32_t) {
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
__global__ void __launch_bounds__(kFinishThreads, 1) select_filter(const Select job)
{
    __shared__ FilterRoom room;
    wait_for_previous();
    let_next_start();
    const Need need = need_of(job);
    if (need.missed || need.wanted == 0)
        return;
    uint32_t inside;
    const Search<T> search = find_interval<T>(job, need, room.histogram, room.digit, inside);
    if (inside > job.inside_capacity)
        return;
    if (threadIdx.x == 0)
        room.above = 0;
    scan_groups(job, room.parts);
    const Place place = {blockIdx.x};
    const uint32_t above = warp_sum(filter_part(job, search, room.parts, place));
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
        job.control->filtered = 1;
    }
}

} // namespace
