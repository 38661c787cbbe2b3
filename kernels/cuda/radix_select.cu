// radix_init, radix_histogram, radix_refine, count_ties, share_ties: a cut through entries, in
// rounds.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/partition.cuh"
#include "kernels/cuda/sparse_cuda.h"

namespace {

constexpr uint32_t kDigitBits = 11, kDigits = TRI_CUT_DIGITS;
constexpr uint32_t kDeep = 4; // loads of a thread that are on their way together
static_assert(kDigits == 1u << kDigitBits, "a digit has as many bits as the histogram has bins");

__host__ __device__ inline uint32_t shift_of(trib_dtype dtype, int round)
{
    return kDigitBits * static_cast<uint32_t>((dtype == TRIB_F64 ? 6 : 3) - 1 - round);
}

// ------------------------------------------------------------------------------------- radix_init

template <typename T>
__global__ void radix_init(tri_cut *cut, uint32_t k, const T *threshold)
{
    if (threshold != nullptr)
        *cut = {key_of(*threshold), 0, 1};
    else if (k == 0)
        *cut = {UINT64_MAX, 0, 1};
    else
        *cut = {0, k, 0};
}

// -------------------------------------------------------------------------------- radix_histogram

__global__ void __launch_bounds__(kThreads) clear_histogram(uint32_t *histogram)
{
    histogram[blockIdx.x * kThreads + threadIdx.x] = 0;
}

// Of a block that is alone the histogram is overwritten, otherwise it is 0 and added to.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    radix_histogram(const tri_entries entries, const tri_cut *cut, int round, uint32_t *histogram)
{
    __shared__ uint32_t bins[kDigits];
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads)
        bins[d] = 0;
    __syncthreads();
    const uint32_t shift = shift_of(entries.dtype, round);
    const uint32_t before = round == 0 ? 0 : shift + kDigitBits; // round 0: all keys agree
    const uint64_t prefix = round == 0 ? 0 : cut->key >> before;
    const uint32_t n = count_of(entries);
    const size_t stride = static_cast<size_t>(gridDim.x) * kDeep * kThreads;
    for (size_t base = static_cast<size_t>(blockIdx.x) * kDeep * kThreads; base < n;
         base += stride) {
        Key<T> bits[kDeep];
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            bits[j] = load_bits<T>(i < n, entries.value, entries.dtype, i);
        }
#pragma unroll
        for (uint32_t j = 0; j < kDeep; j++) {
            const size_t i = base + j * kThreads + threadIdx.x;
            const uint64_t key = key_of(value_of<T>(bits[j], entries.value, entries.dtype, i));
            if (key != 0 && (round == 0 || key >> before == prefix))
                atomicAdd(&bins[key >> shift & (kDigits - 1)], 1);
        }
    }
    __syncthreads();
    for (uint32_t d = threadIdx.x; d < kDigits; d += kThreads) {
        if (gridDim.x == 1)
            histogram[d] = bins[d];
        else if (bins[d] != 0)
            atomicAdd(&histogram[d], bins[d]);
    }
}

// ----------------------------------------------------------------------------------- radix_refine

// Thread t has the digits 2 * (1023 - t) + 1 and below it: so threads go from the highest down.
constexpr uint32_t kRefine = kDigits / 2;

// The sum of the threads before this one, in 64 bits: ranks' histograms have been added up.
__device__ inline uint64_t before_in_block(uint64_t own, uint64_t *room)
{
    const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    uint64_t sum = own;
    for (uint32_t step = 1; step < kWarp; step *= 2) {
        const uint64_t left = __shfl_up_sync(kAllLanes, sum, step);
        if (lane >= step)
            sum += left;
    }
    if (lane == kWarp - 1)
        room[warp] = sum;
    __syncthreads();
    uint64_t others = 0;
    for (uint32_t i = 0; i < warp; i++)
        others += room[i];
    return others + sum - own;
}

__device__ inline void found_digit(tri_cut *cut, uint32_t wanted, uint32_t digit, uint64_t above,
                                   uint32_t shift)
{
    cut->key |= static_cast<uint64_t>(digit) << shift;
    cut->ties = wanted - static_cast<uint32_t>(above);
    cut->done = shift == 0;
}

__global__ void __launch_bounds__(kRefine)
    radix_refine(tri_cut *cut, int round, const uint32_t *histogram, uint32_t shift)
{
    __shared__ uint64_t room[kRefine / kWarp];
    if (cut->done != 0) // the same for all threads: it is written after the barrier below
        return;
    const uint32_t wanted = cut->ties;
    const uint32_t digit = 2 * (kRefine - 1 - threadIdx.x) + 1;
    const uint32_t high = histogram[digit], low = histogram[digit - 1];
    const uint64_t above = before_in_block(static_cast<uint64_t>(high) + low, room);
    const uint64_t with_high = above + high, with_low = with_high + low;
    if (above < wanted && with_high >= wanted)
        found_digit(cut, wanted, digit, above, shift);
    else if (with_high < wanted && with_low >= wanted)
        found_digit(cut, wanted, digit - 1, with_high, shift);
    else if (digit == 1 && with_low < wanted && round == 0)
        *cut = {0, 0, 1}; // all of them are fewer than wanted
    else if (digit == 1 && with_low < wanted)
        found_digit(cut, wanted, 0, with_low, shift);
}

