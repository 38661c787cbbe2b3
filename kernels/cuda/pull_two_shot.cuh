// pull in two shots: a block stores the parts of its twins' pieces where these have slots for them, meets them, and
// stores what it makes of its own piece where all ranks want it. Nothing is read over the links.
#pragma once

#include "kernels/cuda/pull_gather.cuh"
#include "kernels/cuda/pull_job.cuh"
#include "kernels/cuda/pull_units.cuh"

namespace {

constexpr uint32_t kTwoShotThreads = 256,
                   kTwoShotAtOnce = kPullAtOnce * kPullThreads / kTwoShotThreads;

// What the block knows of a call once all have met, in shared memory.
struct Shots {
    Work work[2];               // what it reduces in a round, and in the one behind it
    const char *send;           // of this rank, where units begin, and elements are counted from
    char *recv[TRI_PULL_RANKS]; // of all ranks, likewise; staged, of this one
    uint64_t begin, end;        // the elements
    uint64_t share;             // elements of a rank: the last ranks' may lie behind the end
    uint64_t piece;             // elements of a piece
    bool staged;
};

// Elements [begin, end) of a piece, and the one with which its slot begins.
struct Extent {
    uint64_t slot, begin, end;
};

// Those of the piece that block `twin.block` of a rank reduces in round `k`, if there are any.
template <typename T>
__device__ inline Extent extent_of(const PullJob &job, const Twin &twin, const Shots &shots,
                                   int rank, uint32_t k)
{
    const uint64_t at = (twin.block + uint64_t{k} * job.blocks) * shots.piece;
    const uint64_t last = at + shots.piece < shots.share ? at + shots.piece : shots.share;
    const uint64_t first = rank * shots.share;
    Extent extent = {first + at, first + at, first + last};
    extent.begin = extent.begin > shots.begin ? extent.begin : shots.begin;
    extent.end = extent.end < shots.end ? extent.end : shots.end;
    return extent;
}

// The slot that `rank` has for what `peer` stores there, a part or a result.
template <typename T>
__device__ inline char *slot_at(const PullJob &job, const Twin &twin, const Shots &shots, int rank,
                                int peer, uint32_t k, bool result)
{
    const int slot = (peer < rank ? peer : peer - 1) + (result ? job.size - 1 : 0);
    return half_at(job, twin, rank, k) + slot * (shots.piece * sizeof(T));
}

// ------------------------------------------------------------------------------------ once all have met

// Do all buffers of all ranks lie alike in units of 16 bytes? All ranks find the same.
__device__ inline bool all_alike(const Shots &shots, int size)
{
    const uint32_t shift = shift_of(shots.work[0].send[0]);
    bool alike = true;
    for (int r = 0; r < size; r++)
        alike =
            alike && shift_of(shots.work[0].send[r]) == shift && shift_of(shots.recv[r]) == shift;
    return alike;
}

// The elements over the ranks and in pieces.
template <typename T>
__device__ inline void divide(const PullJob &job, Shots &shots)
{
    constexpr uint64_t kElements = Unit<T>::kElements;
    const uint64_t room = shots.staged ? job.staged_room : job.room;
    const uint64_t units =
        tri_pull_rank_share(tri_pull_share(shots.end, kElements), job.size, room);
    shots.share = units * kElements;
    shots.piece = tri_pull_evenly(units, job.blocks, room) * kElements;
}

// By one thread.
template <typename T>
__device__ inline void plan_shots(const PullJob &job, const Twin &twin, Shots &shots)
{
    const int self = twin.self.rank;
    shots.staged = is_staged(job, shots.work[0].send);
    bool aligned = !shots.staged && all_alike(shots, job.size);
    const uint32_t shift = aligned ? shift_of(twin.self.send) : 0;
    if (shots.staged) {
        shots.recv[self] = static_cast<char *>(twin.self.recv);
        aligned = shift_of(twin.self.send) == 0 && shift_of(twin.self.recv) == 0;
    }
    shots.send = static_cast<const char *>(twin.self.send) - shift;
    for (int r = 0; r < job.size; r++)
        shots.recv[r] -= shift;
    shots.begin = shift / sizeof(T);
    shots.end = shots.begin + job.count;
    divide<T>(job, shots);
    for (Work &work : shots.work) {
        work.first = 0;
        work.step = blockDim.x;
        work.rank = self;
        work.goals = job.size;
        work.aligned = aligned;
    }
}

// ------------------------------------------------------------------------------------------- a round

// Its parts of the twins' pieces.
template <typename T>
__device__ inline void store_parts(const PullJob &job, const Twin &twin, const Shots &shots,
                                   uint32_t k)
{
    int peer = twin.self.rank;
#pragma unroll 1
    for (int i = 1; i < job.size; i++) {
        peer = peer + 1 < job.size ? peer + 1 : 0;
        const Extent extent = extent_of<T>(job, twin, shots, peer, k);
        if (extent.begin < extent.end)
            copy_elements<T>(slot_at<T>(job, twin, shots, peer, twin.self.rank, k, false) +
                                 (extent.begin - extent.slot) * sizeof(T),
                             shots.send + extent.begin * sizeof(T), extent.end - extent.begin);
    }
}

// The same of a list, and its own piece, which is reduced where it is to be.
template <typename T, Source From>
__device__ inline void gather_parts(const PullJob &job, const Twin &twin, const Shots &shots,
                                    uint32_t k)
{
    const int self = twin.self.rank;
    int rank = self;
#pragma unroll 1
    for (int i = 0; i < job.size; i++) {
        rank = rank + 1 < job.size ? rank + 1 : 0;
        const Extent extent = extent_of<T>(job, twin, shots, rank, k);
        char *const to = rank == self ? shots.recv[self] + extent.begin * sizeof(T)
                                      : slot_at<T>(job, twin, shots, rank, self, k, false);
        if (extent.begin < extent.end)
            gather_elements<T, From>(to, job, twin.self, extent.begin, extent.end);
    }
}

// Staged: the twins' results of a round to where they are wanted.
template <typename T>
__device__ inline void take_results(const PullJob &job, const Twin &twin, const Shots &shots,
                                    uint32_t k)
{
#pragma unroll 1
    for (int peer = 0; peer < job.size; peer++) {
        const Extent extent = extent_of<T>(job, twin, shots, peer, k);
        if (peer != twin.self.rank && extent.begin < extent.end)
            copy_elements<T>(shots.recv[twin.self.rank] + extent.begin * sizeof(T),
                             slot_at<T>(job, twin, shots, twin.self.rank, peer, k, true) +
                                 (extent.begin - extent.slot) * sizeof(T),
                             extent.end - extent.begin);
    }
}

// The block's own piece, from all ranks and to all of them. By a thread for each rank, before the barrier; others
// may still reduce that of the round before.
template <typename T>
__device__ inline void plan_own(const PullJob &job, const Twin &twin, Shots &shots, uint32_t k)
{
    const int r = static_cast<int>(threadIdx.x), self = twin.self.rank;
    const Extent extent = extent_of<T>(job, twin, shots, self, k);
    const uint64_t slot = extent.slot * sizeof(T);
    Work &work = shots.work[k % 2];
    if (r < job.size && r != self) {
        work.send[r] = slot_at<T>(job, twin, shots, self, r, k, false) - slot;
        work.recv[r] =
            shots.staged ? slot_at<T>(job, twin, shots, r, self, k, true) - slot : shots.recv[r];
    }
    if (r == self) {
        work.send[r] = shots.send;
        work.recv[r] = shots.recv[r];
        work.begin = extent.begin;
        work.end = extent.begin < extent.end ? extent.end : extent.begin;
    }
}

// ---------------------------------------------------------------------------------------- the kernel

template <typename T, int Ranks, Source From>
__global__ void __launch_bounds__(kTwoShotThreads, kTwoShotAtOnce) pull_two_shot(const PullJob job)
{
    __shared__ Shots shots;
    __shared__ Twin twin;
    begin(job, twin);
    if (!meet_first(job, twin, shots.work[0].send, shots.recv))
        return;
    if (threadIdx.x == 0)
        plan_shots<T>(job, twin, shots);
    __syncthreads();
    uint32_t k = 0;
    for (; (twin.block + uint64_t{k} * job.blocks) * shots.piece < shots.share; k++) {
        plan_own<T>(job, twin, shots, k);
        if (From == Source::kSend || twin.self.list.table == nullptr)
            store_parts<T>(job, twin, shots, k);
        else
            gather_parts<T, From>(job, twin, shots, k);
        if (!meet(job, twin, false))
            return;
        if (shots.staged && k > 0)
            take_results<T>(job, twin, shots, k - 1);
        fold_work<T, Ranks>(shots.work[k % 2], job.size, job.op);
    }
    if (meet_last(job, twin) && shots.staged && k > 0)
        take_results<T>(job, twin, shots, k - 1);
}

template <typename T, int Ranks, Source From>
inline trib_status launch_shots(const tri_pull &call, trib_stream stream)
{
    const PullJob job = pull_job(call, kTwoShotThreads);
    return launch_job<pull_two_shot<T, Ranks, From>>(job.blocks * static_cast<uint32_t>(call.n),
                                                     kTwoShotThreads, job, stream);
}

inline Source source_of(const tri_pull &call)
{
    Source source = Source::kSend;
    for (size_t i = 0; i < call.n; i++)
        if (call.here[i].list.table != nullptr)
            source = call.here[i].list.weighted ? Source::kWeighted : Source::kTensors;
    return source;
}

template <typename T, int Ranks>
inline trib_status launch_two_shot(const tri_pull &call, trib_stream stream)
{
    const Source source = source_of(call);
    if constexpr (kIsSum<T>)
        if (source == Source::kWeighted)
            return launch_shots<T, Ranks, Source::kWeighted>(call, stream);
    return source == Source::kSend ? launch_shots<T, Ranks, Source::kSend>(call, stream)
                                   : launch_shots<T, Ranks, Source::kTensors>(call, stream);
}

} // namespace
