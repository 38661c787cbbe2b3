// pull: one launch, in which a block meets its twins on all peers, moves its share of the elements in one
// of three ways, and meets them again.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pull_meet.cuh"
#include "kernels/cuda/pull_units.cuh"

namespace {

// A multiprocessor has room for two blocks at once, whose threads have 64 registers each, from sm_75
// on. So calls of two communicators, and push, are on a device of 132 at once.
constexpr uint32_t kPullThreads = 512, kPullBlocks = 96, kPullAtOnce = 2;

// ------------------------------------------------------------------------ buffers that all map

__device__ inline uint32_t shift_of(const void *data)
{
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data) % TRI_PULL_UNIT);
}

// Does all that is read and written lie alike in units of 16 bytes? Two shot, all ranks find the same.
__device__ inline bool are_alike(const Buffers &buffers, const Work &work)
{
    const uint32_t shift = shift_of(buffers.send[0]);
    bool alike = true;
    for (int r = 0; r < work.size; r++)
        alike = alike && shift_of(buffers.send[r]) == shift &&
                ((work.goals == 1 && r != work.rank) || shift_of(buffers.recv[r]) == shift);
    return alike;
}

template <typename T, int Ranks>
__device__ inline void fold_mapped(const PullJob &job, const Twin &twin, const Buffers &buffers)
{
    const int rank = twin.self.rank, goals = job.way == TRI_PULL_TWO_SHOT ? job.size : 1;
    Work work = {0, 0, job.size, rank, goals, job.op};
    const bool alike = are_alike(buffers, work);
    const uint32_t shift = alike ? shift_of(buffers.send[0]) : 0;
    work.from = work.to = -static_cast<int64_t>(shift);
    uint64_t begin = shift / sizeof(T), end = begin + job.count;
    if (goals > 1) { // units between the elements of two ranks
        const uint64_t units = (end + Unit<T>::kElements - 1) / Unit<T>::kElements;
        const uint64_t size = static_cast<uint64_t>(job.size);
        const uint64_t first = units * rank / size * Unit<T>::kElements;
        const uint64_t last = units * (rank + 1) / size * Unit<T>::kElements;
        begin = first > begin ? first : begin;
        end = last < end ? last : end;
    }
    const Worker worker = {twin.block * blockDim.x + threadIdx.x, job.blocks * blockDim.x};
    if (begin < end)
        fold_elements<T, Ranks>(buffers, work, worker, begin, end, alike);
}

// --------------------------------------------------------------------------------------- staged

// Elements of a piece: as many as half of the block's part of scratch holds, or as give every block one.
template <typename T>
__device__ inline uint64_t piece_elements(const PullJob &job)
{
    constexpr uint64_t kElements = Unit<T>::kElements;
    const uint64_t room = job.half / TRI_PULL_UNIT;
    const uint64_t each = (job.count + kElements - 1) / kElements / job.blocks + 1;
    return (room < each ? room : each) * kElements;
}

// Scratch of all ranks takes the place of their send.
__device__ inline void stage_buffers(const PullJob &job, const Twin &twin, Buffers &buffers)
{
    const int rank = static_cast<int>(threadIdx.x);
    if (rank < job.size)
        buffers.send[rank] = job.scratch[rank] + 2 * twin.block * job.half;
    if (rank == twin.self.rank)
        buffers.recv[rank] = static_cast<char *>(twin.self.recv);
}

// Elements to where units begin.
template <typename T>
__device__ inline void copy_piece(char *to, const T *from, uint64_t count)
{
    const uint64_t whole = shift_of(from) == 0 ? count / Unit<T>::kElements : 0;
    for (uint64_t at = threadIdx.x; at < whole; at += kPullLoads * blockDim.x) {
        uint4 loaded[kPullLoads];
#pragma unroll
        for (int i = 0; i < kPullLoads; i++)
            loaded[i] = load_part_if<uint4>(at + i * blockDim.x < whole,
                                            reinterpret_cast<const char *>(from) +
                                                (at + i * blockDim.x) * TRI_PULL_UNIT);
#pragma unroll
        for (int i = 0; i < kPullLoads; i++)
            if (at + i * blockDim.x < whole)
                reinterpret_cast<uint4 *>(to)[at + i * blockDim.x] = loaded[i];
    }
    for (uint64_t at = whole * Unit<T>::kElements + threadIdx.x; at < count; at += blockDim.x)
        reinterpret_cast<T *>(to)[at] = from[at];
}

