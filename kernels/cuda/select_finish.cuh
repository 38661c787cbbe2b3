// select, fourth launch: the exact cut through the candidates, and what is above it in index order.
// filter has copied the few among which the cut lies; every block finds it by itself, counting
// their digits, and adds up what lies before its parts. So no block waits for another, unless
// filter did nothing: select_rounds.cuh. Without a filter: select_few.cuh.
#pragma once

#include "kernels/cuda/select_few.cuh"
#include "kernels/cuda/select_rounds.cuh"

namespace {

// The cut, as Search.base, and how many of those equal to it are in, as Search.wanted.
template <typename T>
__device__ inline Search<T> cut_inside(const Select &job, FinishRoom &room)
{
    const Key<T> *const keys = static_cast<const Key<T> *>(job.inside); // without the base
    const uint32_t n = job.control->inside;
    return narrow<T>(Search<T>{0, job.control->shift, job.control->wanted}, room.histogram,
                     room.digit, [&](auto body) {
                         for (uint32_t i = threadIdx.x; i < n; i += kFinishThreads)
                             body(keys[i]);
                     });
}

// The candidates before this warp's part; `cut` is without the base.
template <typename T>
__device__ inline Counts filtered_before(const Select &job, Key<T> cut, FinishRoom &room)
{
    const Key<T> *const keys = static_cast<const Key<T> *>(job.inside);
    const uint32_t n = job.control->inside, first = blockIdx.x * kFinishWarps;
    if (threadIdx.x < kFinishWarps)
        room.warps[threadIdx.x] = {0, 0};
    if (threadIdx.x == 0)
        room.sums = {0, 0};
    __syncthreads();
    Counts before = {0, 0};
    for (uint32_t block = threadIdx.x; block < blockIdx.x; block += kFinishThreads)
        before.above += job.control->above[block];
    for (uint32_t i = threadIdx.x; i < n; i += kFinishThreads) {
        const Key<T> key = keys[i];
        const uint32_t owner = job.owner[i];
        if (key < cut || owner >= first + kFinishWarps)
            continue;
        if (owner < first) {
            before.above += key > cut;
            before.equal += key == cut;
        } else {
            Counts &warp = room.warps[owner - first];
            atomicAdd(key > cut ? &warp.above : &warp.equal, 1);
        }
    }
    add_counts(room.sums, before);
    __syncthreads();
    Counts mine = {0, 0}; // of the warps of this block before this one
    if (lane_of() < threadIdx.x / kWarp) {
        mine = room.warps[lane_of()];
        mine.above += job.parts[first + lane_of()].above;
    }
    return {room.sums.above + warp_sum(mine.above), room.sums.equal + warp_sum(mine.equal)};
}

// Returns the cut.
template <typename T>
__device__ inline Key<T> finish_filtered(const Select &job, FinishRoom &room)
{
    const Search<T> cut = cut_inside<T>(job, room);
    const Counts before = filtered_before<T>(job, cut.base, room);
    const Key<T> key = static_cast<Key<T>>(job.control->base) + cut.base;
    scan_groups(job, room.parts);
    const Listed<T> items = {job, room.parts};
    write_part<T>(job, items, part_of(items.size(), Place{blockIdx.x}), key, cut.wanted, before,
                  Restore<T>{sum_of<T>(job.acc), job.clear});
    return key;
}

// Returns the cut; `wanted` becomes less if there are not so many.
template <typename T>
__device__ inline Key<T> finish_rounds(const Select &job, const Need &need, uint32_t &wanted,
                                       FinishRoom &room)
{
    Phases phases(*job.control, room.task);
    Search<T> search = {0, KeyOf<T>::kBits, wanted};
    if (need.missed)
        finish_direct(job, search, wanted, phases, room);
    else
        finish_listed(job, need, search, wanted, phases, room);
    return search.base;
}

// The two kinds of finish, behind a filter and without: a kernel for each, so that registers and shared memory
// of few burden no other. They return the cut, and `wanted` as finish_rounds.
template <typename T>
__device__ inline Key<T> finish(const Select &job, const Need &need, uint32_t &wanted,
                                FinishRoom &room)
{
    return job.control->filtered != 0 ? finish_filtered<T>(job, room)
                                      : finish_rounds<T>(job, need, wanted, room);
}

template <typename T>
union FinishFewRoom {
    FewRoom<T> few;
    FinishRoom rounds;
};

template <typename T>
__device__ inline Key<T> finish(const Select &job, const Need &need, uint32_t &wanted,
                                FinishFewRoom<T> &room)
{
    return need.missed ? finish_rounds<T>(job, need, wanted, room.rounds)
                       : finish_few<T>(job, need, room.few);
}

template <typename T, typename Room>
__global__ void __launch_bounds__(kFinishThreads, 1) select_finish(const Select job)
{
    __shared__ Room room;
    wait_for_previous();
    let_next_start();
    const Need need = need_of(job);
    uint32_t wanted = need.wanted;
    Key<T> cut = 0;
    if (wanted != 0)
        cut = finish<T>(job, need, wanted, room);
    if (blockIdx.x != 0 || threadIdx.x != 0)
        return;
    if (job.out.count != nullptr)
        *job.out.count = wanted;
    if (job.kth != nullptr)
        *static_cast<T *>(job.kth) = wanted == 0 ? T(0) : magnitude(cut);
    if (job.fallbacks != nullptr && need.missed)
        *job.fallbacks += 1;
}

} // namespace
