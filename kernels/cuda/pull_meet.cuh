// The barriers of pull: a block and its twins, the blocks of the same index on all peers (see pull.h).
#pragma once

#include "kernels/cuda/waiting.cuh"
#include "kernels/pull.h"

namespace {

struct PullJob {
    tri_pull_control *control[TRI_PULL_RANKS];
    char *scratch[TRI_PULL_RANKS];
    tri_pull_rank here[TRI_PULL_RANKS];
    ptrdiff_t send_shift[TRI_PULL_RANKS], recv_shift[TRI_PULL_RANKS];
    uint64_t count, patience;
    uint64_t slice;                  // one shot, staged: bytes of a piece
    uint64_t send_block, recv_block; // from one rank's block to the next one's; 0: there are none
    uint64_t half;                   // bytes of half of a block's part of scratch
    uint64_t piece;                  // one shot, staged: elements of a piece
    uint64_t room, staged_room;      // two shot: units of a slot
    uint32_t *abort_flag;
    uint32_t blocks; // of one rank
    int size;
    int blocks_sent; // blocks of send, of the ranks; 1: there are none
    int root;        // of a broadcast; -1
    trib_op op;
};

// Which block this is. It lies in shared memory: the registers are for what is moved.
struct Twin {
    tri_pull_rank self;
    uint64_t turn; // barriers that it has been at
    uint32_t block;
    uint32_t over; // not 0: calls before were ended
};

// The warp whose threads tell a peer each that the block has come, and the one that awaits them: a release waits for
// all that the block has stored, and what the peers tell arrives meanwhile.
constexpr int kTeller = 0, kAwaiter = 1;

// Whose peer the thread is, if it has one in that warp.
__device__ inline int peer_of(int warp)
{
    return static_cast<int>(threadIdx.x) - 32 * warp;
}

__device__ inline bool is_partner(const PullJob &job, const Twin &twin, int warp)
{
    const int peer = peer_of(warp);
    return peer >= 0 && peer < job.size && peer != twin.self.rank;
}

constexpr unsigned long long kLeavesFor = 1000000000; // ns; see pull.h, "Giving up"
constexpr unsigned int kAwaitsEvery = 5000;           // ns

// ------------------------------------------------------------------------- the states of two posts

// Of this block at a peer, and of its twin there in the control of this rank.
__device__ inline uint64_t *own_post(const PullJob &job, const Twin &twin, int peer)
{
    return &job.control[peer]->posts[twin.block][twin.self.rank].state;
}

__device__ inline uint64_t *twins_post(const PullJob &job, const Twin &twin, int peer)
{
    return &job.control[twin.self.rank]->posts[twin.block][peer].state;
}

__device__ inline uint64_t load_state(const uint64_t *state)
{
    uint64_t found;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(found) : "l"(state) : "memory");
    return found;
}

__device__ inline uint64_t swap_state(uint64_t *state, uint64_t expected, uint64_t wanted)
{
    uint64_t found;
    asm volatile("atom.acquire.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(found)
                 : "l"(state), "l"(expected), "l"(wanted)
                 : "memory");
    return found;
}

// Has it come to that turn, whether it has left since or not?
__device__ inline bool has_come(uint64_t state, uint64_t turn)
{
    return (state & ~TRI_PULL_LEFT) / TRI_PULL_TURN >= turn;
}

__device__ inline bool has_left(uint64_t state)
{
    return (state & TRI_PULL_LEFT) != 0;
}

// Has the twin left? Then no call of this rank may begin: the twin's post is of no use to it, nor is ours to
// others, who may be at another call. (Nor may this one end before await_end.)
__device__ inline bool is_forsaken(const PullJob &job, const Twin &twin, uint64_t state)
{
    if (has_left(state))
        end_all(job.control[twin.self.rank], TRI_PUSH_ABORTED);
    return has_left(state);
}

// -------------------------------------------------------------------------------- any barrier

