// select, third launch: the exact cut through the candidates, and what is above it in index order. In
// several phases: in each something is counted, and the next needs the sums.
//
// A phase has as many tasks as the grid has blocks. A block draws one task after the other, and then
// waits for those that others have drawn. So it waits for running blocks only, and it does not matter
// how many blocks there is room for at the same time: other kernels may keep the device busy.
//
//   1. The key of the last that is wanted. gather has counted the candidates by their distance from
//      the guess, so mostly one round of counting, over those with the right distance, is left.
//   2. Every warp takes an equal part of the candidates, in index order, and counts what is in.
//   3. Knowing what lies in the parts before its own it writes what is in, and gives back what is not.
//
// If the guess missed, or there was no room for the candidates, the same is done over acc itself.
#pragma once

#include "kernels/cuda/select.cuh"

namespace {

constexpr uint32_t kRows = 4; // of 32 elements that a warp loads before it looks at them

// Parts are equal in this sense: to pass a tile costs as much as so many candidates.
constexpr uint32_t kTileWeight = 16;

struct FinishRoom {
    uint32_t histogram[kDigits];
    uint32_t before[kGroups]; // candidates in the groups before
    Counts sums;
    uint32_t task;
    DigitRoom<kFinishThreads> digit;
    ScanRoom<kFinishThreads> scan;
};

class Phases {
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
            while (*static_cast<volatile uint32_t *>(&control_.done[phase_]) < gridDim.x) {
            }
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

// The threads of all blocks, if block `task` is this one.
struct Place {
    uint32_t task;

    __device__ uint32_t thread() const
    {
        return task * kFinishThreads + threadIdx.x;
    }

    __device__ static uint32_t threads()
    {
        return gridDim.x * kFinishThreads;
    }

    __device__ uint32_t warp() const
    {
        return thread() / kWarp;
    }

