// pull: one launch, in which a block meets its twins on all peers, moves its share of the elements in one
// of three ways, and meets them again. Here are reductions.
#pragma once

#include "kernels/cuda/pull_job.cuh"
#include "kernels/cuda/pull_units.cuh"

namespace {

// ------------------------------------------------------------------------ buffers that all map

__device__ inline uint32_t shift_of(const void *data)
{
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data) % TRI_PULL_UNIT);
}

// Does all that is read and written lie alike in units of 16 bytes? Two shot, all ranks find the same.
__device__ inline bool are_alike(const Work &work, int size)
{
    const uint32_t shift = shift_of(work.send[0]);
    bool alike = true;
    for (int r = 0; r < size; r++)
        alike = alike && shift_of(work.send[r]) == shift &&
                ((work.goals == 1 && r != work.rank) || shift_of(work.recv[r]) == shift);
    return alike;
}

// Two shot, ranks have whole units each, but for both ends of all.
template <typename T>
__device__ inline void plan_elements(const PullJob &job, Work &work, uint32_t shift)
{
    constexpr uint64_t kElements = Unit<T>::kElements;
    const uint64_t begin = shift / sizeof(T) + before(job, work.rank), end = begin + job.count;
    const uint64_t first = work.rank * job.each * kElements, last = first + job.each * kElements;
    const bool all = work.goals == 1;
    work.begin = all || first < begin ? begin : first < end ? first : end;
    work.end = all || last > end ? end : last;
}

// By the first warp.
template <typename T>
__device__ inline void plan_mapped(const PullJob &job, const Twin &twin, Work &work)
{
    const int r = static_cast<int>(threadIdx.x);
    const bool alike = are_alike(work, job.size);
    const uint32_t shift = alike ? shift_of(work.send[0]) : 0;
    __syncwarp();
    if (r < job.size) {
        work.send[r] -= shift;
        work.recv[r] -= shift;
    }
    if (r == 0) {
        work.first = twin.block * blockDim.x;
        work.step = job.blocks * blockDim.x;
        work.aligned = alike;
        plan_elements<T>(job, work, shift);
    }
}

// --------------------------------------------------------------------------------------- staged

// Piece `k` of the block, which begins at element `first`. Scratch of all ranks takes the place of send.
template <typename T>
__device__ inline void plan_piece(const PullJob &job, const Twin &twin, Work &work, uint64_t first,
                                  uint32_t k)
{
    const int r = static_cast<int>(threadIdx.x);
    const int own = job.send_block != 0 ? twin.self.rank : 0;
    if (r < job.size)
        work.send[r] = staged_at(job, twin, r, own, k);
    if (r == twin.self.rank) {
        work.recv[r] = static_cast<char *>(twin.self.recv) + first * sizeof(T);
        work.begin = 0;
        work.end = length_of(job, first);
        work.first = 0;
        work.step = blockDim.x;
        work.goals = 1;
        work.aligned = shift_of(work.recv[r]) == 0;
    }
}

// Elements to where units begin.
template <typename T>
__device__ inline void copy_piece(char *to, const T *from, uint64_t count)
{
    constexpr int kLoads = kPullLoads / 2;
    const uint64_t whole = shift_of(from) == 0 ? count / Unit<T>::kElements : 0;
    for (uint64_t at = threadIdx.x; at < whole; at += kLoads * blockDim.x) {
        uint4 loaded[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            loaded[i] = load_part_if<uint4>(at + i * blockDim.x < whole,
                                            reinterpret_cast<const char *>(from) +
                                                (at + i * blockDim.x) * TRI_PULL_UNIT);
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            if (at + i * blockDim.x < whole)
                reinterpret_cast<uint4 *>(to)[at + i * blockDim.x] = loaded[i];
    }
    for (uint64_t at = whole * Unit<T>::kElements + threadIdx.x; at < count; at += blockDim.x)
        reinterpret_cast<T *>(to)[at] = from[at];
}

// ------------------------------------------------------------------------------------ the kernel

// What the block folds in round `k`, or false if nothing is left. Nobody needs what it folded before.
template <typename T>
__device__ inline bool plan(const PullJob &job, const Twin &twin, Work &work, bool staged,
                            uint32_t k)
{
    const uint64_t first = (twin.block + uint64_t{k} * job.blocks) * job.piece;
    if (staged ? first >= job.count : k > 0)
        return false;
    __syncthreads();
    if (staged)
        plan_piece<T>(job, twin, work, first, k);
    else if (threadIdx.x < 32)
        plan_mapped<T>(job, twin, work);
    __syncthreads();
    for (int b = 0; b < job.blocks_sent && staged; b++)
        copy_piece(staged_at(job, twin, twin.self.rank, b, k),
                   static_cast<const T *>(twin.self.send) + b * job.send_block + first, work.end);
    return true;
}

template <typename T, int Ranks>
__global__ void __launch_bounds__(kPullThreads, kPullAtOnce) pull(const PullJob job)
{
    __shared__ Work work;
    __shared__ Twin twin;
    begin(job, twin);
    if (!meet_first(job, twin, work.send, work.recv))
        return;
    const bool staged = is_staged(job, work.send);
    __syncthreads();
    if (threadIdx.x == 0) {
        work.rank = twin.self.rank;
        work.goals = job.goals;
        work.recv[work.rank] -= before(job, work.rank) * sizeof(T); // as send is
    }
    for (uint32_t k = 0; plan<T>(job, twin, work, staged, k); k++) {
        if (staged && !meet(job, twin))
            return;
        fold_work<T, Ranks>(work, job.size, job.op);
    }
    meet_last(job, twin);
}

// --------------------------------------------------------------------------------- on the host

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
