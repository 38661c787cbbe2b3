// select of few of not too many: the fourth launch without the third. Its blocks are few and so are the
// candidates: every block reads them all, once, and sets aside those of its own span of the tensor, and those
// in the interval, of which there are few. From these it knows the cut, and how many that are selected lie
// before its span. Within the span a bit an element says which are selected, and the bits before it at which
// place; so nothing is walked in index order.
//
// Instructions for each candidate take the time, not bytes: a block has those of one multiprocessor. Where
// there are more candidates than it can set aside, a block reads all of them for each step.
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

// Candidates of a thread. Where the value is 0 there is none, and the index may be any.
template <typename T>
struct FewRows {
    T value[kFewRows<T>];
    uint32_t index[kFewRows<T>];
};

// Candidates in shared memory, in no order.
template <typename T, uint32_t Room>
struct Aside {
    static constexpr uint32_t kRoom = Room;
    T value[Room];
    uint32_t index[Room];
    uint32_t n;

    // Those of a thread whose bit is set, from `at` on.
    __device__ void put(uint32_t at, const FewRows<T> &rows, uint32_t bits)
    {
        if (bits == 0)
            return;
#pragma unroll
        for (uint32_t r = 0; r < kFewRows<T>; r++)
            if ((bits >> r & 1) != 0) {
                value[at] = rows.value[r];
                index[at++] = rows.index[r];
            }
    }

    template <typename Body>
    __device__ void each(Body body) const
    {
        for (uint32_t i = threadIdx.x; i < n; i += kFinishThreads)
            body(value[i], index[i]);
    }
};

template <typename T>
struct FewRoom {
    uint32_t above[kFinishThreads], equal[kFinishThreads]; // bits of the span
    Counts before[kFinishThreads];                         // selected before each word of bits
    Counts sums;                                           // and before the span
    uint32_t histogram[kDigits];
    DigitRoom<kFinishThreads> digit;
    Aside<T, 512> near;                         // in the interval, of any span
    Aside<T, sizeof(T) == 8 ? 1024 : 2048> own; // of the span
};
static_assert(sizeof(FewRoom<float>) <= 48 << 10 && sizeof(FewRoom<double>) <= 48 << 10,
              "a block may have so much");

// All candidates, wherever warps of partition have put them.
template <typename T>
struct AllCandidates {
    const Select &job;
    uint32_t places;

    __device__ explicit AllCandidates(const Select &of) : job(of), places(places_of(of))
    {
    }

    // Those from `first` on.
    __device__ FewRows<T> load(uint32_t first) const
    {
        FewRows<T> rows;
#pragma unroll
        for (uint32_t r = 0; r < kFewRows<T>; r++) {
            const uint32_t at = first + threadIdx.x + r * kFinishThreads;
            rows.value[r] = at < places ? static_cast<const T *>(job.value)[at] : T(0);
            rows.index[r] = at < places ? job.index[at] : 0;
        }
        return rows;
    }

    template <typename Body>
    __device__ void each(Body body) const
    {
        for (uint32_t first = 0; first < places; first += kFewRows<T> * kFinishThreads) {
            const FewRows<T> rows = load(first);
#pragma unroll
            for (uint32_t r = 0; r < kFewRows<T>; r++)
                if (rows.value[r] != T(0))
                    body(rows.value[r], rows.index[r]);
        }
    }
};

template <typename T>
struct Few {
    const Select &job;
    FewRoom<T> &room;

    // The first index of the span.
    __device__ uint32_t begin() const
    {
        return static_cast<uint32_t>(job.first) + blockIdx.x * kFewSpan;
    }

    // Set the candidates of the span and of the interval aside. `rows` are the first ones. `above` becomes
    // how many, of this thread's, lie above the interval and before the span. False, for all threads:
    // there are too many of the span.
    __device__ bool set_aside(const AllCandidates<T> &all, FewRows<T> rows,
                              const Search<T> &interval, uint32_t &above) const
    {
        static_assert(kFewRows<T> * kFinishThreads < 1u << 16, "two sums share a word");
        static_assert(kFewRows<T> <= 32, "a bit a row");
        const Key<T> least = interval.base == 0 ? 1 : interval.base; // 0 is no candidate
        const Key<T> limit = interval.base + (Key<T>(1) << interval.shift);
        uint32_t own = 0, near = 0;
        above = 0;
        for (uint32_t first = 0;;) {
            uint32_t owns = 0, nears = 0; // a bit a row
#pragma unroll
            for (uint32_t r = 0; r < kFewRows<T>; r++) {
                const Key<T> key = key_of(rows.value[r]);
                above += key >= limit && rows.index[r] < begin();
                nears |= key - least < limit - least ? 1u << r : 0;
                owns |= key != 0 && rows.index[r] - begin() < kFewSpan ? 1u << r : 0;
            }
            uint32_t total;
            const uint32_t at = block_exclusive(
                __popc(owns) | static_cast<uint32_t>(__popc(nears)) << 16, total, room.digit.scan);
            const uint32_t own_at = own + (at & 0xffff), near_at = near + (at >> 16);
            own += total & 0xffff;
            near += total >> 16;
            if (own > room.own.kRoom) // near there is room for: finish_few has asked
                return false;
            room.own.put(own_at, rows, owns);
            room.near.put(near_at, rows, nears);
            first += kFewRows<T> * kFinishThreads;
            if (first >= all.places)
                break;
            rows = all.load(first);
        }
        if (threadIdx.x == 0) {
            room.own.n = own;
            room.near.n = near;
        }
        __syncthreads();
        return true;
    }

