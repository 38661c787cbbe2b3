// push for copies: one kernel for all types and numbers of ranks.
//
// An item is a chunk and a rank. Every thread has the same items when it sends, to peers and to the
// rank's own result, and when it receives: those of one rank are neighbours in memory and in a warp.
#include "kernels/cuda/push.cuh"
#include "kernels/cuda/push_instances.h"

namespace {

struct Item {
    uint32_t chunk;
    int rank; // the sender's peers from the next one on, then itself
};

__device__ inline Item item_at(const PushJob &job, int self, uint32_t index)
{
    return {index % job.chunks, rank_behind(job, self, 1 + index / job.chunks)};
}

// Bytes that rank `from` sends, and their chunks.
__device__ inline uint64_t part_of(const PushJob &job, int from)
{
    return job.root < 0 || from == job.root ? job.count : 0;
}

__device__ inline bool has_chunk(const PushJob &job, int from, uint32_t chunk)
{
    return chunk == 0 || part_of(job, from) != 0;
}

// Where they belong.
__device__ inline char *place_of(const PushJob &job, const tri_push_rank &self, int from)
{
    return static_cast<char *>(self.recv) + (job.root < 0 ? from * job.count : 0);
}

// What it sends to that rank. (job.here has its own block, if there are blocks.)
__device__ inline const char *sent_to(const PushJob &job, const tri_push_rank &self, int rank)
{
    return static_cast<const char *>(self.send) +
           (rank - self.rank) * static_cast<int64_t>(job.block);
}

__device__ inline void send_item(const PushJob &job, const tri_push_rank &self, uint32_t buffer,
                                 const Item &item, const uint4 &own)
{
    if (item.rank != self.rank) {
        store_granules<true>(
            job.scratch[item.rank] + buffer + slot_of(job, item.rank, self.rank) + item.chunk, own);
        return;
    }
    char *const place = place_of(job, self, self.rank);
    if (place != self.send)
        store_result(place, part_of(job, self.rank), item.chunk, decode<uint8_t>(own));
}

// False if that is given up.
__device__ inline bool receive_item(const PushJob &job, const tri_push_rank &self, uint4 *at,
                                    const Item &item)
{
    uint4 granules;
    if (!take_chunk<true>(job, self, at, granules))
        return false;
    store_result(place_of(job, self, item.rank), part_of(job, item.rank), item.chunk,
                 decode<uint8_t>(granules));
    return true;
}

__global__ void __launch_bounds__(kPushThreads, kPushAtOnce) push_copy(const PushJob job)
{
    __shared__ Turn turn;
    wait_for_previous();
    const tri_push_rank self = job.here[blockIdx.x / job.blocks];
    const uint32_t step = job.blocks * blockDim.x, items = job.chunks * job.size;
    const uint32_t first = blockIdx.x % job.blocks * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0)
        turn = read_turn(self.control);
    const uint64_t bytes = part_of(job, self.rank);
    uint4 own = {};
    if (first < items) { // is on its way, too
        const Item item = item_at(job, self.rank, first);
        own = load_own<uint8_t>(sent_to(job, self, item.rank), bytes, item.chunk);
    }
    __syncthreads();
    if (turn.over != 0)
        return;
    const uint32_t buffer = buffer_of(job, turn);
    for (uint32_t index = first; index < items; index += step) {
        const Item item = item_at(job, self.rank, index);
        if (!has_chunk(job, self.rank, item.chunk))
            continue;
        if (index != first)
            own = load_own<uint8_t>(sent_to(job, self, item.rank), bytes, item.chunk);
        send_item(job, self, buffer, item, own);
    }
    if (threadIdx.x == 0)
        count_block(self.control, job.blocks);
    uint4 *const received = job.scratch[self.rank] + buffer;
    for (uint32_t index = first; index < items; index += step) {
        const Item item = item_at(job, self.rank, index);
        uint4 *const at = received + slot_of(job, self.rank, item.rank) + item.chunk;
        if (item.rank != self.rank && has_chunk(job, item.rank, item.chunk) &&
            !receive_item(job, self, at, item))
            return;
    }
    let_next_call_start();
}

} // namespace

trib_status tri_cuda_push_copy(const struct tri_push *call, trib_stream stream)
{
    return launch_push<push_copy>(*call, static_cast<size_t>(call->size), stream);
}
