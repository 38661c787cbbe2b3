// From the element type of a call to a C++ type: the only place. Each function calls `run` with a
// value of that type, whose decltype names it, and returns what `run` returns.
#pragma once

#include "kernels/cuda/convert.cuh"
#include "kernels/sparse.h"

namespace {

// Any float type.
template <typename Run>
inline trib_status dispatch_float(trib_dtype dtype, Run run)
{
    switch (dtype) {
    case TRIB_F64:
        return run(double());
    case TRIB_F16:
        return run(F16());
    case TRIB_BF16:
        return run(Bf16());
    default:
        return run(float());
    }
}

// Any integer type.
template <typename Run>
inline trib_status dispatch_integer(trib_dtype dtype, Run run)
{
    switch (dtype) {
    case TRIB_I8:
        return run(int8_t());
    case TRIB_U8:
        return run(uint8_t());
    case TRIB_I32:
        return run(int32_t());
    case TRIB_U32:
        return run(uint32_t());
    case TRIB_I64:
        return run(int64_t());
    default:
        return run(uint64_t());
    }
}

// Either.
template <typename Run>
inline trib_status dispatch_number(trib_dtype dtype, Run run)
{
    return dtype > TRIB_F64 ? dispatch_integer(dtype, run) : dispatch_float(dtype, run);
}

// A type that sums have: f32 or f64.
template <typename Run>
inline trib_status dispatch_sum(trib_dtype dtype, Run run)
{
    return dtype == TRIB_F64 ? run(double()) : run(float());
}

// The type of the sums that become an Out.
template <typename Out>
struct SumOf {
    using Type = float;
};
template <>
struct SumOf<double> {
    using Type = double;
};
template <typename Out>
using Sum = typename SumOf<Out>::Type;

// The type of a gradient that is not there: acc is.
struct None {};

// The type of a gradient G of which the velocity is made that is acc's gradient.
template <typename G>
struct Momentum {};

// The types of acc and of the gradient that is there.
template <typename Run>
inline trib_status dispatch_gradient(const tri_accumulator &acc, Run run)
{
    return dispatch_float(acc.dtype == TRIB_F64 ? TRIB_F64 : acc.gradient_dtype,
                          [&](auto gradient) { return run(Sum<decltype(gradient)>(), gradient); });
}

// The types of acc and of its gradient; of acc and None if the kernel does not accumulate.
template <typename Run>
inline trib_status dispatch_accumulator(const tri_accumulator &acc, bool accumulate, Run run)
{
    if (!accumulate)
        return dispatch_sum(acc.dtype, [&](auto sum) { return run(sum, None()); });
    return dispatch_gradient(acc, run);
}

// The same for a kernel that makes a velocity, too.
template <typename Run>
inline trib_status dispatch_velocity(const tri_accumulator &acc, bool accumulate, Run run)
{
    if (!accumulate || !acc.makes_velocity)
        return dispatch_accumulator(acc, accumulate, run);
    return dispatch_gradient(
        acc, [&](auto sum, auto gradient) { return run(sum, Momentum<decltype(gradient)>()); });
}

} // namespace
