// What a warp of pack or unpack does, or of pull that packs: it finds the slices that share its chunk of the bucket, and
// where each unit comes from or goes to.
//
// A warp waits for memory three times: for the samples of the table, for the slices around its
// chunk, one in each lane, and for the data. If they are a launch's parameters it waits once. If one
// slice has all of the chunk, it is moved in vectors as wide as the tensor's alignment allows, and
// neighbouring lanes touch neighbouring vectors. Otherwise each lane moves four units; it finds their
// tensors in the registers of the other lanes, and has all its loads on their way before its first
// store: a chunk that many slices share takes no longer than one that two share.
#pragma once

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/loads.cuh"

namespace {

constexpr uint32_t kRows = kChunk / kWarp; // units of a lane

__device__ inline uint32_t count_lanes(bool which)
{
    return static_cast<uint32_t>(__popc(__ballot_sync(kAllLanes, which)));
}

// The bucket's `unit`.
template <typename T, typename List>
__device__ inline T *bucket_at(const List &job, uint32_t unit)
{
    return reinterpret_cast<T *>(job.bucket + (job.base + unit) * kUnit);
}

__device__ inline bool aligned(const void *data, uint32_t bytes)
{
    return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// ------------------------------------------------------------------------------------------ slices

// Slices of a list that a warp looks at: from `base` to `limit`, which is not one of them.
struct Span {
    uint32_t base, limit;
};

// The last of slices low..high that begins at or before `unit`; `low` if none does.
template <typename List>
__device__ inline uint32_t find(const List &job, uint32_t unit, uint32_t low, uint32_t high)
{
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (job.first[middle] <= unit)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// All slices that have units of [begin, end): parameters cost no more than other instructions, if all
// lanes look at the same one. A slice has at least one unit, so they are few.
template <uint32_t Capacity>
__device__ inline Span span_of(const Job<Capacity> &job, uint32_t begin, uint32_t end)
{
    if (job.n == 0)
        return {0, 0};
    const uint32_t last = job.n - 1, low = find(job, begin, 0, last);
    if (job.first[low + 1] >= end)
        return {low, low + 1};
    return {low, find(job, end - 1, low, min(last, low + kChunk - 1)) + 1};
}

// The last of samples low..high that is at or below `unit`, by looks at 32 places until less than
// kLook * 32 are left, and then at all of those at once.
constexpr uint32_t kLook = 8;

__device__ inline uint32_t find_sample(const Kept &kept, uint32_t unit, uint32_t low, uint32_t high)
{
    while (high - low >= kLook * kWarp) {
        const uint32_t step = (high - low) / kWarp + 1;
        const uint32_t place = low + lane_of() * step;
        const uint32_t n = count_lanes(place <= high && kept.sample[place] <= unit);
        if (n == 0) // not even the first one
            return low;
        low += (n - 1) * step;
        high = min(low + step - 1, high);
    }
    uint32_t sample[kLook], n = 0;
#pragma unroll
    for (uint32_t i = 0; i < kLook; i++) {
        const uint32_t place = low + i * kWarp + lane_of();
        sample[i] = load_if(place <= high, kept.sample + place, UINT32_MAX);
    }
#pragma unroll
    for (uint32_t i = 0; i < kLook; i++)
        n += count_lanes(sample[i] <= unit);
    return n == 0 ? low : low + n - 1;
}

// From the sample before `begin` to the end of the list: the slice of `begin` is among the first
// kSample of them.
__device__ inline Span span_of(const Kept &kept, uint32_t begin, uint32_t)
{
    const uint32_t last = (kept.n - 1) / kSample;
    return {find_sample(kept, begin, 0, last) * kSample, kept.n};
}

// One slice, or the part of it that is in this job.
struct Piece {
    char *data;
    uint32_t first, end; // units
    uint32_t tail;       // elements in the last unit
    trib_dtype dtype;
};

// The slices from span.base on, one in each lane, and in the lanes that are left the end of the
// last one. The last lane has only a beginning: where the slice before it ends.
constexpr uint32_t kWindow = kWarp - 1;

struct Window {
    char *data;
    uint32_t first, tail;

    __device__ Piece piece(uint32_t lane) const
    {
        const uint64_t from = reinterpret_cast<uintptr_t>(data);
        const uint32_t bits = __shfl_sync(kAllLanes, tail, static_cast<int>(lane));
        return {reinterpret_cast<char *>(__shfl_sync(kAllLanes, from, static_cast<int>(lane))),
                __shfl_sync(kAllLanes, first, static_cast<int>(lane)),
                __shfl_sync(kAllLanes, first, static_cast<int>(lane + 1)), (bits & 15) + 1,
                static_cast<trib_dtype>(bits >> 4)};
    }
};

template <typename List>
__device__ inline Window window_at(const List &job, const Span &span)
{
    const uint32_t i = min(span.base + lane_of(), span.limit);
    const uint32_t slice = i == span.limit && i != 0 ? i - 1 : i;
    return {job.data[slice], job.first[i], job.tail[slice]};
}

// ------------------------------------------------------------------------------------------- parts

// A tensor's part of a unit: its elements, none if the unit has none.
struct Part {
    char *data;
    uint32_t count;
    trib_dtype dtype;
};

// Has a tensor of `dtype` half as many bytes an element as its weighted bucket of Sum?
template <typename Sum>
__device__ inline bool is_half(trib_dtype dtype)
{
    return sizeof(Sum) == sizeof(float) && (dtype == TRIB_F16 || dtype == TRIB_BF16);
}

__device__ inline uint32_t unit_of(uint32_t begin, uint32_t row)
{
    return begin + row * kWarp + lane_of();
}

// `unit` as a part of `piece`, whose units have `bytes` bytes in the tensor.
__device__ inline Part part_of(const Piece &piece, uint32_t unit, uint32_t bytes, uint32_t per_unit)
{
    return {piece.data + static_cast<uint64_t>(unit - piece.first) * bytes,
            unit + 1 == piece.end ? piece.tail : per_unit, piece.dtype};
}

// The parts that lie in this window. Of its slices `before` begin at or before the chunk, `upto`
// before its end.
template <typename Body>
__device__ inline void find_in_window(Part (&part)[kRows], const Window &window, uint32_t before,
                                      uint32_t upto, uint32_t begin, uint32_t end, const Body &body)
{
    uint32_t place[kRows]; // how many begin at or before the unit
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++)
        place[row] = before;
    for (uint32_t lane = before; lane < upto; lane++) {
        const uint32_t first = __shfl_sync(kAllLanes, window.first, static_cast<int>(lane));
#pragma unroll
        for (uint32_t row = 0; row < kRows; row++)
            place[row] += first <= unit_of(begin, row) ? 1 : 0;
    }
#pragma unroll
    for (uint32_t row = 0; row < kRows; row++) {
        const uint32_t unit = unit_of(begin, row);
        const bool inside = place[row] != 0 && place[row] <= kWindow && unit < end;
        const Piece piece = window.piece(inside ? place[row] - 1 : 0);
        if (inside)
            part[row] = part_of(piece, unit, body.unit_bytes(piece.dtype), body.per_unit());
    }
}

// The parts of the chunk's units: nearly always all of them lie in the first window.
template <typename List, typename Body>
__device__ inline void find_parts(Part (&part)[kRows], const List &job, Span span, Window window,
                                  uint32_t begin, uint32_t end, const Body &body)
{
    for (;;) {
        const uint32_t before = count_lanes(window.first <= begin);
        const uint32_t upto = count_lanes(window.first < end);
        find_in_window(part, window, before, upto, begin, end, body);
        if (upto < kWarp || span.base + kWindow >= span.limit)
            return;
        span.base += kWindow;
        window = window_at(job, span);
    }
}

// Move units [begin, end), a chunk or less, by a warp: body.chunk(part, begin) if it is a chunk and lies in
// one tensor, from part.data on, otherwise body.parts(parts, begin, end).
template <typename List, typename Body>
__device__ inline void move_units(const List &job, uint32_t begin, uint32_t end, const Body &body)
{
    const Span span = span_of(job, begin, end);
    const Window window = window_at(job, span);
    const uint32_t before = count_lanes(window.first <= begin);
    const uint32_t upto = count_lanes(window.first < end);
    if (before == upto && before != 0 && before <= kWindow && end - begin == kChunk) {
        const Piece piece = window.piece(before - 1);
        if (end < piece.end || piece.tail == body.per_unit())
            return body.chunk(part_of(piece, begin, body.unit_bytes(piece.dtype), body.per_unit()),
                              begin);
    }
    Part part[kRows] = {};
    find_parts(part, job, span, window, begin, end, body);
    body.parts(part, begin, end);
}

// The warp's chunk, one of block `block` of the job.
template <typename List, typename Body>
__device__ inline void move_chunk(const List &job, uint32_t block, const Body &body)
{
    const uint32_t begin = (block * kWarps + threadIdx.x / kWarp) * kChunk;
    if (begin < job.units)
        move_units(job, begin, min(begin + kChunk, job.units), body);
}

// ------------------------------------------------------------------------------------------ chunks

// `V` elements that are loaded and stored as one.
template <typename T, int V>
struct alignas(sizeof(T) * V) Vector {
    T element[V];
};

template <typename To, typename From, int V, typename Op>
__device__ inline Vector<To, V> each(const Vector<From, V> &in, const Op &op)
{
    Vector<To, V> out;
#pragma unroll
    for (int v = 0; v < V; v++)
        op(out.element[v], in.element[v]);
    return out;
}

// dst[i] = op(src[i]) for the `Count` elements of a chunk, by all lanes of a warp, V at a time, if
// go() says so when the loads are on their way.
template <int Count, int V, typename Dst, typename Src, typename Op, typename Go>
__device__ inline void move(Dst *dst, const Src *src, const Op &op, const Go &go)
{
    constexpr int kSteps = Count / V / static_cast<int>(kWarp); // of each lane
    constexpr int kBatch = kSteps < 16 ? kSteps : 16;           // loads in flight
    const Vector<Src, V> *from = reinterpret_cast<const Vector<Src, V> *>(src);
    Vector<Dst, V> *to = reinterpret_cast<Vector<Dst, V> *>(dst);
    for (int i = static_cast<int>(lane_of()); i < kSteps * static_cast<int>(kWarp);
         i += kBatch * static_cast<int>(kWarp)) {
        Vector<Src, V> loaded[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; j++)
            loaded[j] = from[i + j * static_cast<int>(kWarp)];
        if (!go())
            return;
#pragma unroll
        for (int j = 0; j < kBatch; j++)
            to[i + j * static_cast<int>(kWarp)] = each<Dst>(loaded[j], op);
    }
}

struct Copy {
    template <typename T>
    __device__ void operator()(T &out, const T &in) const
    {
        out = in;
    }
};

// The plain chunk: bytes, in vectors as wide as the alignment of `tensor`, one of the two, allows.
template <typename Go>
__device__ inline void copy_chunk(void *dst, const void *src, const void *tensor, const Go &go)
{
    constexpr int kBytes = kChunk * kUnit;
    if (aligned(tensor, 16))
        move<kBytes / 16, 1>(static_cast<uint4 *>(dst), static_cast<const uint4 *>(src), Copy(),
                             go);
    else if (aligned(tensor, 8))
        move<kBytes / 8, 1>(static_cast<uint64_t *>(dst), static_cast<const uint64_t *>(src),
                            Copy(), go);
    else if (aligned(tensor, 4))
        move<kBytes / 4, 1>(static_cast<uint32_t *>(dst), static_cast<const uint32_t *>(src),
                            Copy(), go);
    else if (aligned(tensor, 2))
        move<kBytes / 2, 1>(static_cast<uint16_t *>(dst), static_cast<const uint16_t *>(src),
                            Copy(), go);
    else
        move<kBytes, 1>(static_cast<uint8_t *>(dst), static_cast<const uint8_t *>(src), Copy(), go);
}

} // namespace
