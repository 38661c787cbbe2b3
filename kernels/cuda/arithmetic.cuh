// Operations on floats that are rounded once each: no product is added before it is rounded, whatever the compiler
// would rather do.
#pragma once

namespace {

__device__ inline float plus(float a, float b)
{
    return __fadd_rn(a, b);
}

__device__ inline double plus(double a, double b)
{
    return __dadd_rn(a, b);
}

__device__ inline float product(float a, float b)
{
    return __fmul_rn(a, b);
}

__device__ inline double product(double a, double b)
{
    return __dmul_rn(a, b);
}

__device__ inline float quotient(float a, float b)
{
    return __fdiv_rn(a, b);
}

__device__ inline double quotient(double a, double b)
{
    return __ddiv_rn(a, b);
}

} // namespace
