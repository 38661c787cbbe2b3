// Walking over the accumulator at the speed of memory: four neighbouring elements at a time, each
// read and written once and past the caches.
#pragma once

#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/sparse.cuh"

namespace {

// What is read to make acc, and the type of the gradient's elements.
template <typename G>
struct Has {
    using Gradient = G;
    static constexpr bool kGradient = true, kVelocity = false;
};
template <>
struct Has<None> {
    using Gradient = None;
    static constexpr bool kGradient = false, kVelocity = false;
};
template <typename G>
struct Has<Momentum<G>> {
    using Gradient = G;
    static constexpr bool kGradient = true, kVelocity = true;
};

constexpr uint32_t kFour = 4;

// Aligned to four elements, but no more than 16 bytes.
__device__ inline void load_four(float (&out)[kFour], const float *in)
{
    const float4 x = __ldcs(reinterpret_cast<const float4 *>(in));
    out[0] = x.x;
    out[1] = x.y;
    out[2] = x.z;
    out[3] = x.w;
}

__device__ inline void load_four(double (&out)[kFour], const double *in)
{
    const double2 low = __ldcs(reinterpret_cast<const double2 *>(in));
    const double2 high = __ldcs(reinterpret_cast<const double2 *>(in) + 1);
    out[0] = low.x;
    out[1] = low.y;
    out[2] = high.x;
    out[3] = high.y;
}

// F16 or Bf16.
template <typename H>
__device__ inline void load_four(H (&out)[kFour], const H *in)
{
    const uint2 x = __ldcs(reinterpret_cast<const uint2 *>(in));
    out[0].bits = static_cast<uint16_t>(x.x);
    out[1].bits = static_cast<uint16_t>(x.x >> 16);
    out[2].bits = static_cast<uint16_t>(x.y);
    out[3].bits = static_cast<uint16_t>(x.y >> 16);
}

__device__ inline void store_four(float *out, const float (&in)[kFour])
{
    __stcs(reinterpret_cast<float4 *>(out), make_float4(in[0], in[1], in[2], in[3]));
}

__device__ inline void store_four(double *out, const double (&in)[kFour])
{
    __stcs(reinterpret_cast<double2 *>(out), make_double2(in[0], in[1]));
    __stcs(reinterpret_cast<double2 *>(out) + 1, make_double2(in[2], in[3]));
}

// In shared memory, aligned as a four.
__device__ inline void copy_four(float (&out)[kFour], const float (&in)[kFour])
{
    *reinterpret_cast<float4 *>(out) = make_float4(in[0], in[1], in[2], in[3]);
}

__device__ inline void copy_four(double (&out)[kFour], const double (&in)[kFour])
{
    reinterpret_cast<double2 *>(out)[0] = make_double2(in[0], in[1]);
    reinterpret_cast<double2 *>(out)[1] = make_double2(in[2], in[3]);
}

template <typename T>
__device__ inline bool aligned_four(const T *data)
{
    constexpr uintptr_t kBytes = sizeof(T) * kFour < 16 ? sizeof(T) * kFour : 16;
    return reinterpret_cast<uintptr_t>(data) % kBytes == 0;
}

// A range of an accumulator, cut into tiles of whole fours. `origin`, at most three elements before
// the range, is where the first tile begins, so that fours are aligned if all arrays agree.
template <typename T, typename G>
struct Range {
    T *sum;            // elements from origin on
    const T *residual; // of these three, residual and gradient are there if G is
    const typename Has<G>::Gradient *gradient;
    uint64_t begin, end; // of the range, from origin on
    T decay;
    bool aligned;
    const T *velocity; // these are there if G is a Momentum
    T *new_velocity, momentum;
};

// The elements of the gradient, where G says what it is of.
template <typename G>
__device__ inline const typename Has<G>::Gradient *source_of(const tri_accumulator &acc)
{
    if constexpr (Has<G>::kVelocity)
        return static_cast<const typename Has<G>::Gradient *>(acc.gradient);
    else
        return gradient_of<G>(acc);
}

template <typename T, typename G>
__device__ inline Range<T, G> range_of(const tri_accumulator &acc, uint64_t first, uint64_t count,
                                       bool may_lead = true)
{
    Range<T, G> range = {};
    T *const sum = sum_of<T>(acc) + first;
    const uint64_t lead = may_lead ? reinterpret_cast<uintptr_t>(sum) / sizeof(T) % kFour : 0;
    range.sum = sum - lead;
    range.begin = lead;
    range.end = lead + count;
    range.aligned = aligned_four(range.sum);
    if constexpr (Has<G>::kGradient) {
        range.residual = residual_of<T>(acc) + first - lead;
        range.gradient = source_of<G>(acc) + first - lead;
        range.decay = static_cast<T>(acc.decay);
        range.aligned =
            range.aligned && aligned_four(range.residual) && aligned_four(range.gradient);
    }
    if constexpr (Has<G>::kVelocity) {
        range.velocity = old_velocity_of<T>(acc) + first - lead;
        range.new_velocity = new_velocity_of<T>(acc) + first - lead;
        range.momentum = static_cast<T>(acc.momentum);
        range.aligned =
            range.aligned && aligned_four(range.velocity) && aligned_four(range.new_velocity);
    }
    return range;
}

// What acc's element i is made of besides the residual: gradient or velocity.
template <typename T, typename G>
__device__ inline T added_to(const Range<T, G> &range, uint64_t i)
{
    if constexpr (Has<G>::kVelocity)
        return accumulated(widen(range.gradient[i]), range.velocity[i], range.momentum);
    else
        return widen(range.gradient[i]);
}

// Element i of the range's acc, made if it has to be.
template <typename T, typename G>
__device__ inline T element_of(const Range<T, G> &range, uint64_t i)
{
    if constexpr (Has<G>::kGradient)
        return accumulated(added_to(range, i), range.residual[i], range.decay);
    else
        return range.sum[i];
}

// The same; writes the velocity, if there is one.
template <typename T, typename G>
__device__ inline T make_element(const Range<T, G> &range, uint64_t i)
{
    if constexpr (Has<G>::kVelocity) {
        const T velocity = added_to(range, i);
        range.new_velocity[i] = velocity;
        return accumulated(velocity, range.residual[i], range.decay);
    } else {
        return element_of(range, i);
    }
}

// A tile is Steps * Width fours, and Width threads share it: four `step` of thread `me` is four
// step * Width + me. Is all of it in the range, and can it be moved in fours?
template <uint32_t Width, uint32_t Steps, typename T, typename G>
__device__ inline bool whole_tile(const Range<T, G> &range, uint64_t begin)
{
    return range.aligned && begin >= range.begin && begin + Steps * Width * kFour <= range.end;
}

// A thread's elements of a whole tile, on their way from memory. make() makes acc of them, and writes
// the velocity, if there is one.
template <uint32_t Width, uint32_t Steps, typename T, typename G>
struct Prefetch {
    G gradient[Steps][kFour];
    T residual[Steps][kFour];

