// What the kernels of pull are launched with.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pull_meet.cuh"

namespace {

// A multiprocessor has room for two blocks at once, whose threads have 64 registers each, from sm_75
// on. So calls of two communicators, and push, are on a device of 132 at once. Of two shots blocks are half as
// large, and there are twice as many: one that waits for its twins leaves the links to others.
constexpr uint32_t kPullThreads = 512, kPullBlocks = 96, kPullAtOnce = 2;

// What one rank reduces or copies, in units: what all ranks find alike. Not in lines, for how much room slots have
// follows from the blocks, and their number from this.
inline uint64_t units_of(const tri_pull &call)
{
    return tri_pull_units(&call, 1) *
           (tri_pull_gathers(call.kind) ? static_cast<uint64_t>(call.size) : 1);
}

// Of one rank, each of so many threads.
inline uint32_t blocks_of(const tri_pull &call, uint32_t threads)
{
    const uint32_t parts = kPullThreads / threads;
    const uint64_t wanted = tri_pull_share(units_of(call), threads);
    const uint32_t fit = blocks_at_once(kPullAtOnce * parts) / static_cast<uint32_t>(call.n);
    constexpr uint32_t kMost = TRI_PULL_BLOCKS;
    uint32_t most = parts * (call.blocks > 0 ? static_cast<uint32_t>(call.blocks) : kPullBlocks);
    most = most < kMost ? most : kMost;
    most = most < fit ? most : fit > 0 ? fit : 1;
    return wanted < most ? static_cast<uint32_t>(wanted) : most;
}

inline PullJob pull_job(const tri_pull &call, uint32_t threads)
{
    PullJob job = {};
    for (int r = 0; r < call.size; r++) {
        job.send_shift[r] = call.send_shift[r];
        job.recv_shift[r] = call.recv_shift[r];
        job.control[r] = call.control[r];
        job.scratch[r] = static_cast<char *>(call.scratch[r]);
    }
    for (size_t i = 0; i < call.n; i++)
        job.here[i] = call.here[i];
    job.blocks = blocks_of(call, threads);
    job.half = tri_pull_half(call.scratch_bytes, job.blocks);
    job.piece = tri_pull_piece(&call, job.blocks, false);
    job.room = tri_pull_room(&call, job.blocks, false);
    job.staged_room = tri_pull_room(&call, job.blocks, true);
    job.slice = job.piece * trib_dtype_size(call.dtype);
    job.blocks_sent = tri_pull_blocks_sent(call.kind, call.size);
    job.send_block = tri_pull_scatters(call.kind) ? call.count : 0;
    job.recv_block = tri_pull_gathers(call.kind) ? call.count : 0;
    job.count = call.count;
    job.patience = call.patience_ns;
    job.abort_flag = call.abort_flag;
    job.size = call.size;
    job.root = call.kind == TRI_PULL_BROADCAST ? call.root : -1;
    job.op = call.op;
    return job;
}

} // namespace
