// select, the fallback of finish, if the guess missed, if there was no room for the candidates, or
// if too many are nearly equal: a radix select of the candidates or of acc itself, in phases. Each
// phase counts something, and the next one needs the sums.
//
// A phase has as many tasks as the grid has blocks. A block draws one task after the other, and
// then waits for those that others have drawn. So it waits for running blocks only, and it does not
// matter how many blocks there is room for at the same time: other kernels may keep the device
// busy.
#pragma once

#include "kernels/cuda/select_filter.cuh"

namespace {

struct FinishRoom {
    uint32_t histogram[kDigits];
    Counts sums;
    Counts warps[kFinishWarps];
    uint32_t task;
    DigitRoom<kFinishThreads> digit;
    PartsRoom parts;
};

class Phases
{
  public:
    __device__ Phases(Control &control, uint32_t &task) : control_(control), task_(task)
    {
        if (threadIdx.x == 0)
            task_ = atomicAdd(&control_.drawn[0], 1);
        __syncthreads();
    }

    // body(task), for some of the tasks of the next phase.
    template <typename Body>
    __device__ void run_last(Body body)
    {
        uint32_t task = task_;
        __syncthreads();
        while (task < gridDim.x) {
            uint32_t next = 0;
            if (threadIdx.x == 0)
                next = atomicAdd(&control_.drawn[phase_], 1);
            body(task);
            __syncthreads();
            if (threadIdx.x == 0) {
                __threadfence();
                atomicAdd(&control_.done[phase_], 1);
                task_ = next;
            }
            __syncthreads();
            task = task_;
            __syncthreads();
        }
    }

    // The same. When it returns, all of them are done, and what they wrote is seen by all, in loads
    // past the first cache.
    template <typename Body>
    __device__ void run(Body body)
    {
        run_last(body);
        if (threadIdx.x == 0) {
            task_ = atomicAdd(&control_.drawn[phase_ + 1], 1);
            while (*static_cast<volatile uint32_t *>(&control_.done[phase_]) < gridDim.x) {}
            __threadfence();
        }
        __syncthreads();
        phase_++;
    }

  private:
    Control &control_;
    uint32_t &task_; // of the next phase: in shared memory
    uint32_t phase_ = 0;
};

// ----------------------------------------------------------------------------------------- the cut

// The searched values: those of n whose keys are above `floor`.
template <typename T>
struct Values {
    const T *value;
    uint64_t n;
    Key<T> floor;
};

// Count digits of those that are in the interval.
template <typename T>
__device__ inline void count_digits(const Values<T> &values, const Search<T> &search, int next,
                                    uint32_t *sums, Place place, FinishRoom &room)
{
    for (uint32_t d = threadIdx.x; d < kDigits; d += kFinishThreads)
        room.histogram[d] = 0;
    __syncthreads();
    const uint64_t stride = Place::threads();
    for (uint64_t begin = place.thread(); begin < values.n; begin += kRows * stride) {
        T value[kRows];
#pragma unroll
        for (uint32_t r = 0; r < kRows; r++)
            value[r] =
                begin + r * stride < values.n ? __ldcg(values.value + begin + r * stride) : T(0);
#pragma unroll
        for (uint32_t r = 0; r < kRows; r++) {
            const Key<T> key = key_of(value[r]), distance = key - search.base;
            if (key > values.floor && key >= search.base && distance >> search.shift == 0)
                atomicAdd(&room.histogram[distance >> next], 1);
        }
    }
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < kDigits; d += kFinishThreads)
        if (room.histogram[d] != 0)
            atomicAdd(&sums[d], room.histogram[d]);
}

__device__ inline void load_digits(const uint32_t *sums, FinishRoom &room)
{
    for (uint32_t d = threadIdx.x; d < kDigits; d += kFinishThreads)
        room.histogram[d] = __ldcg(sums + d);
    __syncthreads();
}

// Search until the key is known. `wanted` and search.wanted become less if there are not so many.
template <typename T>
__device__ inline void search_key(const Values<T> &values, Search<T> &search, uint32_t &wanted,
                                  Control &control, Phases &phases, FinishRoom &room)
{
    for (uint32_t round = 0; search.shift > 0 && wanted != 0; round++) {
        const int next = search.shift > static_cast<int>(kDigitBits)
                             ? search.shift - static_cast<int>(kDigitBits)
                             : 0;
        phases.run([&](uint32_t task) {
            count_digits(values, search, next, control.digits[round], Place{task}, room);
        });
        load_digits(control.digits[round], room);
        uint32_t total, digit = find_digit(room.histogram, 0, search.wanted, total, room.digit);
        if (digit == kDigits) { // only in the first round
            wanted = search.wanted = total;
            if (total == 0)
                return;
            digit = find_digit(room.histogram, 0, search.wanted, total, room.digit);
        }
        search.base += static_cast<Key<T>>(digit) << next;
        search.shift = next;
    }
}

// ----------------------------------------------------------------------------------------- writing

// The range of acc as it is in memory.
template <typename T>
struct Direct {
    const Select &job;
    const T *sum;