    __device__ static uint32_t warps()
    {
        return gridDim.x * kFinishWarps;
    }
};

// The wanted-th largest key lies in [base, base + 2^shift): `wanted` is its rank there.
template <typename T>
struct Search {
    Key<T> base;
    int shift;
    uint32_t wanted;
};

// ----------------------------------------------------------------------------------------- the cut

// Count digits of those of `values` that are above `floor` and in the interval.
template <typename T>
__device__ inline void count_digits(const T *values, uint64_t n, Key<T> floor,
                                    const Search<T> &search, int next, uint32_t *sums,
                                    Place place, FinishRoom &room)
{
    for (uint32_t d = threadIdx.x; d < kDigits; d += kFinishThreads)
        room.histogram[d] = 0;
    __syncthreads();
    const uint64_t stride = Place::threads();
    for (uint64_t begin = place.thread(); begin < n; begin += kRows * stride) {
        T value[kRows];
#pragma unroll
        for (uint32_t r = 0; r < kRows; r++)
            value[r] = begin + r * stride < n ? __ldcg(values + begin + r * stride) : T(0);
#pragma unroll
        for (uint32_t r = 0; r < kRows; r++) {
            const Key<T> key = key_of(value[r]), distance = key - search.base;
            if (key > floor && key >= search.base && distance >> search.shift == 0)
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
// also(place) is done in the first phase.
template <typename T, typename Also>
__device__ inline void search_key(const T *values, uint64_t n, Key<T> floor, Search<T> &search,
                                  uint32_t &wanted, Control &control, Phases &phases,
                                  FinishRoom &room, Also also)
{
    for (uint32_t round = 0; search.shift > 0 && wanted != 0; round++) {
        const int next = search.shift > static_cast<int>(kDigitBits)
                             ? search.shift - static_cast<int>(kDigitBits)
                             : 0;
        phases.run([&](uint32_t task) {
            if (round == 0)
                also(Place{task});
            count_digits(values, n, floor, search, next, control.digits[round], Place{task}, room);
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

// ------------------------------------------------------------------------------------------- parts

// Groups of neighbouring tiles: `per` each.
__device__ inline uint32_t tiles_a_group(const Select &job)
{
    return (job.tiles + kGroups - 1) / kGroups;
}

// How many candidates each group has: a warp a group.
__device__ inline void count_groups(const Select &job, Place place)
{
    const uint32_t per = tiles_a_group(job), groups = (job.tiles + per - 1) / per;
    for (uint32_t group = place.warp(); group < groups; group += Place::warps()) {
        const uint64_t begin = static_cast<uint64_t>(group) * per;
        uint32_t sum = 0;
        for (uint64_t tile = begin + lane_of(); tile < begin + per && tile < job.tiles;
             tile += kWarp)
            sum += job.tile[tile].count;
        sum = warp_sum(sum);
        if (lane_of() == 0)
            job.groups[group] = sum;
    }
}

// room.before, from the groups' numbers.
__device__ inline void scan_groups(const Select &job, FinishRoom &room)
{
    constexpr uint32_t kEach = kGroups / kFinishThreads;
    const uint32_t per = tiles_a_group(job), groups = (job.tiles + per - 1) / per;
    uint32_t mine[kEach], sum = 0, total;
#pragma unroll
    for (uint32_t i = 0; i < kEach; i++) {
        const uint32_t group = threadIdx.x * kEach + i;
        mine[i] = group < groups ? __ldcg(job.groups + group) : 0;
        sum += mine[i];
    }
    uint32_t before = block_exclusive<kFinishThreads>(sum, total, room.scan);
#pragma unroll
    for (uint32_t i = 0; i < kEach; i++) {
        room.before[threadIdx.x * kEach + i] = before;
        before += mine[i];
    }
    __syncthreads();
}

// A warp's part of `whole`.
struct Part {
    uint64_t begin, end;
};

__device__ inline Part part_of(uint64_t whole, Place place)
{
    const uint64_t each = (whole + Place::warps() - 1) / Place::warps();
    const uint64_t begin = place.warp() * each;
    return {min(begin, whole), min(begin + each, whole)};
}

// The candidates as a sequence in index order, every tile preceded by kTileWeight places that hold
// nothing.
template <typename T>
struct Listed {
    const Select &job;
    const FinishRoom &room;

    __device__ uint64_t size() const
    {
        return static_cast<uint64_t>(job.control->candidates) +
               static_cast<uint64_t>(job.tiles) * kTileWeight;
    }

    // Where a group begins.
    __device__ uint64_t place(uint32_t group, uint32_t per) const
    {
        return room.before[group] +
               min(static_cast<uint64_t>(group) * per, static_cast<uint64_t>(job.tiles)) *
                   kTileWeight;
    }

    // What lies in the part, row by row: row(is there an element for this lane, it, its index).
    template <bool Indices, typename Row>
    __device__ void walk(Part part, Row row) const
    {
        if (part.begin >= part.end)
            return;
        const uint32_t per = tiles_a_group(job);
        uint32_t low = 0, high = kGroups - 1; // the last group that begins at or before the part
        while (low < high) {
            const uint32_t middle = low + (high - low + 1) / 2;
            if (place(middle, per) <= part.begin)
                low = middle;
            else
                high = middle - 1;
        }
        uint64_t at = place(low, per);
        for (uint64_t tile = static_cast<uint64_t>(low) * per; tile < job.tiles && at < part.end;
             tile += kWarp) {
            const bool there = tile + lane_of() < job.tiles;
            const Tile mine = there ? job.tile[tile + lane_of()] : Tile{0, 0};
            const uint32_t weight = there ? mine.count + kTileWeight : 0;
            const uint32_t weights = warp_inclusive(weight);
            const uint64_t first = at + weights - mine.count; // the place of its first candidate
            at += __shfl_sync(kAllLanes, weights, kWarp - 1);
            rows<Indices>(mine.base, clipped(part.begin, first, mine.count),
                          clipped(part.end, first, mine.count), row);
        }
    }

    // How many of `count` places from `first` on lie before `place`.
    __device__ static uint32_t clipped(uint64_t place, uint64_t first, uint32_t count)
    {
        return place <= first ? 0 : place - first < count ? static_cast<uint32_t>(place - first)
                                                          : count;
    }

    // Candidates [base + begin, base + end) of every lane's tile, one lane after the other.
    template <bool Indices, typename Row>
    __device__ void rows(uint32_t base, uint32_t begin, uint32_t end, Row &row) const
    {
        const uint32_t n = end - begin;
        const uint32_t inclusive = warp_inclusive(n);
        const uint32_t total = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
        const uint32_t offset = base + begin - (inclusive - n); // of places from items
        for (uint32_t item = 0; item < total; item += kRows * kWarp) {
            T value[kRows];
            uint32_t index[kRows];
#pragma unroll
            for (uint32_t r = 0; r < kRows; r++) {
                const uint32_t mine = item + r * kWarp + lane_of();
                uint32_t owner = 0; // how many lanes' items all lie before mine
#pragma unroll
                for (uint32_t step = kWarp / 2; step > 0; step /= 2)
                    owner += __shfl_sync(kAllLanes, inclusive, owner + step - 1) <= mine ? step : 0;
                const uint32_t at = mine + __shfl_sync(kAllLanes, offset, owner);
                value[r] = mine < total ? static_cast<const T *>(job.value)[at] : T(0);
                index[r] = Indices && mine < total ? job.index[at] : 0;
            }
#pragma unroll
            for (uint32_t r = 0; r < kRows; r++)
                row(item + r * kWarp + lane_of() < total, value[r], index[r]);
        }
    }
};

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
                value[r] = mine + r * kWarp < part.end ? __ldcg(sum + job.first + mine + r * kWarp)
                                                       : T(0);
#pragma unroll
            for (uint32_t r = 0; r < kRows; r++)
                row(mine + r * kWarp < part.end, value[r],
                    static_cast<uint32_t>(job.first + mine + r * kWarp));
        }
    }
};

// ----------------------------------------------------------------------------------------- emission

// What this warp's part holds: known to all after the phase.
__device__ inline void tell(const Select &job, Counts mine, Place place)
{
    if (lane_of() == 0)
        job.parts[place.warp()] = mine;
}

__device__ inline Counts load_counts(const Counts *counts)
{
    return {__ldcg(&counts->above), __ldcg(&counts->equal)};
}

// What all tasks hold: what lies before each.
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

// What lies before this warp's part.
__device__ inline Counts counts_before(const Select &job, Place place, FinishRoom &room)
{
    scan_tasks(job, place.task, room);
    const uint32_t warp = threadIdx.x / kWarp;
    Counts sum = {0, 0};
    if (lane_of() < warp)
        sum = load_counts(&job.parts[place.task * kFinishWarps + lane_of()]);
    return {room.sums.above + warp_sum(sum.above), room.sums.equal + warp_sum(sum.equal)};
}

// Write what is above `cut`, and the first `ties` of what is equal to it. Written(value, index, in)
// does to acc what has to be done.
template <typename T, typename Items, typename Written>
__device__ inline void emit(const Select &job, const Items &items, Key<T> cut, uint32_t ties,
                            Phases &phases, FinishRoom &room, Written written)
{
    phases.run([&](uint32_t task) {
        Counts mine = {0, 0};
        items.template walk<false>(
            part_of(items.size(), Place{task}), [&](bool there, T value, uint32_t) {
                const Key<T> key = key_of(value);
                mine.above += there && key > cut;
                mine.equal += there && key == cut;
            });
        tell(job, {warp_sum(mine.above), warp_sum(mine.equal)}, Place{task});
    });
    phases.run_last([&](uint32_t task) {
        Counts before = counts_before(job, Place{task}, room);
        const uint32_t lower = (1u << lane_of()) - 1;
        items.template walk<true>(
            part_of(items.size(), Place{task}), [&](bool there, T value, uint32_t index) {
                const Key<T> key = key_of(value);
                const uint32_t above = __ballot_sync(kAllLanes, there && key > cut);
                const uint32_t equal = __ballot_sync(kAllLanes, there && key == cut);
                const uint32_t tie = before.equal + __popc(equal & lower);
                const bool in = key > cut || (key == cut && tie < ties);
                if (there && in) {
                    const uint32_t place =
                        before.above + __popc(above & lower) + min(tie, ties);
                    job.out.index[place] = index;
                    put_entry(job.out.value, job.out.dtype, place, value);
                }
                if (there)
                    written(value, index, in);
                before.above += __popc(above);
                before.equal += __popc(equal);
            });
    });
}

template <typename T>
__device__ inline void finish_listed(const Select &job, Search<T> &search, uint32_t &wanted,
                                     Phases &phases, FinishRoom &room)
{
    const T *values = static_cast<const T *>(job.value);
    const uint32_t candidates = job.control->candidates;
    load_digits(job.control->window, room);
    uint32_t total;
    const uint32_t digit =
        find_digit(room.histogram, candidates, search.wanted, total, room.digit);
    if (digit != kDigits) {
        search.base = static_cast<Key<T>>(job.control->low) +
                      (static_cast<Key<T>>(digit) << kWindowShift<T>);
        search.shift = kWindowShift<T>;
    }
    search_key(values, candidates, Key<T>(0), search, wanted, *job.control, phases, room,
               [&](Place place) { count_groups(job, place); });
    scan_groups(job, room);
    T *const sum = sum_of<T>(job.acc);
    emit<T>(job, Listed<T>{job, room}, search.base, search.wanted, phases, room,
            [&](T value, uint32_t index, bool in) {
                if (!in && job.clear)
                    sum[index] = value;
            });
}

template <typename T>
__device__ inline void finish_direct(const Select &job, uint32_t stored, Search<T> &search,
                                     uint32_t &wanted, Phases &phases, FinishRoom &room)
{
    T *const sum = sum_of<T>(job.acc);
    if (job.clear) { // what gather has taken out
        phases.run([&](uint32_t task) {
            for (uint64_t i = Place{task}.thread(); i < stored; i += Place::threads())
                sum[job.index[i]] = static_cast<const T *>(job.value)[i];
        });
    }
    search_key(sum + job.first, job.count, static_cast<Key<T>>(job.control->floor), search, wanted,
               *job.control, phases, room, [](Place) {});
    if (wanted == 0)
        return;
    emit<T>(job, Direct<T>{job, sum}, search.base, search.wanted, phases, room,
            [&](T value, uint32_t index, bool in) {
                if (in && job.clear)
                    sum[index] = left_of(value, job.out.dtype);
            });
}

template <typename T>
__global__ void __launch_bounds__(kFinishThreads, 1) select_finish(const Select job)
{
    __shared__ FinishRoom room;
    const uint32_t candidates = job.control->candidates, lost = job.control->lost;
    const bool all = job.control->low == job.control->floor + 1; // that may be selected
    const bool missed = job.k != 0 && (lost != 0 || (candidates < job.k && !all));
    uint32_t wanted = missed || job.k < candidates ? job.k : candidates;
    Phases phases(*job.control, room.task);
    Search<T> search = {0, KeyOf<T>::kBits, wanted};
    if (missed)
        finish_direct(job, lost != 0 ? ~lost : candidates, search, wanted, phases, room);
    else if (wanted != 0)
        finish_listed(job, search, wanted, phases, room);
    if (blockIdx.x != 0 || threadIdx.x != 0)
        return;
    if (job.out.count != nullptr)
        *job.out.count = wanted;
    if (job.kth != nullptr)
        *static_cast<T *>(job.kth) = wanted == 0 ? T(0) : magnitude(search.base);
    if (job.fallbacks != nullptr && missed)
        *job.fallbacks += 1;
}

} // namespace