// ------------------------------------------------------------------------------------------- ties

template <typename T>
struct Ties {
    using Type = T;
    tri_entries entries;
    const tri_cut *cut;

    __device__ uint32_t n() const
    {
        return count_of(entries);
    }
    __device__ Level level() const
    {
        return {cut->key, 0};
    }
    __device__ Key<T> load(uint32_t i, bool wanted) const
    {
        return load_bits<T>(wanted, entries.value, entries.dtype, i);
    }
    __device__ T value(uint32_t i, Key<T> bits) const
    {
        return value_of<T>(bits, entries.value, entries.dtype, i);
    }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    count_ties(const Ties<T> items, Found *table, uint32_t *ties)
{
    const Found mine = count_piece(items);
    if (threadIdx.x != 0)
        return;
    table[blockIdx.x] = mine;
    if (gridDim.x == 1)
        *ties = items.cut->key == 0 ? 0 : mine.ties;
}

__global__ void __launch_bounds__(kThreads)
    add_ties(const tri_cut *cut, const Found *table, uint32_t pieces, uint32_t *ties)
{
    __shared__ ScanRoom<kThreads> room;
    uint32_t sum = 0;
    for (uint32_t piece = threadIdx.x; piece < pieces; piece += kThreads)
        sum += table[piece].ties;
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        *ties = cut->key == 0 ? 0 : sum;
}

template <typename T>
trib_status launch_count_ties(const tri_entries *entries, const tri_cut *cut, uint32_t *ties,
                              void *scratch, trib_stream stream)
{
    Ties<T> items = {*entries, cut};
    Found *table = static_cast<Found *>(scratch);
    uint32_t blocks = pieces_for(entries->capacity);
    void *count[] = {&items, &table, &ties};
    void *add[] = {&cut, &table, &blocks, &ties};
    const trib_status status = launch_kernel<count_ties<T>>(blocks, kThreads, count, stream);
    if (status != TRIB_OK || blocks == 1)
        return status;
    return launch_kernel<add_ties>(1, kThreads, add, stream);
}

// Rank r's ties lie before those of the ranks above it.
__global__ void share_ties(tri_cut *cut, const uint32_t *ties, int32_t rank)
{
    uint32_t left = cut->ties;
    for (int32_t r = 0; r < rank; r++)
        left -= min(ties[r], left);
    cut->ties = min(ties[rank], left);
}

} // namespace

trib_status tri_cuda_sparse_radix_init(struct tri_cut *cut, uint32_t k, const void *threshold,
                                       trib_dtype dtype, trib_stream stream)
{
    void *arguments[] = {&cut, &k, &threshold};
    return dispatch_sum(dtype, [&](auto sum) {
        return launch_kernel<radix_init<decltype(sum)>>(1, 1, arguments, stream);
    });
}

trib_status tri_cuda_sparse_radix_histogram(const struct tri_entries *entries,
                                            const struct tri_cut *cut, int round,
                                            uint32_t *histogram, trib_stream stream)
{
    tri_entries list = *entries;
    const uint32_t blocks = list.capacity <= 4096 ? 1 : blocks_for(list.capacity, 4096, 528);
    void *clear[] = {&histogram};
    void *arguments[] = {&list, &cut, &round, &histogram};
    if (blocks != 1) {
        const trib_status status =
            launch_kernel<clear_histogram>(kDigits / kThreads, kThreads, clear, stream);
        if (status != TRIB_OK)
            return status;
    }
    return dispatch_sum(list.dtype, [&](auto sum) {
        return launch_kernel<radix_histogram<decltype(sum)>>(blocks, kThreads, arguments, stream);
    });
}

trib_status tri_cuda_sparse_radix_refine(struct tri_cut *cut, int round, const uint32_t *histogram,
                                         trib_dtype dtype, trib_stream stream)
{
    uint32_t shift = shift_of(dtype, round);
    void *arguments[] = {&cut, &round, &histogram, &shift};
    return launch_kernel<radix_refine>(1, kRefine, arguments, stream);
}

trib_status tri_cuda_sparse_count_ties(const struct tri_entries *entries, const struct tri_cut *cut,
                                       uint32_t *ties, void *scratch, trib_stream stream)
{
    return dispatch_sum(entries->dtype, [&](auto sum) {
        return launch_count_ties<decltype(sum)>(entries, cut, ties, scratch, stream);
    });
}

trib_status tri_cuda_sparse_share_ties(struct tri_cut *cut, const uint32_t *ties, int32_t rank,
                                       trib_stream stream)
{
    void *arguments[] = {&cut, &ties, &rank};
    return launch_kernel<share_ties>(1, 1, arguments, stream);
}
