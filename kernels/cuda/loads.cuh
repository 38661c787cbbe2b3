// Loads that are made or not, without a branch: so that several are on their way at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace {

__device__ inline uint32_t load_if(bool wanted, const uint8_t *from, uint32_t otherwise)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p ld.global.u8 %0, [%1];\n\t}"
                 : "+r"(otherwise)
                 : "l"(from), "r"(static_cast<uint32_t>(wanted)));
    return otherwise;
}

__device__ inline uint32_t load_if(bool wanted, const uint16_t *from, uint32_t otherwise)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p ld.global.u16 %0, [%1];\n\t}"
                 : "+r"(otherwise)
                 : "l"(from), "r"(static_cast<uint32_t>(wanted)));
    return otherwise;
}

__device__ inline uint32_t load_if(bool wanted, const uint32_t *from, uint32_t otherwise)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p ld.global.u32 %0, [%1];\n\t}"
                 : "+r"(otherwise)
                 : "l"(from), "r"(static_cast<uint32_t>(wanted)));
    return otherwise;
}

__device__ inline uint64_t load_if(bool wanted, const uint64_t *from, uint64_t otherwise)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p ld.global.u64 %0, [%1];\n\t}"
                 : "+l"(otherwise)
                 : "l"(from), "r"(static_cast<uint32_t>(wanted)));
    return otherwise;
}

__device__ inline uint4 load_if(bool wanted, const uint4 *from, uint4 otherwise)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
                 "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
                 : "+r"(otherwise.x), "+r"(otherwise.y), "+r"(otherwise.z), "+r"(otherwise.w)
                 : "l"(from), "r"(static_cast<uint32_t>(wanted)));
    return otherwise;
}

// The type that is loaded as `Bytes` bytes.
template <int Bytes>
struct Bits;
template <>
struct Bits<1> {
    using Type = uint8_t;
};
template <>
struct Bits<2> {
    using Type = uint16_t;
};
template <>
struct Bits<4> {
    using Type = uint32_t;
};
template <>
struct Bits<8> {
    using Type = uint64_t;
};
template <>
struct Bits<16> {
    using Type = uint4;
};

// The same for any value of such a size, aligned to it; all bits are 0 if it is not wanted.
template <typename Value>
__device__ inline Value load_value_if(bool wanted, const void *from)
{
    using Type = typename Bits<sizeof(Value)>::Type;
    const Type bits = static_cast<Type>(load_if(wanted, static_cast<const Type *>(from), {}));
    Value value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The first `count` elements of 16 bytes, at most 16 / sizeof(T); the others are 0.
template <typename T>
__device__ inline uint4 load_elements(const T *from, uint32_t count)
{
    T element[16 / sizeof(T)];
#pragma unroll
    for (uint32_t i = 0; i < 16 / sizeof(T); i++)
        element[i] = load_value_if<T>(i < count, from + i);
    uint4 all;
    memcpy(&all, element, sizeof all);
    return all;
}

} // namespace