// By a thread for each peer: until that one has come as well. False if that is given up.
__device__ inline bool await_turn(const PullJob &job, const Twin &twin, int peer)
{
    const uint64_t *const state = twins_post(job, twin, peer);
    Waiting waiting = {clock64(), 0};
    for (;;) {
        const uint64_t found = load_state(state);
        if (has_come(found, twin.turn))
            return true;
        if (is_forsaken(job, twin, found) ||
            gives_up<false>(job, job.control[twin.self.rank], waiting))
            return false;
    }
}

// By the same thread, if the block gives up: no twin accesses buffers of this rank when it returns. `next`
// is the turn by which a twin that accesses them has ceased to. A peer of its own is each thread's: all are told
// whoever is waited for, or those who leave would wait for each other in a ring.
__device__ inline void leave(const PullJob &job, const Twin &twin, int peer, uint64_t next)
{
    uint64_t found;
    asm volatile("atom.acq_rel.sys.global.or.b64 %0, [%1], %2;"
                 : "=l"(found)
                 : "l"(own_post(job, twin, peer)), "l"(TRI_PULL_LEFT)
                 : "memory");
    if ((found & TRI_PULL_TAKEN) == 0)
        return;
    const unsigned long long since = global_ns();
    do
        found = load_state(twins_post(job, twin, peer));
    while (!has_come(found, next) && !has_left(found) && global_ns() - since < kLeavesFor);
}

// By a thread of a block that has left: until this rank's own calls are over, too. A peer of another process may
// have given up before this one has heard of it, and a call that ends is taken for one with a result.
__device__ inline void await_end(const PullJob &job)
{
    const unsigned long long since = global_ns();
    while (load_abort_word(job.abort_flag) == 0) {
        if (job.patience != 0 && global_ns() - since > job.patience)
            asm volatile("st.relaxed.sys.global.u32 [%0], %1;"
                         :
                         : "l"(job.abort_flag), "r"(uint32_t{TRI_PUSH_LATE})
                         : "memory");
        __nanosleep(kAwaitsEvery);
    }
    await_others(job.abort_flag);
}

// By all threads of a block that gives up, or whose peer has; `next` as for leave.
__device__ inline void leave_all(const PullJob &job, const Twin &twin, uint64_t next)
{
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < job.size && peer != twin.self.rank)
        leave(job, twin, peer, next);
    if (peer == twin.self.rank)
        await_end(job);
}

// A barrier behind the first, of all threads; is it the last one? The turn is told once all of them are here,
// and its release holds for what they all have written. False if it is given up.
__device__ inline bool meet(const PullJob &job, Twin &twin, bool last)
{
    bool came = true;
    if (threadIdx.x == 0)
        twin.turn++;
    __syncthreads();
    if (is_partner(job, twin, kTeller))
        asm volatile("red.release.sys.global.add.u64 [%0], %1;"
                     :
                     : "l"(own_post(job, twin, peer_of(kTeller))), "l"(TRI_PULL_TURN)
                     : "memory");
    if (is_partner(job, twin, kAwaiter))
        came = await_turn(job, twin, peer_of(kAwaiter));
    if (__syncthreads_or(!came) == 0)
        return true;
    leave_all(job, twin, twin.turn + !last);
    return false;
}

// ------------------------------------------------------------------------------ the first barrier

// Where the peer has what is here; NULL stays NULL.
__device__ inline const void *shifted(const void *data, ptrdiff_t shift)
{
    return data == nullptr ? nullptr : static_cast<const char *>(data) + shift;
}

// The pointers of this rank, and then its turn, which releases them.
__device__ inline void send_pointers(const PullJob &job, const Twin &twin, int peer,
                                     const void *send, const void *recv)
{
    static_assert(offsetof(tri_pull_post, recv) == 8 && sizeof(tri_pull_post) % 16 == 0 &&
                      offsetof(tri_pull_control, posts) % 16 == 0,
                  "pointers are stored and loaded as one");
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};"
                 :
                 : "l"(&job.control[peer]->posts[twin.block][twin.self.rank]), "l"(send), "l"(recv)
                 : "memory");
    asm volatile("st.release.sys.global.u64 [%0], %1;"
                 :
                 : "l"(own_post(job, twin, peer)), "l"(twin.turn * TRI_PULL_TURN)
                 : "memory");
}

