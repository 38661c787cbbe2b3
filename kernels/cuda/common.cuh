// Shared by pack, unpack, keep and pull: a list of slices as the parameter of one launch, or in a table on
// the device, and the launches. What a warp does with it is in pieces.cuh.
//
// The bucket is seen as units of 16 bytes. Slices begin at whole units, so a unit belongs to one
// slice or to none, and only a slice's last unit can be partly padding. One warp moves one chunk of
// 128 units, so 8 MB are 4,096 warps, which are all on an H100 at once, with 64 bytes a lane on
// their way.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warp.cuh"
#include "kernels/kernels.h"

namespace {

constexpr uint32_t kWarps = 8;
constexpr uint32_t kBlocks = 4;          // of a multiprocessor: at most 64 registers
constexpr uint32_t kUnit = 16;           // bytes
constexpr uint32_t kChunk = 4 * kWarp;   // units
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
    uint32_t per_unit; // elements of the bucket
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
    const uint32_t *sample; // first[0], first[kSample], first[2 * kSample], ...
    const uint8_t *tail;
};

// A table of `n` slices.
struct Table {
    char **data;
    uint32_t *first, *sample;
    uint8_t *tail;
};

constexpr uint32_t kSample = TRI_TABLE_SAMPLE;

__host__ __device__ inline Table table_at(void *memory, size_t n)
{
    char *const begin = static_cast<char *>(memory);
    uint32_t *const first = reinterpret_cast<uint32_t *>(begin + n * sizeof(char *));
    uint32_t *const sample = first + n + 1;
    return {reinterpret_cast<char **>(begin), first, sample,
            reinterpret_cast<uint8_t *>(sample + (n + kSample - 1) / kSample)};
}
static_assert(sizeof(char *) + sizeof(uint32_t) + sizeof(uint8_t) == TRI_TABLE_SLICE &&
                  sizeof(uint32_t) == TRI_TABLE_UNIT,
              "tri_table_bytes is what a table takes");

// A list whose slices are in `table`, which has them all: `n`. Units are the caller's to say.
__host__ __device__ inline Kept kept_of(const Head &head, const void *table, size_t n)
{
    const Table at = table_at(const_cast<void *>(table), n);
    Kept kept = {head, at.data, at.first, at.sample, at.tail};
    kept.n = static_cast<uint32_t>(n);
    return kept;
}

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

inline uint32_t log2_of(uint32_t per_unit)
{
    uint32_t shift = 0;
    while (1u << shift < per_unit)
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
    head.per_unit = kUnit / static_cast<uint32_t>(trib_dtype_size(bucket.dtype));
    return head;
}

// The next job: as many slices as fit, up to the first unit of what did not, or of the bucket's
// end.
template <uint32_t Capacity>
inline void next_job(Job<Capacity> &job, Request &request)
{
    static_cast<Head &>(job) = head_of(request);
    job.first[0] = 0;
    const uint32_t shift = log2_of(job.per_unit);
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

// A launch whose every warp moves a chunk. With a decision it is of unpack, which begins while commit
// makes that.
template <auto Kernel, typename List>
inline trib_status launch_list(List &list, trib_stream stream)
{
    [[maybe_unused]] void (*const takes_list)(List) = Kernel;
    void *arguments[] = {&list};
    const uint32_t blocks = (list.units + kChunk * kWarps - 1) / (kChunk * kWarps);
    if (blocks == 0)
        return TRIB_OK;
    return list.decision != nullptr
               ? launch_next_kernel<Kernel>(blocks, kWarp * kWarps, arguments, stream)
               : launch_kernel<Kernel>(blocks, kWarp * kWarps, arguments, stream);
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
    Kept kept = kept_of(head_of(request), table, request.n);
    kept.units = static_cast<uint32_t>(units_of(*request.bucket, log2_of(kept.per_unit)));
    return launch_list<Kernel>(kept, stream);
}

} // namespace
