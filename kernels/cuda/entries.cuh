// Shared by the kernels on lists of entries, beyond sparse.cuh: reading and writing values,
// searching indices, dividing sums.
//
// The lists of an aborted call may hold anything, counts and indices too. So a count is never taken
// for more than the list's capacity, an index is compared with the tensor before it is used, and
// searches end whatever they find.
#pragma once

#include "kernels/cuda/loads.cuh"
#include "kernels/cuda/sparse.cuh"

namespace {

constexpr uint32_t kThreads = 256; // of every block here, unless it says otherwise
constexpr uint32_t kMaxBlocks =
    1056; // of a grid whose work may be less: eight per multiprocessor of an H100

// Scratch that the kernels in files that include this take at most: tables of one entry per block.
constexpr size_t kEntriesScratch = 1 << 16;

// ----------------------------------------------------------------------------------------- values

// Element i of `values`, on its way: T is f64 for f64, and f32 for all others. Always one load, so
// that none has to wait for another: a bf16 comes with the other half of its word, which the memory
// of lists always has.
template <typename T>
__device__ inline Key<T> load_bits(bool wanted, const void *values, trib_dtype dtype, size_t i)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(values);
    const uintptr_t word = dtype == TRIB_BF16 ? (at + 2 * i) & ~uintptr_t{3} : at + sizeof(T) * i;
    return load_if(wanted, reinterpret_cast<const Key<T> *>(word), Key<T>{0});
}

// The value of what was loaded, 0 if it was not wanted.
template <typename T>
__device__ inline T value_of(Key<T> bits, const void *values, trib_dtype dtype, size_t i)
{
    if constexpr (sizeof(T) == 8)
        return __longlong_as_double(static_cast<long long>(bits));
    const bool upper = (reinterpret_cast<uintptr_t>(values) / 2 + i) % 2 != 0;
    const uint32_t word = static_cast<uint32_t>(bits);
    return __uint_as_float(dtype != TRIB_BF16 ? word : upper ? word & 0xffff0000u : word << 16);
}

// Index and value of an entry, on their way.
template <typename T>
struct Loaded {
    uint32_t index;
    Key<T> bits;
};

// UINT32_MAX, which is no index, if it is not wanted.
template <typename T>
__device__ inline Loaded<T> load_entry(bool wanted, const tri_entries &entries, size_t i)
{
    return {load_if(wanted, entries.index + i, UINT32_MAX),
            load_bits<T>(wanted, entries.value, entries.dtype, i)};
}

template <typename T>
__device__ inline T value_of(const Loaded<T> &loaded, const tri_entries &entries, size_t i)
{
    return value_of<T>(loaded.bits, entries.value, entries.dtype, i);
}

template <typename T>
__device__ inline void put_value(void *values, trib_dtype dtype, size_t i, T value)
{
    if constexpr (sizeof(T) == 8)
        static_cast<T *>(values)[i] = value;
    else if (dtype == TRIB_BF16)
        narrow(static_cast<Bf16 *>(values)[i], value);
    else
        static_cast<float *>(values)[i] = value;
}

// -------------------------------------------------------------------------------------- searching

// The number of sorted[0, n) below `bound`: by a whole warp, which looks at 32 places at once.
__device__ inline uint32_t count_below(const uint32_t *sorted, uint32_t n, uint64_t bound)
{
    const uint32_t lane = lane_of();
    uint32_t low = 0, left = n;
    while (left != 0) {
        const uint32_t step = left / kWarp + (left % kWarp != 0);
        const uint32_t place = lane * step + (step - 1); // the last of this lane's share
        const bool below = place < left && sorted[low + static_cast<size_t>(place)] < bound;
        const uint32_t skip = __popc(__ballot_sync(kAllLanes, below)) * step;
        low += skip;
        if (step == 1)
            break;
        left = min(left - skip, step);
    }
    return low;
}

// The first place in [low, high) whose index is not below `bound`, or high: by one thread.
__device__ inline uint32_t first_at_least(const uint32_t *sorted, uint32_t low, uint32_t high,
                                          uint32_t bound)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (sorted[middle] < bound)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// -------------------------------------------------------------------------------------- quotients

// The divisor of sums, in T. A power of two is multiplied with its inverse: the same bits,
// since both are rounded once. A 0, of which there are many, is not divided: the processor has no
// fast way.
template <typename T>
struct Divisor {
    T value, inverse;
    bool exact;
};

template <typename T>
inline Divisor<T> divisor_of(double divisor)
{
    bool exact = divisor >= 1 && divisor <= 65536;
    double half = divisor;
    while (exact && half > 1)
        half /= 2;
    exact = exact && half == 1;
    return {static_cast<T>(divisor), static_cast<T>(1 / divisor), exact};
}

__device__ inline float divided(float sum, const Divisor<float> &divisor)
{
    if (divisor.exact)
        return __fmul_rn(sum, divisor.inverse);
    return sum == 0 ? sum : __fdiv_rn(sum, divisor.value);
}

__device__ inline double divided(double sum, const Divisor<double> &divisor)
{
    if (divisor.exact)
        return __dmul_rn(sum, divisor.inverse);
    return sum == 0 ? sum : __ddiv_rn(sum, divisor.value);
}

// A sum whose key is not below this is infinite or NaN as an Out.
template <typename Out>
struct OverflowOf;
template <>
struct OverflowOf<F16> {
    static constexpr uint32_t kKey = 0x477ff000u;
};
template <>
struct OverflowOf<Bf16> {
    static constexpr uint32_t kKey = 0x7f7f8000u;
};
template <>
struct OverflowOf<float> {
    static constexpr uint32_t kKey = KeyOf<float>::kInfinity;
};
template <>
struct OverflowOf<double> {
    static constexpr uint64_t kKey = KeyOf<double>::kInfinity;
};

// out = sum / divisor. True if that is not finite.
template <typename Out, typename T>
__device__ inline bool put_quotient(Out &out, T sum, const Divisor<T> &divisor)
{
    const T quotient = divided(sum, divisor);
    narrow(out, quotient);
    return key_of(quotient) >= OverflowOf<Out>::kKey;
}

// A kernel that writes a result reports here whether a value of it is infinite or NaN. Any number
// of threads may write the same.
__device__ inline void note_overflow(uint32_t *overflow, bool overflows)
{
    if (overflows && overflow != nullptr)
        *overflow = 1;
}

// The sum of x over the block, for all its threads.
__device__ inline uint32_t block_sum(uint32_t x, ScanRoom<kThreads> &room)
{
    uint32_t total = 0;
    (void)block_exclusive(x, total, room);
    return total;
}

} // namespace
