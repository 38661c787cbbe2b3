// What pack makes of the units of a bucket: elements of tensors, and zeros where no tensor has any.
#pragma once

#include "kernels/cuda/pieces.cuh"

namespace {

// ------------------------------------------------------------------------------------------- parts

// Elements of a bucket of Dst from tensors of Src: op(out, in) makes one, op.wide(in) a unit of
// them, op.padding(index) what no tensor has. No tensor is read unless op.reads().

// The first `count` elements of a unit. It may lie in a peer's memory, where a store costs the same however small.
template <typename T, int N>
__device__ inline void store_unit(T *to, const Vector<T, N> &unit, uint64_t count)
{
    if (count >= static_cast<uint64_t>(N))
        *reinterpret_cast<Vector<T, N> *>(to) = unit;
    else
#pragma unroll
        for (int i = 0; i < N; i++)
            if (static_cast<uint64_t>(i) < count)
                to[i] = unit.element[i];
}

// Units `row` to row + Rows - 1 of the lane, those that are `mine`, element by element: the last units
// of tensors, padding, and tensors at odd addresses.
template <uint32_t Rows, typename Src, typename Dst, typename List, typename Op>
__device__ inline void pack_elements(const List &job, uint32_t begin, uint32_t row,
                                     const Part (&part)[kRows], const bool (&mine)[kRows],
                                     const Op &op)
{
    constexpr uint32_t kPerUnit = kUnit / sizeof(Dst);
    Src loaded[Rows][kPerUnit];
#pragma unroll
    for (uint32_t r = 0; r < Rows; r++)
#pragma unroll
        for (uint32_t i = 0; i < kPerUnit; i++)
            loaded[r][i] =
                load_value_if<Src>(op.reads() && mine[row + r] && i < part[row + r].count,
                                   reinterpret_cast<Src *>(part[row + r].data) + i);
#pragma unroll
    for (uint32_t r = 0; r < Rows; r++) {
        const uint32_t unit = unit_of(begin, row + r);
        const uint64_t index = (job.base + unit) * kPerUnit;
        Vector<Dst, kPerUnit> out;
#pragma unroll
        for (uint32_t i = 0; i < kPerUnit; i++) {
            out.element[i] = op.padding(index + i);
            if (i < part[row + r].count)
                op(out.element[i], loaded[r][i]);
        }
        store_unit(bucket_at<Dst>(job, unit), out, mine[row + r] ? job.count - index : 0);
    }
}

// The lane's units that are `mine`. Whole ones are on their way while the others are moved,
// Op::kTogether of those at once, which is as many as there are registers for.
template <typename Src, typename Dst, typename List, typename Op>
__device__ inline void pack_parts(const List &job, uint32_t begin, const Part (&part)[kRows],
                                  const bool (&mine)[kRows], const Op &op)
{
    using Wide = typename Op::Wide;
    constexpr uint32_t kPerUnit = kUnit / sizeof(Dst);
    constexpr uint32_t kTogether = Op::kTogether;
    Wide loaded[kRows];
    bool whole[kRows], rest[kRows];
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++) {
        whole[row] =
            mine[row] && part[row].count == kPerUnit && aligned(part[row].data, sizeof(Wide));
        rest[row] = mine[row] && !whole[row];
        loaded[row] = load_value_if<Wide>(op.reads() && whole[row], part[row].data);
    }
#pragma unroll
    for (uint32_t row = 0; row < kRows; row += kTogether) {
        bool any = false;
#pragma unroll
        for (uint32_t r = row; r < row + kTogether; r++)
            any = any || rest[r];
        if (__any_sync(kAllLanes, any))
            pack_elements<kTogether, Src, Dst>(job, begin, row, part, rest, op);
    }
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++)
        if (whole[row])
            *bucket_at<decltype(op.wide(loaded[row]))>(job, unit_of(begin, row)) =
                op.wide(loaded[row]);
}

__device__ inline bool always()
{
    return true;
}

// ------------------------------------------------------------------------------------------- plain

template <typename T>
struct Same {
    using Wide = uint4;
    static constexpr uint32_t kTogether = sizeof(T) < kRows ? sizeof(T) : kRows;

    __device__ bool reads() const
    {
        return true;
    }
    __device__ void operator()(T &out, const T &in) const
    {
        out = in;
    }
    __device__ uint4 wide(const uint4 &in) const
    {
        return in;
    }
    __device__ T padding(uint64_t) const
    {
        return 0;
    }
};

// `T` has as many bytes as an element of the bucket.
template <typename T, typename List>
struct PackOf {
    const List &job;

    __device__ uint32_t per_unit() const
    {
        return kUnit / sizeof(T);
    }
    __device__ uint32_t unit_bytes(trib_dtype) const
    {
        return kUnit;
    }

    __device__ void chunk(const Part &part, uint32_t unit) const
    {
        copy_chunk(bucket_at<char>(job, unit), part.data, part.data, always);
    }

    __device__ void parts(const Part (&part)[kRows], uint32_t begin, uint32_t end) const
    {
        bool mine[kRows];
#pragma unroll
        for (uint32_t row = 0; row < kRows; row++)
            mine[row] = unit_of(begin, row) < end;
        pack_parts<T, T>(job, begin, part, mine, Same<T>());
    }
};

} // namespace
