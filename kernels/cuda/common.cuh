// Shared by pack, unpack and keep: a list of slices as the parameter of one launch, or in a table on
// the device, the part of the bucket that each warp moves, and the loops that move it.
//
// The bucket is seen as units of 16 bytes. Slices begin at whole units, so a unit belongs to one
// slice or to none, and only a slice's last unit can be partly padding. One warp moves one chunk of
// 128 units. Nearly always a chunk lies inside one slice: then every lane has all its loads in
// flight before its first store, in vectors as wide as the tensor's alignment allows, and
// neighbouring lanes touch neighbouring vectors. A chunk that several slices share is moved unit by
// unit, and each lane looks up the slice of its unit: so hundreds of tiny tensors cost no more than
// one launch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/kernels.h"

namespace {

constexpr uint32_t kLanes = 32, kWarps = 8;
constexpr uint32_t kUnit = 16;           // bytes
constexpr uint32_t kChunk = 4 * kLanes;  // units
constexpr uint32_t kMaxUnits = 1u << 31; // units of one launch; longer slices are cut

// One launch: `n` slices, and every unit of the bucket from `base` on, `units` of them. Travels in
// the launch's parameters, so no copy to the device is needed and the caller's list is free when
// the call returns. Arrays of fields, because the lookup reads `first` alone. Slices adjoin, as
// those of a bucket do (a launch ends where they do not), so each ends where the next one begins.
struct Head {
    char *bucket;
    uint64_t count; // elements of the bucket
    uint64_t base;
    const float *device_weight;
    const uint32_t *decision;
    float weight;
    uint32_t units;
    uint32_t n;
    uint32_t element_size; // of the bucket
};

template <uint32_t Capacity>
struct Job : Head {
    char *data[Capacity];
    uint32_t first[Capacity + 1]; // unit, from base; first[n] is where the last one ends
    uint8_t tail[Capacity];       // low four bits: elements in the last unit, less 1; high: dtype
};

// Parameters may take 4,096 bytes everywhere, and 32,764 since CUDA 12.1 (on sm_70 and later). Both
// sizes are built: a launch costs more the more it carries, and most lists fit into the small one.
constexpr uint32_t kSmall = 310;
static_assert(sizeof(Job<kSmall>) <= 4096, "the small job exceeds the limit of all CUDA versions");
static_assert(TRI_TABLE_FROM == kSmall + 1, "what a small job has no room for is worth a table");
#if CUDART_VERSION >= 12010
constexpr uint32_t kLarge = 2515;
static_assert(sizeof(Job<kLarge>) <= 32764, "the large job exceeds the limit of CUDA 12.1");
#else
constexpr uint32_t kLarge = kSmall;
#endif

// The same from a table (keep.cu) that has all slices of the bucket: `base` is 0.
struct Kept : Head {
    char *const *data;
    const uint32_t *first;
    const uint8_t *tail;
};

// A table of `n` slices.
struct Table {
    char **data;
    uint32_t *first;
    uint8_t *tail;
};

inline Table table_at(void *memory, size_t n)
{
    char *const begin = static_cast<char *>(memory);
    char *const first = begin + n * sizeof(char *);
    char *const tail = first + (n + 1) * sizeof(uint32_t);
    return {reinterpret_cast<char **>(begin), reinterpret_cast<uint32_t *>(first),
            reinterpret_cast<uint8_t *>(tail)};
}
static_assert(sizeof(char *) + sizeof(uint32_t) + sizeof(uint8_t) == TRI_TABLE_SLICE &&
                  sizeof(uint32_t) <= TRI_TABLE_END,
              "tri_table_bytes is what a table takes");

// ------------------------------------------------------------------------------------- on the host

// The arguments of pack or unpack, and the part that is queued already.
struct Request {
    const tri_slice *slices;
    size_t n;
    const tri_bucket *bucket;
    const tri_weight *weight;
    const uint32_t *decision;
    size_t slice = 0; // the next one
    size_t done = 0;  // its elements that are queued
    uint64_t unit = 0;
};

// The elements of slices[slice] that fit into `room` units of 1 << `shift` elements, as the next entry
// of the job. There are thousands of slices in a call: no division for each.
template <uint32_t Capacity>
inline void add_piece(Job<Capacity> &job, Request &request, uint64_t first, uint64_t room,
                      uint32_t shift)
{
    const tri_slice &slice = request.slices[request.slice];
    const size_t left = slice.count - request.done;
    const size_t count = left > room << shift ? room << shift : left;
    const size_t length = (count + (size_t{1} << shift) - 1) >> shift;
    const size_t last = count - ((length - 1) << shift);
    const uint32_t i = job.n++;
    job.data[i] = static_cast<char *>(slice.data);
    if (request.done != 0)
        job.data[i] += request.done * trib_dtype_size(slice.dtype);
    job.first[i] = static_cast<uint32_t>(first);
    job.first[i + 1] = static_cast<uint32_t>(first + length);
    job.tail[i] = static_cast<uint8_t>((last - 1) | static_cast<size_t>(slice.dtype) << 4);
    request.done += count;
}

// log2 of the elements in a unit.
inline uint32_t shift_of(uint32_t element_size)
{
    uint32_t shift = 0;
    while (element_size << shift < kUnit)
        shift++;
    return shift;
}

inline uint64_t units_of(const tri_bucket &bucket, uint32_t shift)
{
    return (bucket.count + (uint64_t{1} << shift) - 1) >> shift;
}

inline Head head_of(const Request &request)
{
    const tri_bucket &bucket = *request.bucket;
    Head head = {};
    head.bucket = static_cast<char *>(bucket.data);
    head.count = bucket.count;
    head.base = request.unit;
    head.device_weight = request.weight != nullptr ? request.weight->device : nullptr;
    head.weight = request.weight != nullptr ? request.weight->value : 0;
    head.decision = request.decision;
    head.element_size = static_cast<uint32_t>(trib_dtype_size(bucket.dtype));
    return head;
}

// The next job: as many slices as fit, up to the first unit of what did not, or of the bucket's
// end.
template <uint32_t Capacity>
inline void next_job(Job<Capacity> &job, Request &request)
{
    static_cast<Head &>(job) = head_of(request);
    const uint32_t shift = shift_of(job.element_size);
    uint64_t end = units_of(*request.bucket, shift);
    while (request.slice < request.n) {
        const tri_slice &slice = request.slices[request.slice];
        if (request.done == slice.count) {
            request.slice++;
            request.done = 0;
            continue;
        }
        const uint64_t unit = (slice.offset + request.done) >> shift, first = unit - job.base;
        if (job.n == Capacity || first >= kMaxUnits || (job.n != 0 && first != job.first[job.n])) {
            end = unit;
            break;
        }
        add_piece(job, request, first, kMaxUnits - first, shift);
    }
    job.units = static_cast<uint32_t>(end - job.base);
    request.unit = end;
}

// A launch whose every warp moves a chunk.
template <auto Kernel, typename List>
inline trib_status launch_list(List &list, trib_stream stream)
{
    [[maybe_unused]] void (*const takes_list)(List) = Kernel;
    void *arguments[] = {&list};
    const uint32_t blocks = (list.units + kChunk * kWarps - 1) / (kChunk * kWarps);
    return blocks == 0 ? TRIB_OK
                       : launch_kernel<Kernel>(blocks, kLanes * kWarps, arguments, stream);
}

template <auto Kernel, uint32_t Capacity>
inline trib_status launch_jobs(Request request, trib_stream stream)
{
    Job<Capacity> job;
    do {
        next_job(job, request);
        const trib_status status = launch_list<Kernel>(job, stream);
        if (status != TRIB_OK)
            return status;
    } while (request.slice < request.n);
    return TRIB_OK;
}

// Do `n` slices travel in large launches?
inline bool travels_large(size_t n)
{
    int driver = 0;
    return n > kSmall && kLarge > kSmall && cudaDriverGetVersion(&driver) == cudaSuccess &&
           driver >= 12010;
}

// Queue the request: in one launch if it fits.
template <auto Small, auto Large>
inline trib_status launch(const Request &request, trib_stream stream)
{
    return travels_large(request.n) ? launch_jobs<Large, kLarge>(request, stream)
                                    : launch_jobs<Small, kSmall>(request, stream);
}

// Queue the request, whose slices are in `table`.
template <auto Kernel>
inline trib_status launch_kept(const Request &request, const void *table, trib_stream stream)
{
    const Table at = table_at(const_cast<void *>(table), request.n);
    Kept kept = {head_of(request), at.data, at.first, at.tail};
    kept.n = static_cast<uint32_t>(request.n);
    kept.units = static_cast<uint32_t>(units_of(*request.bucket, shift_of(kept.element_size)));
    return launch_list<Kernel>(kept, stream);
}

// ----------------------------------------------------------------------------------- on the device

// One slice, or the part of it that is in this job.
struct Piece {
    char *data;
    uint32_t first, length; // units
    uint32_t tail;          // elements in the last unit
    trib_dtype dtype;
};

template <typename List>
__device__ inline Piece piece(const List &job, uint32_t i)
{
    const uint32_t tail = job.tail[i];
    return {job.data[i], job.first[i], job.first[i + 1] - job.first[i], (tail & 15) + 1,
            static_cast<trib_dtype>(tail >> 4)};
}

// The last of pieces low..high that begins at or before `unit`; `low` if none does.
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

// The same for a whole warp, whose lanes look for the same.
template <uint32_t Capacity>
__device__ inline uint32_t find_together(const Job<Capacity> &job, uint32_t unit, uint32_t low,
                                         uint32_t high)
{
    return find(job, unit, low, high);
}

// In memory each look takes as long as a load: so each lane looks at one of 32 places at a time.
__device__ inline uint32_t find_together(const Kept &kept, uint32_t unit, uint32_t low,
                                         uint32_t high)
{
    while (low < high) {
        const uint32_t step = (high - low) / kLanes + 1;
        const uint32_t place = low + threadIdx.x % kLanes * step;
        const bool before = place <= high && kept.first[place] <= unit;
        const uint32_t n = __popc(__ballot_sync(~0u, before)); // the first n places are
        if (n == 0)
            break;
        low += (n - 1) * step;
        high = min(low + step - 1, high);
    }
    return low;
}

// The elements of the piece that lie in `unit`: 0 to per_unit.
__device__ inline uint32_t elements(const Piece &piece, uint32_t unit, uint32_t per_unit)
{
    const uint32_t inside = unit - piece.first; // huge if before it
    if (unit < piece.first || inside >= piece.length)
        return 0;
    return inside + 1 == piece.length ? piece.tail : per_unit;
}

// Move the warp's chunk, one of block `block` of the job: body.chunk(piece, unit) if all of it lies
// in one piece, otherwise body.unit(piece, unit, count) for each unit, `count` elements of which
// are the piece's.
template <typename List, typename Body>
__device__ inline void move_chunk(const List &job, uint32_t block, Body body)
{
    const uint32_t lane = threadIdx.x % kLanes;
    const uint32_t begin = (block * kWarps + threadIdx.x / kLanes) * kChunk;
    if (begin >= job.units)
        return;
    const uint32_t per_unit = kUnit / job.element_size;
    const uint32_t end = begin + kChunk < job.units ? begin + kChunk : job.units;
    const uint32_t last = job.n == 0 ? 0 : job.n - 1;
    const uint32_t low = find_together(job, begin, 0, last);
    const Piece whole = job.n == 0 ? Piece{} : piece(job, low);
    if (end - begin == kChunk && elements(whole, begin, per_unit) == per_unit &&
        elements(whole, end - 1, per_unit) == per_unit) {
        body.chunk(whole, begin);
        return;
    }
    const uint32_t high = find_together(job, end - 1, low, last);
    for (uint32_t unit = begin + lane; unit < end; unit += kLanes) {
        const Piece mine = job.n == 0 ? Piece{} : piece(job, find(job, unit, low, high));
        body.unit(mine, unit, elements(mine, unit, per_unit));
    }
}

// A piece's data for `unit`.
template <typename T>
__device__ inline T *at(const Piece &piece, uint32_t unit, uint32_t per_unit)
{
    return reinterpret_cast<T *>(piece.data) + static_cast<uint64_t>(unit - piece.first) * per_unit;
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

// `V` elements that are loaded and stored as one.
template <typename T, int V>
struct alignas(sizeof(T) * V) Vector {
    T element[V];
};

// dst[i] = op(src[i]) for the `Count` elements of a chunk, by all lanes of a warp, V at a time.
template <int Count, int V, typename Dst, typename Src, typename Op>
__device__ inline void move(Dst *dst, const Src *src, Op op)
{
    constexpr int kSteps = Count / V / kLanes;        // of each lane
    constexpr int kBatch = kSteps < 16 ? kSteps : 16; // loads in flight
    const Vector<Src, V> *from = reinterpret_cast<const Vector<Src, V> *>(src);
    Vector<Dst, V> *to = reinterpret_cast<Vector<Dst, V> *>(dst);
    for (int i = threadIdx.x % kLanes; i < kSteps * kLanes; i += kBatch * kLanes) {
        Vector<Src, V> loaded[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; j++)
            loaded[j] = from[i + j * kLanes];
#pragma unroll
        for (int j = 0; j < kBatch; j++) {
            Vector<Dst, V> stored;
#pragma unroll
            for (int v = 0; v < V; v++)
                op(stored.element[v], loaded[j].element[v]);
            to[i + j * kLanes] = stored;
        }
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
__device__ inline void copy_chunk(void *dst, const void *src, const void *tensor)
{
    constexpr int kBytes = kChunk * kUnit;
    char *to = static_cast<char *>(dst);
    const char *from = static_cast<const char *>(src);
    if (aligned(tensor, 16))
        move<kBytes / 16, 1>(reinterpret_cast<uint4 *>(to), reinterpret_cast<const uint4 *>(from),
                             Copy());
    else if (aligned(tensor, 8))
        move<kBytes / 8, 1>(reinterpret_cast<uint64_t *>(to),
                            reinterpret_cast<const uint64_t *>(from), Copy());
    else if (aligned(tensor, 4))
        move<kBytes / 4, 1>(reinterpret_cast<uint32_t *>(to),
                            reinterpret_cast<const uint32_t *>(from), Copy());
    else if (aligned(tensor, 2))
        move<kBytes / 2, 1>(reinterpret_cast<uint16_t *>(to),
                            reinterpret_cast<const uint16_t *>(from), Copy());
    else
        move<kBytes, 1>(reinterpret_cast<uint8_t *>(to), reinterpret_cast<const uint8_t *>(from),
                        Copy());
}

} // namespace
