// Sums and sums of squares of many values, in f64 and in the order of cpu/gauss.c.
//
// Block p is partial p of the 1,024 over tiles, thread t partial t of the 256 in a tile; so both take
// what is theirs in ascending order.
#pragma once

#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/entries.cuh"

namespace {

constexpr uint32_t kSumTile = 4096, kSums = 1024;

struct Sums {
    double plain, squares;
};

// What of an accumulator is added up.
enum Addend { kSum, kResidual, kGradient };
static_assert(kSums * sizeof(Sums) <= kEntriesScratch, "the partial sums exceed the scratch");

__device__ inline double at_least_0(double x)
{
    return x > 0 ? x : 0;
}

template <uint32_t Width>
__device__ inline void halve(double *row)
{
#pragma unroll
    for (uint32_t j = 0; j < Width; j++)
        row[j] = plus(row[j], row[j + Width]);
}

// The sum of partial[0, 32 * Rows) in pairs, from the widest on, for lane 0 of the warp that asks.
template <uint32_t Rows>
__device__ inline double add_pairs(const double *partial)
{
    static_assert(Rows == 8 || Rows == 32, "the sizes in use");
    double row[Rows];
#pragma unroll
    for (uint32_t j = 0; j < Rows; j++)
        row[j] = partial[j * kWarp + lane_of()];
    if constexpr (Rows == 32) {
        halve<16>(row);
        halve<8>(row);
    }
    halve<4>(row);
    halve<2>(row);
    halve<1>(row);
#pragma unroll
    for (uint32_t w = kWarp / 2; w > 0; w /= 2)
        row[0] = plus(row[0], __shfl_down_sync(kAllLanes, row[0], w));
    return row[0];
}

// This thread's partial sums of the tile that begins at `first`.
template <typename T>
__device__ inline Sums add_tile(const T *values, size_t first, size_t count)
{
    constexpr uint32_t kEach = kSumTile / kThreads;
    const size_t left = count - first;
    Sums sums = {0, 0};
    T x[kEach];
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) {
        const uint32_t i = j * kThreads + threadIdx.x;
        x[j] = i < left ? values[first + i] : T{}; // to add 0 changes no sum that began with 0
    }
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) {
        const double value = static_cast<double>(widen(x[j]));
        sums.plain = plus(sums.plain, value);
        sums.squares = plus(sums.squares, __dmul_rn(value, value));
    }
    return sums;
}

// The values of an accumulator that are added up: of the gradient of type T, or of acc's type T.
template <typename T, Addend Which>
__device__ inline const T *addends_of(const tri_accumulator &acc)
{
    if constexpr (Which == kGradient)
        return gradient_of<T>(acc);
    else
        return Which == kResidual ? residual_of<T>(acc) : sum_of<T>(acc);
}

template <typename T, Addend Which>
__global__ void __launch_bounds__(kThreads) add_tiles(const tri_accumulator acc, Sums *partials)
{
    // Two tiles' partials: while two warps add up one, the others are at the next.
    __shared__ double plain[2][kThreads], squares[2][kThreads];
    const T *values = addends_of<T, Which>(acc);
    const uint32_t warp = threadIdx.x / kWarp;
    double sum = 0;
    uint32_t side = 0;
    for (size_t first = static_cast<size_t>(blockIdx.x) * kSumTile; first < acc.count;
         first += static_cast<size_t>(kSums) * kSumTile, side ^= 1) {
        const Sums mine = add_tile(values, first, acc.count);
        plain[side][threadIdx.x] = mine.plain;
        squares[side][threadIdx.x] = mine.squares;
        __syncthreads();
        if (warp == 0)
            sum = plus(sum, add_pairs<kThreads / kWarp>(plain[side]));
        else if (warp == 1)
            sum = plus(sum, add_pairs<kThreads / kWarp>(squares[side]));
    }
    if (threadIdx.x == 0)
        partials[blockIdx.x].plain = sum;
    else if (threadIdx.x == kWarp)
        partials[blockIdx.x].squares = sum;
}

// The last step of both, by one block: the partials in pairs, then `finish`.
template <typename Finish>
__global__ void __launch_bounds__(kSums) add_partials(const Sums *partials, const Finish finish)
{
    __shared__ double plain[kSums], squares[kSums], sums[2];
    const uint32_t warp = threadIdx.x / kWarp;
    plain[threadIdx.x] = partials[threadIdx.x].plain;
    squares[threadIdx.x] = partials[threadIdx.x].squares;
    __syncthreads();
    if (warp < 2) {
        const double sum = add_pairs<kSums / kWarp>(warp == 0 ? plain : squares);
        if (lane_of() == 0)
            sums[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        finish(Sums{sums[0], sums[1]});
}

struct Norm {
    double *out;

    __device__ void operator()(const Sums &sums) const
    {
        *out = __dsqrt_rn(sums.squares);
    }
};

template <typename T, Addend Which, typename Finish>
trib_status launch_sums(const tri_accumulator *acc, Finish finish, void *scratch,
                        trib_stream stream)
{
    tri_accumulator from = *acc;
    Sums *partials = static_cast<Sums *>(scratch);
    void *tiles[] = {&from, &partials};
    void *last[] = {&partials, &finish};
    const trib_status status = launch_kernel<add_tiles<T, Which>>(kSums, kThreads, tiles, stream);
    if (status != TRIB_OK)
        return status;
    return launch_kernel<add_partials<Finish>>(1, kSums, last, stream);
}

} // namespace
