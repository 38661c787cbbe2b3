// The clock of a device.
#pragma once

namespace {

// %globaltimer counts ns, on some devices in steps of 1 us, and is one for all multiprocessors; clock64() counts
// cycles of one of them, and is a register.
__device__ inline unsigned long long global_ns()
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

} // namespace
