// push: one launch of at most 64 blocks. Every thread sends some chunks, then waits for some, in memory
// of its own device; in an allreduce it is the same chunks, to and from all peers.
// There is no fence: what the next call relies on is ordered by the end of this kernel, for which the next
// one waits before it does anything.
#pragma once

#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/push_wire.cuh"
#include "kernels/cuda/waiting.cuh"
#include "kernels/push.h"

namespace {

// A multiprocessor has room for two blocks at once, whose threads have 64 registers each, from sm_75
// on. So a call of 64 blocks needs 32 of them, and one on a smaller device has fewer blocks.
constexpr uint32_t kPushThreads = 512, kPushBlocks = 64, kPushAtOnce = 2;

struct PushJob {
    uint4 *scratch[TRI_PUSH_RANKS];
    tri_push_rank here[TRI_PUSH_RANKS]; // `send` is the part that a rank keeps
    uint64_t count, patience;
    uint64_t block; // elements of `send` from one peer's part to the next one's
    uint32_t *abort_flag;
    uint32_t chunks;
    uint32_t capacity; // of a slot
    uint32_t each;     // two shot: chunks of a share
    uint32_t blocks;   // of one rank
    int size;
    int root; // of a broadcast; -1
    trib_op op;
};

// -------------------------------------------------------------------------------------- waiting

struct Turn {
    uint32_t word, over;
};

// By one thread of a block, before it lets the others go on.
__device__ inline Turn read_turn(const tri_push_control *control)
{
    static_assert(offsetof(tri_push_control, turn) % 8 == 0 &&
                      offsetof(tri_push_control, over) == offsetof(tri_push_control, turn) + 4,
                  "turn and over are loaded as one");
    Turn turn;
    asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
                 : "=r"(turn.word), "=r"(turn.over)
                 : "l"(&control->turn)
                 : "memory");
    return turn;
}

// Where the call's buffer begins in scratch, in chunks.
__device__ inline uint32_t buffer_of(const PushJob &job, const Turn &turn)
{
    return (turn.word / TRI_PUSH_EPOCH & 1) * (job.size - 1) * job.capacity;
}

// Where the slot of `from` begins in a buffer of `owner`, in chunks. Of two ranks there is but one.
template <int Ranks = TRI_PUSH_RANKS>
__device__ inline uint32_t slot_of(const PushJob &job, int owner, int from)
{
    return Ranks == 2 ? 0 : tri_push_place(owner, from) * job.capacity;
}

// By the same thread, later: that takes as long as another read, and nobody waits for it.
__device__ inline void count_block(tri_push_control *control, uint32_t blocks)
{
    if (atomicAdd(&control->turn, 1) % TRI_PUSH_EPOCH + 1 == blocks)
        atomicAdd(&control->turn, TRI_PUSH_EPOCH - blocks);
}

// ------------------------------------------------------------------------------------ the kernel

// The rank that comes so many behind the other one, less than all of them or as many.
__device__ inline int rank_behind(const PushJob &job, int rank, uint32_t distance)
{
    const int next = rank + static_cast<int>(distance);
    return next < job.size ? next : next - job.size;
}

// The chunk into our slot of every peer, `at` in the slots of the buffer; the next rank's first.
template <int Ranks, bool Wide>
__device__ inline void send_chunk(const PushJob &job, int rank, uint32_t at, const uint4 &own)
{
#pragma unroll
    for (int distance = 1; distance < Ranks; distance++)
        if (distance < job.size) {
            const int peer = rank_behind(job, rank, distance);
            store_granules<Wide>(job.scratch[peer] + at + slot_of<Ranks>(job, peer, rank), own);
        }
}

// Every peer's part into our slot there: of all threads together, chunk by chunk, the next rank's first.
template <typename T, int Ranks>
__device__ inline void send_blocks(const PushJob &job, const tri_push_rank &self, uint32_t buffer,
                                   uint32_t first, uint32_t step)
{
    for (uint32_t i = first; i < job.chunks * (job.size - 1); i += step) {
        const int peer = rank_behind(job, self.rank, 1 + i / job.chunks);
        const T *const part = static_cast<const T *>(self.send) +
                              static_cast<int64_t>(job.block) * (peer - self.rank);
        const uint32_t chunk = i % job.chunks;
        store_granules<Wire<T>::kWide>(job.scratch[peer] + buffer +
                                           slot_of<Ranks>(job, peer, self.rank) + chunk,
                                       load_own<T>(part, job.count, chunk));
    }
}

// The chunk of every rank, from the slots that begin at `slots`; false if that is given up. Those of all
// peers are loaded before one is looked at: a load takes as long as all of them. `own` is full.
template <int Ranks, bool Wide>
__device__ inline bool receive_chunk(const PushJob &job, const tri_push_rank &self,
                                     const uint4 *slots, const uint4 &own, uint4 (&granules)[Ranks])
{
    Waiting waiting = {clock64(), 0};
    for (;;) {
        bool full = true;
        const uint4 *at = slots;
#pragma unroll
        for (int r = 0; r < Ranks; r++) {
            granules[r] = load_granules_if<Wide>(r != self.rank && r < job.size, at, own);
            at += r == self.rank ? 0 : job.capacity;
        }
#pragma unroll
        for (int r = 0; r < Ranks; r++)
            full = full && all_full<Wide>(granules[r]);
        if (full)
            return true;
        if (gives_up<true>(job, self.control, waiting))
            return false;
    }
}

