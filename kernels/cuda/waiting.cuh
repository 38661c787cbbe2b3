// How kernels that wait for peers give up: push and pull.
//
// Who waits reads the abort flag by the clock, as abort.cuh has it, but in the control of its rank, which
// has `asked`, when the flag was last read, and `over`, whether all calls have ended. A job has the flag
// and how long a thread may wait. Ranks of one device are blocks of one launch, and all of its blocks are
// on the device at once.
#pragma once

#include "kernels/cuda/abort.cuh"
#include "kernels/push.h"

namespace {

constexpr long long kAsksEvery = 20000; // cycles: 10 us at 2 GHz

template <typename Control>
__device__ inline void end_all(Control *control, uint32_t why)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;"
                 :
                 : "l"(&control->over), "r"(why)
                 : "memory");
}

// Of the threads of a warp that are here, the first one.
__device__ inline bool is_first_here()
{
    uint32_t below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    return (__activemask() & below) == 0;
}

// Since when a thread waits, and when it last asked.
struct Waiting {
    long long asked;          // cycles
    unsigned long long since; // ns; 0: not known yet
};

// Has an abort or a deadline ended all calls of this rank? One of its threads in 10 us reads the flag,
// which is in memory of the host. `Awaits`: that one returns once other processes have stopped, too.
template <bool Awaits, typename Job, typename Control>
__device__ inline bool gives_up(const Job &job, Control *control, Waiting &waiting)
{
    if (clock64() - waiting.asked < kAsksEvery)
        return false;
    waiting.asked = clock64();
    uint32_t over;
    unsigned long long *const at = reinterpret_cast<unsigned long long *>(&control->asked), asked;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(over) : "l"(&control->over));
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(asked) : "l"(at));
    if (over != 0)
        return true;
    const unsigned long long now = global_ns();
    waiting.since = waiting.since == 0 ? now : waiting.since;
    if (static_cast<long long>(now - asked) < kRenewEvery || !is_first_here() ||
        atomicCAS(at, asked, now) != asked)
        return false;
    over = load_abort_word(job.abort_flag);
    if (over == 0 && job.patience != 0 && now - waiting.since > job.patience) {
        over = TRI_PUSH_LATE;
        asm volatile("st.relaxed.sys.global.u32 [%0], %1;"
                     :
                     : "l"(job.abort_flag), "r"(over)
                     : "memory");
    }
    if (over == 0)
        return false;
    end_all(control, over == TRI_STOPPED_HERE ? uint32_t{TRI_PUSH_ABORTED} : over);
    if constexpr (Awaits)
        await_others(job.abort_flag);
    return true;
}

// --------------------------------------------------------------------------------- on the host

// Blocks that are on the current device at once, with so many on a multiprocessor.
inline uint32_t blocks_at_once(uint32_t at_once)
{
    static std::atomic<uint32_t> known[64]; // multiprocessors of a device; 0: unknown
    int device = 0, found = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= 64)
        return 1;
    const uint32_t multiprocessors = known[device].load(std::memory_order_relaxed);
    if (multiprocessors != 0)
        return at_once * multiprocessors;
    if (cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return 1;
    known[device].store(static_cast<uint32_t>(found), std::memory_order_relaxed);
    return at_once * static_cast<uint32_t>(found);
}

} // namespace