    // The cut, as Search.base, and how many of those equal to it are in, as Search.wanted.
    template <typename Items>
    __device__ Search<T> cut(const Search<T> &interval, const Items &items) const
    {
        return narrow<T>(interval, room.histogram, room.digit, [&](auto body) {
            items.each([&](T value, uint32_t) { body(key_of(value)); });
        });
    }

    // Count a candidate before the span that is selected, or equals the cut and may be.
    __device__ void count(Key<T> cut, T value, uint32_t index, Counts &before) const
    {
        before.above += index < begin() && key_of(value) > cut;
        before.equal += index < begin() && key_of(value) == cut;
    }

    // Note such a candidate of the span.
    __device__ void note(Key<T> cut, T value, uint32_t index) const
    {
        const uint32_t at = index - begin();
        if (at < kFewSpan && key_of(value) >= cut)
            atomicOr(&(key_of(value) > cut ? room.above : room.equal)[at / kWarp],
                     1u << at % kWarp);
    }

    // room.before, from these and what each thread has counted.
    __device__ void add_up(Counts counted) const
    {
        add_counts(room.sums, counted);
        __syncthreads();
        static_assert(kFewSpan < 1u << 16, "two sums share a word");
        uint32_t total;
        const uint32_t before =
            block_exclusive(__popc(room.above[threadIdx.x]) |
                                static_cast<uint32_t>(__popc(room.equal[threadIdx.x])) << 16,
                            total, room.digit.scan);
        room.before[threadIdx.x] = {room.sums.above + (before & 0xffff),
                                    room.sums.equal + (before >> 16)};
        __syncthreads();
    }

    // Write what of the span is selected, and restore what partition has cleared and is not.
    template <typename Items>
    __device__ void write(Key<T> cut, uint32_t ties, const Items &items) const
    {
        T *const sum = sum_of<T>(job.acc);
        items.each([&](T value, uint32_t index) {
            if (index - begin() >= kFewSpan)
                return;
            const Key<T> key = key_of(value);
            const uint32_t at = index - begin(), word = at / kWarp, lower = (1u << at % kWarp) - 1;
            const Counts before = room.before[word];
            const uint32_t tie = before.equal + __popc(room.equal[word] & lower);
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

    // By what has been set aside; `above` as set_aside says. Returns the cut.
    __device__ Key<T> finish_aside(const Search<T> &interval, uint32_t above) const
    {
        const Search<T> found = cut(interval, room.near);
        Counts before = {above, 0};
        room.near.each([&](T value, uint32_t index) { count(found.base, value, index, before); });
        room.own.each([&](T value, uint32_t index) { note(found.base, value, index); });
        add_up(before);
        write(found.base, found.wanted, room.own);
        return found.base;
    }

    // By all candidates, each time.
    __device__ Key<T> finish_all(const Search<T> &interval, const AllCandidates<T> &all) const
    {
        const Search<T> found = cut(interval, all);
        Counts before = {0, 0};
        all.each([&](T value, uint32_t index) {
            count(found.base, value, index, before);
            note(found.base, value, index);
        });
        add_up(before);
        write(found.base, found.wanted, all);
        return found.base;
    }
};

// Returns the cut.
template <typename T>
__device__ inline Key<T> finish_few(const Select &job, const Need &need, FewRoom<T> &room)
{
    const Few<T> few = {job, room};
    const AllCandidates<T> all(job);
    const bool fits = need.candidates <= gridDim.x * room.own.kRoom; // if they are spread evenly
    const FewRows<T> first = // on their way while the interval is looked for
        fits ? all.load(0) : FewRows<T>{};
    room.above[threadIdx.x] = room.equal[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        room.sums = {0, 0};
    uint32_t inside, above;
    const Search<T> interval = find_interval<T>(job, need, room.histogram, room.digit, inside);
    if (fits && inside <= room.near.kRoom && few.set_aside(all, first, interval, above))
        return few.finish_aside(interval, above);
    __syncthreads(); // find_interval has read `inside` where finish_all counts digits
    return few.finish_all(interval, all);
}

} // namespace