// One chunk of a peer, from our own scratch, which is EMPTY again; false if that is given up.
template <bool Wide>
__device__ inline bool take_chunk(const PushJob &job, const tri_push_rank &self, uint4 *at,
                                  uint4 &granules)
{
    Waiting waiting = {clock64(), 0};
    for (granules = load_granules<Wide>(at); !all_full<Wide>(granules);
         granules = load_granules<Wide>(at))
        if (gives_up<true>(job, self.control, waiting))
            return false;
    store_granules<Wide>(at, {kPushEmpty, kPushEmpty, kPushEmpty, kPushEmpty});
    return true;
}

// The same chunk of all slots.
template <int Ranks, bool Wide>
__device__ inline void empty_chunk(const PushJob &job, uint4 *slots)
{
#pragma unroll
    for (int place = 0; place < Ranks - 1; place++)
        if (place < job.size - 1)
            store_granules<Wide>(slots + place * job.capacity,
                                 {kPushEmpty, kPushEmpty, kPushEmpty, kPushEmpty});
}

template <typename T, int Ranks>
__device__ inline Part<T> reduce_chunk(const uint4 (&granules)[Ranks], int size, trib_op op)
{
    Part<T> parts[Ranks];
#pragma unroll
    for (int r = 0; r < Ranks; r++)
        parts[r] = decode<T>(granules[r]);
    return reduce(parts, size, op);
}

// The peers for which this block's first thread waits have come. Not before that: while one is late, blocks of
// the next call would take room on the device, and do nothing.
__device__ inline void let_next_call_start()
{
    if (threadIdx.x == 0)
        let_next_start();
}

template <typename T, int Ranks>
__global__ void __launch_bounds__(kPushThreads, kPushAtOnce) push(const PushJob job)
{
    constexpr bool kWide = Wire<T>::kWide;
    __shared__ Turn turn;
    wait_for_previous();
    const tri_push_rank self = job.here[blockIdx.x / job.blocks];
    const uint32_t step = job.blocks * blockDim.x;
    const uint32_t first = blockIdx.x % job.blocks * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0)
        turn = read_turn(self.control);
    uint4 own = {};
    if (first < job.chunks)
        own =
            load_own<T>(self.send, job.count, first); // on its way while the block learns its turn
    __syncthreads();
    if (turn.over != 0)
        return;
    const uint32_t buffer = buffer_of(job, turn);
    if (job.block != 0)
        send_blocks<T, Ranks>(job, self, buffer, first, step);
    else
        for (uint32_t chunk = first; chunk < job.chunks; chunk += step)
            send_chunk<Ranks, kWide>(job, self.rank, buffer + chunk,
                                     chunk == first ? own
                                                    : load_own<T>(self.send, job.count, chunk));
    if (threadIdx.x == 0)
        count_block(self.control, job.blocks);
    uint4 *const received = job.scratch[self.rank] + buffer;
    for (uint32_t chunk = first; chunk < job.chunks; chunk += step) {
        uint4 granules[Ranks];
        if (chunk != first)
            own = load_own<T>(self.send, job.count, chunk);
        if (!receive_chunk<Ranks, kWide>(job, self, received + chunk, own, granules))
            return;
        empty_chunk<Ranks, kWide>(job, received + chunk);
        store_result(self.recv, job.count, chunk, reduce_chunk<T>(granules, job.size, job.op));
    }
    let_next_call_start();
}

// --------------------------------------------------------------------------------- on the host

inline PushJob push_job(const tri_push &call)
{
    PushJob job = {};
    for (int r = 0; r < call.size; r++)
        job.scratch[r] = static_cast<uint4 *>(call.scratch[r]);
    job.block = tri_push_scatters(call.kind) ? call.count : 0;
    for (size_t i = 0; i < call.n; i++) {
        job.here[i] = call.here[i];
        job.here[i].send = static_cast<const char *>(call.here[i].send) +
                           call.here[i].rank * job.block * trib_dtype_size(call.dtype);
    }
    job.capacity = static_cast<uint32_t>(call.capacity);
    job.count = call.count;
    job.patience = call.patience_ns;
    job.abort_flag = call.abort_flag;
    job.chunks = static_cast<uint32_t>(tri_push_chunks(call.count, call.dtype));
    job.each = static_cast<uint32_t>(tri_push_each(&call));
    job.size = call.size;
    job.root = call.kind == TRI_PUSH_BROADCAST ? call.root : -1;
    job.op = call.op;
    return job;
}

// With a thread for each of `each` pieces of every chunk, if there can be so many.
template <void (*Kernel)(PushJob)>
inline trib_status launch_push(const tri_push &call, size_t each, trib_stream stream)
{
    PushJob job = push_job(call);
    const size_t pieces = job.chunks * each;
    const uint32_t threads =
        pieces < kPushThreads ? (static_cast<uint32_t>(pieces) + 31) / 32 * 32 : kPushThreads;
    const size_t wanted = (pieces + threads - 1) / threads;
    const uint32_t fit = blocks_at_once(kPushAtOnce);
    const uint32_t most = (fit < kPushBlocks ? fit : kPushBlocks) / static_cast<uint32_t>(call.n);
    job.blocks = wanted < most ? static_cast<uint32_t>(wanted) : most > 0 ? most : 1;
    return launch_next<Kernel>(job.blocks * static_cast<uint32_t>(call.n), threads, job, stream);
}

// A reduction of elements of T.
template <typename T>
inline trib_status queue_push(const tri_push &call, trib_stream stream)
{
    const size_t each =
        call.kind == TRI_PUSH_REDUCE_SCATTER ? static_cast<size_t>(call.size - 1) : 1;
    if (call.size == 2)
        return launch_push<push<T, 2>>(call, each, stream);
    return call.size <= 4 ? launch_push<push<T, 4>>(call, each, stream)
                          : launch_push<push<T, 8>>(call, each, stream);
}

} // namespace
