// pull for copies: one kernel for all types and numbers of ranks.
#include "kernels/cuda/loads.cuh"
#include "kernels/cuda/pull_instances.h"
#include "kernels/cuda/pull_job.cuh"

namespace {

// Loads that a thread has on their way.
constexpr int kCopyLoads = 6;

// Of threads that copy the same bytes, the block's first; and all of them.
struct Share {
    uint32_t first, step;
};

// ------------------------------------------------------------------------------------------ bytes

// Values of U, to where U is aligned; so few that their numbers take one register.
template <typename U>
__device__ inline void copy_few(char *to, const char *from, uint32_t n, const Share &share)
{
#pragma unroll 1
    for (uint32_t at = share.first + threadIdx.x; at < n; at += share.step * kCopyLoads) {
        U loaded[kCopyLoads];
#pragma unroll
        for (int i = 0; i < kCopyLoads; i++) {
            const uint32_t k = at + share.step * i;
            loaded[i] = load_value_if<U>(k < n, from + uint64_t{k} * sizeof(U));
        }
#pragma unroll
        for (int i = 0; i < kCopyLoads; i++) {
            const uint32_t k = at + share.step * i;
            if (k < n)
                *reinterpret_cast<U *>(to + uint64_t{k} * sizeof(U)) = loaded[i];
        }
    }
}

template <typename U>
__device__ inline void copy_values(char *to, const char *from, uint64_t n, const Share &share)
{
    constexpr uint64_t kFew = uint64_t{1} << 30;
#pragma unroll 1
    for (uint64_t at = 0; at < n; at += kFew)
        copy_few<U>(to + at * sizeof(U), from + at * sizeof(U),
                    static_cast<uint32_t>(n - at < kFew ? n - at : kFew), share);
}

// By values of U, which both ends lie alike in; single bytes before and behind them.
template <typename U>
__device__ inline void copy_as(char *to, const char *from, uint64_t bytes, const Share &share)
{
    uint64_t head = (sizeof(U) - reinterpret_cast<uintptr_t>(to) % sizeof(U)) % sizeof(U);
    head = head < bytes ? head : bytes;
    const uint64_t whole = (bytes - head) / sizeof(U), tail = head + whole * sizeof(U);
    copy_values<U>(to + head, from + head, whole, share);
    if (sizeof(U) == 1)
        return;
    const uint32_t ends = static_cast<uint32_t>(head + bytes - tail); // a few bytes
    uint64_t at = share.first + threadIdx.x;
    if (at >= ends)
        return;
    at += at < head ? 0 : tail - head;
    to[at] = from[at];
}

// By the widest values that both ends lie alike in.
__device__ inline void copy_bytes(char *to, const char *from, uint64_t bytes, const Share &share)
{
    const uint32_t apart =
        static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
    if (apart % 16 == 0)
        copy_as<uint4>(to, from, bytes, share);
    else if (apart % 8 == 0)
        copy_as<uint64_t>(to, from, bytes, share);
    else if (apart % 4 == 0)
        copy_as<uint32_t>(to, from, bytes, share);
    else if (apart % 2 == 0)
        copy_as<uint16_t>(to, from, bytes, share);
    else
        copy_as<uint8_t>(to, from, bytes, share);
}

// ------------------------------------------------------------------------------------------ ranks

// Where rank `from`'s part belongs.
__device__ inline char *place_of(const PullJob &job, const tri_pull_rank &self, int from)
{
    return static_cast<char *>(self.recv) + from * job.recv_block;
}

// Ranks whose parts are copied: the peers, and then the rank itself, unless that has its part in its place;
// of a broadcast the root.
__device__ inline int sources_of(const PullJob &job, const tri_pull_rank &self)
{
    const bool in_place = self.send == place_of(job, self, self.rank);
    if (job.root >= 0)
        return self.rank != job.root || !in_place;
    return job.size - in_place;
}

__device__ inline int source_at(const PullJob &job, const tri_pull_rank &self, int i)
{
    return job.root >= 0 ? job.root : (self.rank + 1 + i) % job.size;
}

// The blocks are divided over the sources, so that all links are in use.
__device__ inline void copy_mapped(const PullJob &job, const Twin &twin, const char *const *send)
{
    const uint32_t sources = sources_of(job, twin.self);
    const uint32_t groups = job.blocks < sources ? job.blocks : sources;
    if (groups == 0)
        return;
    const uint32_t group = twin.block % groups;
    const uint32_t blocks = (job.blocks - group + groups - 1) / groups;
    const Share share = {twin.block / groups * blockDim.x, blocks * blockDim.x};
    for (uint32_t i = group; i < sources; i += groups) {
        const int from = source_at(job, twin.self, i);
        copy_bytes(place_of(job, twin.self, from), send[from] + before(job, twin.self.rank),
                   job.count, share);
    }
}

// ------------------------------------------------------------------------------------------ staged

// False if a barrier was given up.
__device__ inline bool copy_staged(const PullJob &job, Twin &twin)
{
    const Share all = {0, blockDim.x};
    const bool sends = job.root < 0 || twin.self.rank == job.root;
    const int sources = sources_of(job, twin.self);
    const int own = job.send_block != 0 ? twin.self.rank : 0;
    for (uint32_t k = 0;; k++) {
        const uint64_t first = (twin.block + uint64_t{k} * job.blocks) * job.piece;
        if (first >= job.count)
            return true;
        for (int b = 0; b < job.blocks_sent && sends; b++)
            copy_bytes(staged_at(job, twin, twin.self.rank, b, k),
                       static_cast<const char *>(twin.self.send) + b * job.send_block + first,
                       length_of(job, first), all);
        if (!meet(job, twin, false))
            return false;
        for (int i = 0; i < sources; i++) {
            const int from = source_at(job, twin.self, i);
            copy_bytes(place_of(job, twin.self, from) + first, staged_at(job, twin, from, own, k),
                       length_of(job, first), all);
        }
    }
}

__global__ void __launch_bounds__(kPullThreads, kPullAtOnce) pull_copy(const PullJob job)
{
    __shared__ const char *send[TRI_PULL_RANKS];
    __shared__ char *recv[TRI_PULL_RANKS];
    __shared__ Twin twin;
    begin(job, twin);
    if (!meet_first(job, twin, send, recv))
        return;
    if (!is_staged(job, send))
        copy_mapped(job, twin, send);
    else if (!copy_staged(job, twin))
        return;
    meet_last(job, twin);
}

} // namespace

trib_status tri_cuda_pull_copy(const struct tri_pull *call, trib_stream stream)
{
    const PullJob job = pull_job(*call, kPullThreads);
    return launch_job<pull_copy>(job.blocks * static_cast<uint32_t>(call->n), kPullThreads, job,
                                 stream);
}