    __device__ uint64_t size() const
    {
        return job.count;
    }

    template <bool Indices, typename Row>
    __device__ void walk(Part part, Row row) const
    {
        for (uint64_t begin = part.begin; begin < part.end; begin += kRows * kWarp) {
            T value[kRows];
            const uint64_t mine = begin + lane_of();
#pragma unroll
            for (uint32_t r = 0; r < kRows; r++)
                value[r] =
                    mine + r * kWarp < part.end ? __ldcg(sum + job.first + mine + r * kWarp) : T(0);
#pragma unroll
            for (uint32_t r = 0; r < kRows; r++)
                row(mine + r * kWarp < part.end, value[r],
                    static_cast<uint32_t>(job.first + mine + r * kWarp));
        }
    }
};

// Write the counts of this warp's part, for all to read after the phase.
__device__ inline void publish(const Select &job, Counts mine, Place place)
{
    if (lane_of() == 0)
        job.parts[place.warp()] = mine;
}

__device__ inline Counts load_counts(const Counts *counts)
{
    return {__ldcg(&counts->above), __ldcg(&counts->equal)};
}

// Add up the counts of the tasks before `task`.
__device__ inline void scan_tasks(const Select &job, uint32_t task, FinishRoom &room)
{
    if (threadIdx.x == 0)
        room.sums = {0, 0};
    __syncthreads();
    Counts sum = {0, 0};
    for (uint32_t part = threadIdx.x; part < task * kFinishWarps; part += kFinishThreads) {
        const Counts one = load_counts(&job.parts[part]);
        sum.above += one.above;
        sum.equal += one.equal;
    }
    sum = {warp_sum(sum.above), warp_sum(sum.equal)};
    if (lane_of() == 0) {
        atomicAdd(&room.sums.above, sum.above);
        atomicAdd(&room.sums.equal, sum.equal);
    }
    __syncthreads();
}

// The counts before this warp's part.
__device__ inline Counts counts_before(const Select &job, Place place, FinishRoom &room)
{
    scan_tasks(job, place.task, room);
    const uint32_t warp = threadIdx.x / kWarp;
    Counts sum = {0, 0};
    if (lane_of() < warp)
        sum = load_counts(&job.parts[place.task * kFinishWarps + lane_of()]);
    return {room.sums.above + warp_sum(sum.above), room.sums.equal + warp_sum(sum.equal)};
}

// write_part of all parts, when all are counted.
template <typename T, typename Items, typename Written>
__device__ inline void emit(const Select &job, const Items &items, Key<T> cut, uint32_t ties,
                            Phases &phases, FinishRoom &room, Written written)
{
    phases.run([&](uint32_t task) {
        Counts mine = {0, 0};
        items.template walk<false>(part_of(items.size(), Place{task}),
                                   [&](bool there, T value, uint32_t) {
                                       const Key<T> key = key_of(value);
                                       mine.above += there && key > cut;
                                       mine.equal += there && key == cut;
                                   });
        publish(job, {warp_sum(mine.above), warp_sum(mine.equal)}, Place{task});
    });
    phases.run_last([&](uint32_t task) {
        write_part<T>(job, items, part_of(items.size(), Place{task}), cut, ties,
                      counts_before(job, Place{task}, room), written);
    });
}

// The candidates, if filter did nothing.
template <typename T>
__device__ inline void finish_listed(const Select &job, const Need &need, Search<T> &search,
                                     uint32_t &wanted, Phases &phases, FinishRoom &room)
{
    uint32_t inside;
    search = find_interval<T>(job, need, room.histogram, room.digit, inside);
    search_key(Values<T>{static_cast<const T *>(job.value), places_of(job), 0}, search, wanted,
               *job.control, phases, room);
    scan_groups(job, room.parts);
    emit<T>(job, Listed<T>{job, room.parts}, search.base, search.wanted, phases, room,
            Restore<T>{sum_of<T>(job.acc), job.clear});
}

// All of acc.
template <typename T>
__device__ inline void finish_direct(const Select &job, Search<T> &search, uint32_t &wanted,
                                     Phases &phases, FinishRoom &room)
{
    T *const sum = sum_of<T>(job.acc);
    const T *const value = static_cast<const T *>(job.value);
    if (job.clear) { // restore what partition has cleared
        const uint32_t places = places_of(job);
        phases.run([&](uint32_t task) {
            for (uint64_t i = Place{task}.thread(); i < places; i += Place::threads())
                if (value[i] != T(0))
                    sum[job.index[i]] = value[i];
        });
    }
    search_key(Values<T>{sum + job.first, job.count, static_cast<Key<T>>(job.control->floor)},
               search, wanted, *job.control, phases, room);
    if (wanted == 0)
        return;
    emit<T>(job, Direct<T>{job, sum}, search.base, search.wanted, phases, room,
            [&](T value, uint32_t index, bool in) {
                if (in && job.clear)
                    sum[index] = left_of(value, job.out.dtype);
            });
}

} // namespace
