// The barriers of pull: a block and its twins, the blocks of the same index on all peers (see pull.h).
#pragma once

#include "kernels/cuda/waiting.cuh"
#include "kernels/pull.h"

namespace {

struct PullJob {
    tri_pull_control *control[TRI_PULL_RANKS];
    char *scratch[TRI_PULL_RANKS];
    tri_pull_rank here[TRI_PULL_RANKS];
    uint64_t count, half, patience; // half: bytes of half of a block's part of scratch
    uint32_t *abort_flag;
    uint32_t blocks; // of one rank
    int size;
    trib_op op;
    tri_pull_way way;
};

// Which block this is.
struct Twin {
    tri_pull_rank self;
    uint32_t block;
    uint32_t turn; // barriers that it has been at; as threads 0 to size - 1 know it
};

// By thread `peer` of a block, for each peer.
__device__ inline void send_turn(const PullJob &job, const Twin &twin, int peer)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;"
                 :
                 : "l"(&job.control[peer]->posts[twin.block][twin.self.rank].turn), "r"(twin.turn)
                 : "memory");
}

// By the same thread: until the peer has come to the barrier as well. False if that is given up.
__device__ inline bool await_turn(const PullJob &job, const Twin &twin, int peer)
{
    tri_pull_control *const control = job.control[twin.self.rank];
    Waiting waiting = {clock64(), 0};
    for (;;) {
        uint32_t turn;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                     : "=r"(turn)
                     : "l"(&control->posts[twin.block][peer].turn)
                     : "memory");
        if (static_cast<int32_t>(turn - twin.turn) >= 0)
            return true;
        if (gives_up(job, control, waiting))
            return false;
    }
}

// The barrier, of all threads. The turn is stored once all of them are here, and its release holds for
// what they all have written. False if it is given up.
__device__ inline bool meet(const PullJob &job, Twin &twin)
{
    const int peer = static_cast<int>(threadIdx.x);
    const bool partner = peer < job.size && peer != twin.self.rank;
    bool came = true;
    twin.turn++;
    __syncthreads();
    if (partner)
        send_turn(job, twin, peer);
    if (partner)
        came = await_turn(job, twin, peer);
    return __syncthreads_or(!came) == 0;
}

// ------------------------------------------------------------------------------ the first barrier

__device__ inline void send_pointers(const PullJob &job, const Twin &twin, int peer,
                                     const void *send, void *recv)
{
    static_assert(offsetof(tri_pull_post, recv) == 8 && sizeof(tri_pull_post) % 16 == 0 &&
                      offsetof(tri_pull_control, posts) % 16 == 0,
                  "pointers are stored and loaded as one");
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};"
                 :
                 : "l"(&job.control[peer]->posts[twin.block][twin.self.rank]), "l"(send), "l"(recv)
                 : "memory");
}

__device__ inline void read_pointers(const PullJob &job, const Twin &twin, int peer,
                                     const char *&send, char *&recv)
{
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(send), "=l"(recv)
                 : "l"(&job.control[twin.self.rank]->posts[twin.block][peer])
                 : "memory");
}

// What this block knows of the calls before; false if they were ended.
__device__ inline bool read_turn(const PullJob &job, Twin &twin)
{
    const tri_pull_control *const control = job.control[twin.self.rank];
    uint32_t over;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                 : "=r"(over)
                 : "l"(&control->over)
                 : "memory");
    twin.turn = control->turn[twin.block] + 1;
    return over == 0;
}

// The barrier at which `send` and `recv` of all ranks, in shared memory, become known.
__device__ inline bool meet_first(const PullJob &job, Twin &twin, const char **send, char **recv)
{
    const int peer = static_cast<int>(threadIdx.x);
    bool came = true;
    if (peer < job.size) {
        const void *const from = twin.self.mapped ? twin.self.send : nullptr;
        void *const to = twin.self.mapped ? twin.self.recv : nullptr;
        came = read_turn(job, twin);
        if (peer == twin.self.rank) {
            send[peer] = static_cast<const char *>(from);
            recv[peer] = static_cast<char *>(to);
        } else if (came) {
            send_pointers(job, twin, peer, from, to);
            send_turn(job, twin, peer);
            came = await_turn(job, twin, peer);
            read_pointers(job, twin, peer, send[peer], recv[peer]);
        }
    }
    return __syncthreads_or(!came) == 0;
}

// The last barrier, behind which the next call finds the turn.
__device__ inline void meet_last(const PullJob &job, Twin &twin)
{
    if (meet(job, twin) && threadIdx.x == 0)
        job.control[twin.self.rank]->turn[twin.block] = twin.turn;
}

} // namespace