// Until the peer has come, and its buffers are ours to access. False if that is given up.
__device__ inline bool take_pointers(const PullJob &job, const Twin &twin, int peer,
                                     const char *&send, char *&recv)
{
    uint64_t *const state = twins_post(job, twin, peer);
    uint64_t expected = twin.turn * TRI_PULL_TURN;
    Waiting waiting = {clock64(), 0};
    for (;;) {
        const uint64_t found = swap_state(state, expected, expected | TRI_PULL_TAKEN);
        if (found == expected)
            break;
        if (is_forsaken(job, twin, found))
            return false;
        if (has_come(found, twin.turn)) // it waits at the next barrier already
            expected = found;
        else if (gives_up<false>(job, job.control[twin.self.rank], waiting))
            return false;
    }
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(send), "=l"(recv)
                 : "l"(&job.control[twin.self.rank]->posts[twin.block][peer])
                 : "memory");
    return true;
}

// What this block is, and knows of the calls before.
__device__ inline void begin(const PullJob &job, Twin &twin)
{
    if (threadIdx.x == 0) {
        twin.self = job.here[blockIdx.x / job.blocks];
        twin.block = blockIdx.x % job.blocks;
        const tri_pull_control *const control = job.control[twin.self.rank];
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                     : "=r"(twin.over)
                     : "l"(&control->over)
                     : "memory");
        twin.turn = control->turn[twin.block] + 1;
    }
    __syncthreads();
}

// Elements of send before the block that the rank's result is made of.
__device__ inline uint64_t before(const PullJob &job, int rank)
{
    return rank * job.send_block;
}

// Staged: elements of the piece that begins at element `first` of a block.
__device__ inline uint64_t length_of(const PullJob &job, uint64_t first)
{
    return job.count - first < job.piece ? job.count - first : job.piece;
}

// Half `k` mod 2 of this block's part of a rank's scratch.
__device__ inline char *half_at(const PullJob &job, const Twin &twin, int rank, uint32_t k)
{
    return job.scratch[rank] + (2 * twin.block + k % 2) * job.half;
}

// Where the piece of block `block` of a rank's send is.
__device__ inline char *staged_at(const PullJob &job, const Twin &twin, int rank, int block,
                                  uint32_t k)
{
    return half_at(job, twin, rank, k) + block * job.slice;
}

// Are there buffers that not all ranks map? All blocks of all ranks find the same.
__device__ inline bool is_staged(const PullJob &job, const char *const *send)
{
    bool staged = false;
    for (int r = 0; r < job.size; r++)
        staged = staged || send[r] == nullptr;
    return staged;
}

// The barrier at which `send` and `recv` of all ranks, in shared memory, become known.
__device__ inline bool meet_first(const PullJob &job, const Twin &twin, const char **send,
                                  char **recv)
{
    const int peer = peer_of(kAwaiter), told = peer_of(kTeller);
    const void *const from = twin.self.mapped ? twin.self.send : nullptr;
    void *const to = twin.self.mapped ? twin.self.recv : nullptr;
    bool came = true;
    if (twin.over != 0)
        return false;
    if (is_partner(job, twin, kTeller))
        send_pointers(job, twin, told, shifted(from, job.send_shift[told]),
                      shifted(to, job.recv_shift[told]));
    if (is_partner(job, twin, kAwaiter)) {
        came = take_pointers(job, twin, peer, send[peer], recv[peer]);
    } else if (peer == twin.self.rank) {
        send[peer] = static_cast<const char *>(from);
        recv[peer] = static_cast<char *>(to);
    }
    if (__syncthreads_or(!came) == 0)
        return true;
    leave_all(job, twin, twin.turn + 1);
    return false;
}

// The last barrier, behind which the next call finds the turn. False if it is given up.
__device__ inline bool meet_last(const PullJob &job, Twin &twin)
{
    if (!meet(job, twin, true))
        return false;
    if (threadIdx.x == 0)
        job.control[twin.self.rank]->turn[twin.block] = twin.turn;
    return true;
}

} // namespace
