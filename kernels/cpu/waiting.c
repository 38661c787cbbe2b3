/* How the twins of push and pull give up. */
#include "kernels/cpu/waiting.h"

#include "csrc/base/clock.h"
#include "kernels/push.h"

uint32_t tri_cpu_over(uint32_t *abort_flag, uint64_t patience_ns, uint64_t began)
{
    uint32_t over = __atomic_load_n(abort_flag, __ATOMIC_ACQUIRE);
    if (over == 0 && patience_ns != 0 && tri_now_ns() - began > patience_ns) {
        over = TRI_PUSH_LATE;
        __atomic_store_n(abort_flag, over, __ATOMIC_RELEASE);
    }
    return over;
}