// False if it is given up.
template <typename T, int Ranks>
__device__ inline bool fold_staged(const PullJob &job, Twin &twin, Buffers &buffers)
{
    const uint64_t most = piece_elements<T>(job);
    const T *const send = static_cast<const T *>(twin.self.send);
    char *const own = job.scratch[twin.self.rank] + 2 * twin.block * job.half;
    const bool aligned = shift_of(twin.self.recv) == 0;
    uint64_t half = 0;
    stage_buffers(job, twin, buffers);
    for (uint64_t first = twin.block * most; first < job.count; first += job.blocks * most) {
        const uint64_t count = job.count - first < most ? job.count - first : most;
        const Work work = {static_cast<int64_t>(half),
                           static_cast<int64_t>(first * sizeof(T)),
                           job.size,
                           twin.self.rank,
                           1,
                           job.op};
        copy_piece(own + half, send + first, count);
        if (!meet(job, twin))
            return false;
        fold_elements<T, Ranks>(buffers, work, {threadIdx.x, blockDim.x}, 0, count, aligned);
        half = job.half - half;
    }
    return true;
}

// ------------------------------------------------------------------------------------ the kernel

template <typename T, int Ranks>
__global__ void __launch_bounds__(kPullThreads, kPullAtOnce) pull(const PullJob job)
{
    __shared__ Buffers buffers;
    Twin twin = {job.here[blockIdx.x / job.blocks], blockIdx.x % job.blocks, 0};
    if (!meet_first(job, twin, buffers.send, buffers.recv))
        return;
    bool staged = false;
    for (int r = 0; r < job.size; r++)
        staged = staged || buffers.send[r] == nullptr;
    __syncthreads(); // before staging changes them
    if (!staged)
        fold_mapped<T, Ranks>(job, twin, buffers);
    else if (!fold_staged<T, Ranks>(job, twin, buffers))
        return;
    meet_last(job, twin);
}

// --------------------------------------------------------------------------------- on the host

// Of one rank: what all ranks find alike.
inline uint32_t blocks_of(const tri_pull &call)
{
    const uint64_t units = call.count / (TRI_PULL_UNIT / trib_dtype_size(call.dtype)) + 1;
    const uint64_t own =
        call.way == TRI_PULL_TWO_SHOT ? units / static_cast<uint64_t>(call.size) + 1 : units;
    const uint64_t wanted = (own + kPullThreads - 1) / kPullThreads;
    const uint32_t fit = blocks_at_once(kPullAtOnce) / static_cast<uint32_t>(call.n);
    constexpr uint32_t kMost = TRI_PULL_BLOCKS;
    uint32_t most = call.blocks > 0 ? static_cast<uint32_t>(call.blocks) : kPullBlocks;
    most = most < kMost ? most : kMost;
    most = most < fit ? most : fit > 0 ? fit : 1;
    return wanted < most ? static_cast<uint32_t>(wanted) : most;
}

inline PullJob pull_job(const tri_pull &call)
{
    PullJob job = {};
    for (int r = 0; r < call.size; r++) {
        job.control[r] = call.control[r];
        job.scratch[r] = static_cast<char *>(call.scratch[r]);
    }
    for (size_t i = 0; i < call.n; i++)
        job.here[i] = call.here[i];
    job.blocks = blocks_of(call);
    job.half = tri_pull_half(call.scratch_bytes, job.blocks);
    job.count = call.count;
    job.patience = call.patience_ns;
    job.abort_flag = call.abort_flag;
    job.size = call.size;
    job.op = call.op;
    job.way = call.way;
    return job;
}

template <typename T, int Ranks>
inline trib_status launch_pull(const tri_pull &call, trib_stream stream)
{
    const PullJob job = pull_job(call);
    return launch_job<pull<T, Ranks>>(job.blocks * static_cast<uint32_t>(call.n), kPullThreads, job,
                                      stream);
}

// A call of elements of T.
template <typename T>
inline trib_status queue_pull(const tri_pull &call, trib_stream stream)
{
    if (call.size == 2)
        return launch_pull<T, 2>(call, stream);
    return call.size <= 4 ? launch_pull<T, 4>(call, stream) : launch_pull<T, 8>(call, stream);
}

} // namespace
