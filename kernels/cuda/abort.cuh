// Leaving on an abort: how the blocks of a long kernel ask for the word that the host sets.
//
// The word lies in mapped pinned memory. It is 0, and then not 0 for as long as its communicator lives
// (base/stopped.h). So whoever finds it set may leave with its output half made: decide and commit run
// later on the same stream, find it set too, and the call is not applied.
//
// A load of the word crosses the bus, and loads of one word cross it one after the other, whatever
// block makes them: 57,344 blocks that did little else took 67.9 ms on an H100, 1.18 us each. So a
// call has a copy of the word in its scratch memory. A small launch makes it, before those that
// ask; they read it in L2, and when it is 10 us old one of them renews it. Hence
//  - the bus sees at most one load per call and 10 us;
//  - what is queued behind an abort finds the copy set, and its blocks leave at once;
//  - what runs finds it set when a block next asks, or 10 us and one load of the bus later.
#pragma once

#include "csrc/base/stopped.h"
#include "kernels/cuda/clock.cuh"
#include "kernels/cuda/sparse.cuh"

namespace {

// In device memory. Only an abort sets `found`.
struct AbortCopy {
    unsigned long long renewed; // when, by %globaltimer
    uint32_t found;
};

// What a kernel asks.
struct Asking {
    const uint32_t *word; // nullptr: nobody asks
    AbortCopy *copy;
};

constexpr long long kRenewEvery = 10000;     // ns
constexpr long long kBlockAsksEvery = 50000; // cycles: 25 us at 2 GHz

__device__ inline uint32_t load_abort_word(const uint32_t *word)
{
    uint32_t found;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(word) : "memory");
    return found;
}

constexpr unsigned long long kOthersFor = TRI_OTHERS_MS * 1000000ull; // ns
constexpr unsigned int kOthersEvery = 200000; // ns: 128 blocks may load the word

// By one thread of a block that has refused or given up its call: it ends once ranks of other processes have
// stopped as well, for what is queued behind it is not to reach them before.
__device__ inline void await_others(const uint32_t *word)
{
    const unsigned long long since = global_ns();
    while (load_abort_word(word) == TRI_STOPPED_HERE && global_ns() - since < kOthersFor)
        __nanosleep(kOthersEvery);
}

// By one thread. The loads of the copy are relaxed, past L1, and nothing depends on their order:
// who misses a store finds it when it next asks. `renewed` may be a little ahead of our reading of
// the clock, so the difference has a sign.
__device__ inline bool asks(const Asking &asking)
{
    AbortCopy *const copy = asking.copy;
    uint32_t found;
    unsigned long long renewed;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(&copy->found));
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(renewed) : "l"(&copy->renewed));
    const unsigned long long now = global_ns();
    if (found != 0)
        return true;
    if (static_cast<long long>(now - renewed) < kRenewEvery ||
        atomicCAS(&copy->renewed, renewed, now) != renewed)
        return false;
    if (load_abort_word(asking.word) == 0)
        return false;
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(&copy->found), "r"(1u) : "memory");
    return true;
}

// By all threads of a block. Without a word nobody asks; otherwise it is a barrier.
__device__ inline bool block_leaves(const Asking &asking)
{
    return asking.word != nullptr && __syncthreads_or(threadIdx.x == 0 && asks(asking)) != 0;
}

// The same between tiles, where there is a word, for a block with no registers to spare: `asked`
// lies in shared memory. The block asks before the first tile, and then seldom enough for its tiles
// not to wait for it.
__device__ inline bool block_leaves(const Asking &asking, long long &asked, bool first)
{
    bool found = false;
    if (threadIdx.x == 0 && (first || clock64() - asked >= kBlockAsksEvery)) {
        asked = clock64();
        found = asks(asking);
    }
    return __syncthreads_or(found) != 0;
}

// Makes the copy. A template, because not every file that includes this launches it.
template <typename Job>
__global__ void copy_abort_word(const Job asking)
{
    *asking.copy = {global_ns(), load_abort_word(asking.word)};
}

// Queue that, before the kernels that ask. Without a word it queues nothing.
inline trib_status begin_asking(const Asking &asking, trib_stream stream)
{
    return asking.word == nullptr ? TRIB_OK
                                  : launch_job<copy_abort_word<Asking>>(1, 1, asking, stream);
}

// A kernel that moves fewer bytes than this takes less than 1 ms, and need not ask.
constexpr uint64_t kLongBytes = uint64_t{2} << 30;

} // namespace