    __device__ void load(const Range<T, G> &range, uint64_t begin, uint32_t me)
    {
        const uint64_t mine = begin + me * kFour;
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++) {
            load_four(gradient[s], range.gradient + mine + s * Width * kFour);
            load_four(residual[s], range.residual + mine + s * Width * kFour);
        }
    }

    __device__ void make(T (&value)[Steps][kFour], const Range<T, G> &range, uint64_t,
                         uint32_t) const
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                value[s][q] = accumulated(widen(gradient[s][q]), residual[s][q], range.decay);
    }
};

template <uint32_t Width, uint32_t Steps, typename T, typename G>
struct Prefetch<Width, Steps, T, Momentum<G>> {
    G gradient[Steps][kFour];
    T velocity[Steps][kFour], residual[Steps][kFour];

    __device__ void load(const Range<T, Momentum<G>> &range, uint64_t begin, uint32_t me)
    {
        const uint64_t mine = begin + me * kFour;
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++) {
            load_four(gradient[s], range.gradient + mine + s * Width * kFour);
            load_four(velocity[s], range.velocity + mine + s * Width * kFour);
            load_four(residual[s], range.residual + mine + s * Width * kFour);
        }
    }

    __device__ void make(T (&value)[Steps][kFour], const Range<T, Momentum<G>> &range,
                         uint64_t begin, uint32_t me) const
    {
        const uint64_t mine = begin + me * kFour;
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++) {
            T made[kFour];
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++) {
                made[q] = accumulated(widen(gradient[s][q]), velocity[s][q], range.momentum);
                value[s][q] = accumulated(made[q], residual[s][q], range.decay);
            }
            store_four(range.new_velocity + mine + s * Width * kFour, made);
        }
    }
};

template <uint32_t Width, uint32_t Steps, typename T>
struct Prefetch<Width, Steps, T, None> {
    T sum[Steps][kFour];

    __device__ void load(const Range<T, None> &range, uint64_t begin, uint32_t me)
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
            load_four(sum[s], range.sum + begin + me * kFour + s * Width * kFour);
    }

    __device__ void make(T (&value)[Steps][kFour], const Range<T, None> &, uint64_t, uint32_t) const
    {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
            for (uint32_t q = 0; q < kFour; q++)
                value[s][q] = sum[s][q];
    }
};

// The elements of any tile that are this thread's, made one by one; those outside of the range are 0.
template <uint32_t Width, uint32_t Steps, typename T, typename G>
__device__ inline void load_elements(T (&value)[Steps][kFour], const Range<T, G> &range,
                                     uint64_t begin, uint32_t me)
{
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++) {
            const uint64_t i = begin + (s * Width + me) * kFour + q;
            value[s][q] = i >= range.begin && i < range.end ? make_element(range, i) : T(0);
        }
}

template <uint32_t Width, uint32_t Steps, typename T, typename G>
__device__ inline void load_tile(T (&value)[Steps][kFour], const Range<T, G> &range, uint64_t begin,
                                 uint32_t me)
{
    if (whole_tile<Width, Steps>(range, begin)) {
        Prefetch<Width, Steps, T, G> tile;
        tile.load(range, begin, me);
        tile.make(value, range, begin, me);
    } else {
        load_elements<Width>(value, range, begin, me);
    }
}

// The tile back into acc.
template <uint32_t Width, uint32_t Steps, typename T, typename G>
__device__ inline void store_tile(const T (&value)[Steps][kFour], const Range<T, G> &range,
                                  uint64_t begin, uint32_t me)
{
    constexpr uint32_t kStride = Width * kFour;
    const uint64_t mine = begin + me * kFour;
    if (whole_tile<Width, Steps>(range, begin)) {
#pragma unroll
        for (uint32_t s = 0; s < Steps; s++)
            store_four(range.sum + mine + s * kStride, value[s]);
        return;
    }
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++) {
            const uint64_t i = mine + s * kStride + q;
            if (i >= range.begin && i < range.end)
                range.sum[i] = value[s][q];
        }
}

// Infinities and NaNs that this thread has.
template <uint32_t Steps, typename T>
__device__ inline uint32_t count_nonfinite(const T (&value)[Steps][kFour])
{
    uint32_t found = 0;
#pragma unroll
    for (uint32_t s = 0; s < Steps; s++)
#pragma unroll
        for (uint32_t q = 0; q < kFour; q++)
            found += !finite(value[s][q]);
    return found;
}

} // namespace
