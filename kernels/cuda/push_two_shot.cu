// push, two shot: each rank reduces a share of an allreduce, and pushes it to its peers.
//
// A thread stores chunks of the peers' shares, then waits for those of its own rank's, reduces them, and stores
// the result at once; at last it waits for shares of the result. Nothing is waited for in a circle: all threads
// of all ranks store the shares of `send` before they wait, and of the result's shares what a thread stores
// depends on nothing but these.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/push.cuh"
#include "kernels/cuda/push_instances.h"

namespace {

// Chunk `at` of a peer's share: the next rank's share comes first.
struct Shared {
    int rank;
    uint32_t at, chunk; // in the share, and in the tensor
};

__device__ inline Shared shared_at(const PushJob &job, int self, uint32_t index)
{
    const int rank = rank_behind(job, self, 1 + index / job.each);
    const uint32_t at = index % job.each;
    return {rank, at, rank * job.each + at};
}

// Of a rank's part that a peer reduces.
template <typename T>
__device__ inline void send_share(const PushJob &job, const tri_push_rank &self, uint32_t buffer,
                                  const Shared &shared)
{
    if (shared.chunk < job.chunks)
        store_granules<Wire<T>::kWide>(job.scratch[shared.rank] + buffer +
                                           slot_of(job, shared.rank, self.rank) + shared.at,
                                       load_own<T>(self.send, job.count, shared.chunk));
}

// One of our own share: reduced as peers will have it, and pushed. False if that is given up.
template <typename T, int Ranks>
__device__ inline bool reduce_share(const PushJob &job, const tri_push_rank &self, uint32_t buffer,
                                    uint32_t at)
{
    constexpr bool kWide = Wire<T>::kWide;
    const uint32_t chunk = self.rank * job.each + at;
    uint4 *const received = job.scratch[self.rank] + buffer;
    uint4 granules[Ranks];
    if (chunk >= job.chunks)
        return true;
    if (!receive_chunk<Ranks, kWide>(job, self, received + at,
                                     load_own<T>(self.send, job.count, chunk), granules))
        return false;
    empty_chunk<Ranks, kWide>(job, received + at);
    const uint4 reduced = encode(reduce_chunk<T>(granules, job.size, job.op));
    send_chunk<Ranks, kWide>(job, self.rank, buffer + job.each + at, reduced);
    store_result(self.recv, job.count, chunk, decode<T>(reduced));
    return true;
}

// One of a peer's. False if that is given up.
template <typename T>
__device__ inline bool take_share(const PushJob &job, const tri_push_rank &self, uint32_t buffer,
                                  const Shared &shared)
{
    const uint32_t slot = buffer + slot_of(job, self.rank, shared.rank);
    uint4 granules;
    if (shared.chunk >= job.chunks)
        return true;
    if (!take_chunk<Wire<T>::kWide>(job, self, job.scratch[self.rank] + slot + job.each + shared.at,
                                    granules))
        return false;
    store_result(self.recv, job.count, shared.chunk, decode<T>(granules));
    return true;
}

template <typename T, int Ranks>
__global__ void __launch_bounds__(kPushThreads, kPushAtOnce) push_two_shot(const PushJob job)
{
    __shared__ Turn turn;
    wait_for_previous();
    const tri_push_rank self = job.here[blockIdx.x / job.blocks];
    const uint32_t step = job.blocks * blockDim.x, others = job.each * (job.size - 1);
    const uint32_t first = blockIdx.x % job.blocks * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0)
        turn = read_turn(self.control);
    __syncthreads();
    if (turn.over != 0)
        return;
    const uint32_t buffer = buffer_of(job, turn);
    for (uint32_t i = first; i < others; i += step)
        send_share<T>(job, self, buffer, shared_at(job, self.rank, i));
    if (threadIdx.x == 0)
        count_block(self.control, job.blocks);
    for (uint32_t i = first; i < job.each; i += step)
        if (!reduce_share<T, Ranks>(job, self, buffer, i))
            return;
    let_next_call_start();
    for (uint32_t i = first; i < others; i += step)
        if (!take_share<T>(job, self, buffer, shared_at(job, self.rank, i)))
            return;
}

template <typename T>
trib_status queue(const tri_push &call, trib_stream stream)
{
    return call.size <= 4 ? launch_push<push_two_shot<T, 4>>(call, 1, stream)
                          : launch_push<push_two_shot<T, 8>>(call, 1, stream);
}

} // namespace

trib_status tri_cuda_push_two_shot(const struct tri_push *call, trib_stream stream)
{
    return dispatch_number(call->dtype,
                           [&](auto type) { return queue<decltype(type)>(*call, stream); });
}
