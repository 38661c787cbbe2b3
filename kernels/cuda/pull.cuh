// pull: one launch, in which a block meets its twins on all peers, moves its share of the elements, and meets
// them again. Here are reductions in one shot; pull_two_shot.cuh has the others.
#pragma once

#include "kernels/cuda/pull_job.cuh"
#include "kernels/cuda/pull_two_shot.cuh"
#include "kernels/cuda/pull_units.cuh"

namespace {

// ------------------------------------------------------------------------ buffers that all map

// Does all that is read and written lie alike in units of 16 bytes?
__device__ inline bool are_alike(const Work &work, int size)
{
    const uint32_t shift = shift_of(work.recv[work.rank]);
    bool alike = true;
    for (int r = 0; r < size; r++)
        alike = alike && shift_of(work.send[r]) == shift;
    return alike;
}

// By the first warp.
template <typename T>
__device__ inline void plan_mapped(const PullJob &job, const Twin &twin, Work &work)
{
    const int r = static_cast<int>(threadIdx.x);
    const bool alike = are_alike(work, job.size);
    const uint32_t shift = alike ? shift_of(work.send[0]) : 0;
    __syncwarp();
    if (r < job.size)
        work.send[r] -= shift;
    if (r == work.rank) {
        work.recv[r] -= shift;
        work.begin = shift / sizeof(T) + before(job, r);
        work.end = work.begin + job.count;
        work.first = twin.block * blockDim.x;
        work.step = job.blocks * blockDim.x;
        work.aligned = alike;
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
        work.aligned = shift_of(work.recv[r]) == 0;
    }
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
        copy_elements<T>(staged_at(job, twin, twin.self.rank, b, k),
                         static_cast<const char *>(twin.self.send) +
                             (b * job.send_block + first) * sizeof(T),
                         work.end);
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
        work.goals = 1;
        work.recv[work.rank] -= before(job, work.rank) * sizeof(T); // as send is
    }
    for (uint32_t k = 0; plan<T>(job, twin, work, staged, k); k++) {
        if (staged && !meet(job, twin, false))
            return;
        fold_work<T, Ranks>(work, job.size, job.op);
    }
    meet_last(job, twin);
}

// --------------------------------------------------------------------------------- on the host

template <typename T, int Ranks>
inline trib_status launch_pull(const tri_pull &call, trib_stream stream)
{
    if (tri_pull_is_two_shot(&call))
        return launch_two_shot<T, Ranks>(call, stream);
    const PullJob job = pull_job(call, kPullThreads);
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
