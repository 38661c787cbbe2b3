// The reductions of push and pull: what kernels/cpu/reduce.c makes of the same parts, to the bit. A part
// is what a thread has of one rank at a time: an array `element`, of kElements.
#pragma once

#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/convert.cuh"
#include "tributary.h"

namespace {

// Accumulators: f32 for f16, bf16 and itself, and otherwise the type. Integers wrap.
template <typename T>
__device__ inline T plus(T a, T b)
{
    return sizeof(T) == 8 ? static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b))
                          : static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

template <typename T>
__device__ inline T product(T a, T b)
{
    return sizeof(T) == 8 ? static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b))
                          : static_cast<T>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}

template <typename T>
__device__ inline T divided(T a, int by)
{
    return static_cast<T>(a / static_cast<T>(by));
}

__device__ inline float divided(float a, int by)
{
    return quotient(a, static_cast<float>(by));
}

__device__ inline double divided(double a, int by)
{
    return quotient(a, static_cast<double>(by));
}

template <typename T>
__device__ inline T widen(T x)
{
    return x;
}

template <typename T>
__device__ inline void narrow(T &out, T value)
{
    out = value;
}

struct Plus {
    template <typename T>
    __device__ T operator()(T a, T b) const
    {
        return plus(a, b);
    }
};

struct Times {
    template <typename T>
    __device__ T operator()(T a, T b) const
    {
        return product(a, b);
    }
};

struct Least {
    template <typename T>
    __device__ T operator()(T a, T b) const
    {
        return b < a ? b : a;
    }
};

struct Most {
    template <typename T>
    __device__ T operator()(T a, T b) const
    {
        return b > a ? b : a;
    }
};

// The elements of ranks 0, 1, ... size - 1, in that order.
template <typename Part, int Ranks, typename Op>
__device__ inline Part fold(const Part (&parts)[Ranks], int size, bool average, Op op)
{
    Part result;
#pragma unroll
    for (int e = 0; e < Part::kElements; e++) {
        auto sum = widen(parts[0].element[e]);
#pragma unroll
        for (int r = 1; r < Ranks; r++)
            if (r < size)
                sum = op(sum, widen(parts[r].element[e]));
        if (average)
            sum = divided(sum, size);
        narrow(result.element[e], sum);
    }
    return result;
}

template <typename Part, int Ranks>
__device__ inline Part reduce(const Part (&parts)[Ranks], int size, trib_op op)
{
    switch (op) {
    case TRIB_PROD:
        return fold(parts, size, false, Times());
    case TRIB_MIN:
        return fold(parts, size, false, Least());
    case TRIB_MAX:
        return fold(parts, size, false, Most());
    default:
        return fold(parts, size, op == TRIB_AVG, Plus());
    }
}

} // namespace
