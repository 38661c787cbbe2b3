// The granules of push as a thread has them: 16 bytes at a time, and the elements in them.
//
// Granules are loaded and stored four or two by one instruction, which is as many scalar accesses in no
// order (see push.h). All accesses to scratch are relaxed, of system scope, and so past L1.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/convert.cuh"

namespace {

constexpr uint32_t kPushEmpty = 0xffffffffu;

// How elements of T travel.
template <typename T>
struct Wire {
    static constexpr bool kWide = true;
};
template <>
struct Wire<F16> {
    static constexpr bool kWide = false;
};
template <>
struct Wire<Bf16> {
    static constexpr bool kWide = false;
};
template <>
struct Wire<float> {
    static constexpr bool kWide = false;
};

// The elements of a chunk, as its words of data.
template <typename T>
struct alignas(Wire<T>::kWide ? 8 : 16) Part {
    static constexpr int kWords = Wire<T>::kWide ? 2 : 4;
    static constexpr int kElements = kWords * 4 / static_cast<int>(sizeof(T));
    T element[kElements];
};

// ------------------------------------------------------------------------------------- granules

// `otherwise` if they are not wanted. Without a branch, so that a thread's loads are on their way together.
template <bool Wide>
__device__ inline uint4 load_granules_if(bool wanted, const uint4 *at, const uint4 &otherwise)
{
    uint4 v = otherwise;
    if constexpr (Wide)
        asm volatile("{ .reg .pred p;\n"
                     ".reg .b64 a, b;\n"
                     "setp.ne.u32 p, %5, 0;\n"
                     "mov.b64 a, {%0, %1};\n"
                     "mov.b64 b, {%2, %3};\n"
                     "@p ld.relaxed.sys.global.v2.b64 {a, b}, [%4];\n"
                     "mov.b64 {%0, %1}, a;\n"
                     "mov.b64 {%2, %3}, b; }"
                     : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                     : "l"(at), "r"(static_cast<uint32_t>(wanted))
                     : "memory");
    else
        asm volatile("{ .reg .pred p;\n"
                     "setp.ne.u32 p, %5, 0;\n"
                     "@p ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4]; }"
                     : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                     : "l"(at), "r"(static_cast<uint32_t>(wanted))
                     : "memory");
    return v;
}

template <bool Wide>
__device__ inline uint4 load_granules(const uint4 *at)
{
    return load_granules_if<Wide>(true, at, {});
}

template <bool Wide>
__device__ inline void store_granules(uint4 *at, const uint4 &v)
{
    if constexpr (Wide)
        asm volatile("{ .reg .b64 a, b;\n"
                     "mov.b64 a, {%1, %2};\n"
                     "mov.b64 b, {%3, %4};\n"
                     "st.relaxed.sys.global.v2.b64 [%0], {a, b}; }"
                     :
                     : "l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
    else
        asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
}

// A full wide granule has zeros in its upper half.
template <bool Wide>
__device__ inline bool all_full(const uint4 &v)
{
    const bool upper = v.y != kPushEmpty && v.w != kPushEmpty;
    return Wide ? upper : upper && v.x != kPushEmpty && v.z != kPushEmpty;
}

__device__ inline uint32_t not_empty(uint32_t word)
{
    return word == kPushEmpty ? kPushEmpty >> 1 : word;
}

template <typename T>
__device__ inline uint4 encode(const Part<T> &part)
{
    uint32_t word[Part<T>::kWords];
    memcpy(word, &part, sizeof part);
    if constexpr (Wire<T>::kWide)
        return {word[0], 0, word[1], 0};
    else
        return {not_empty(word[0]), not_empty(word[1]), not_empty(word[2]), not_empty(word[3])};
}

template <typename T>
__device__ inline Part<T> decode(const uint4 &v)
{
    Part<T> part;
    if constexpr (Wire<T>::kWide) {
        const uint32_t word[2] = {v.x, v.z};
        memcpy(&part, word, sizeof part);
    } else {
        memcpy(&part, &v, sizeof part);
    }
    return part;
}

// ------------------------------------------------------------------------------ elements of a rank

template <typename T>
__device__ inline bool is_whole(const void *data, uint64_t count, uint32_t chunk)
{
    return (chunk + uint64_t{1}) * Part<T>::kElements <= count &&
           reinterpret_cast<uintptr_t>(data) % sizeof(Part<T>) == 0;
}

// Zeros behind the last element.
template <typename T>
__device__ inline uint4 load_own(const void *send, uint64_t count, uint32_t chunk)
{
    constexpr int kElements = Part<T>::kElements;
    const T *from = static_cast<const T *>(send) + uint64_t{chunk} * kElements;
    if (is_whole<T>(send, count, chunk))
        return encode(*reinterpret_cast<const Part<T> *>(from));
    Part<T> part;
#pragma unroll
    for (int e = 0; e < kElements; e++)
        part.element[e] = uint64_t{chunk} * kElements + e < count ? from[e] : T{};
    return encode(part);
}

template <typename T>
__device__ inline void store_result(void *recv, uint64_t count, uint32_t chunk, const Part<T> &part)
{
    constexpr int kElements = Part<T>::kElements;
    T *to = static_cast<T *>(recv) + uint64_t{chunk} * kElements;
    if (is_whole<T>(recv, count, chunk)) {
        *reinterpret_cast<Part<T> *>(to) = part;
        return;
    }
#pragma unroll
    for (int e = 0; e < kElements; e++)
        if (uint64_t{chunk} * kElements + e < count)
            to[e] = part.element[e];
}

} // namespace
