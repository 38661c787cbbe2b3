/* How an abort reaches kernels that wait. */
#include "tests/push/settings.h"

#include "csrc/base/clock.h"
#include "csrc/base/stopped.h"
#include "tests/check.h"

static uint64_t set(uint32_t *flag, uint32_t value, cudaStream_t stream)
{
    check_sleep_ms(50);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    const uint64_t now = tri_now_ns();
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
    return now;
}

uint64_t settings_make(uint32_t *flag, enum setting setting, cudaStream_t stream)
{
    const uint64_t began = set(flag, setting == ALL_STOP ? TRI_STOPPED : TRI_STOPPED_HERE, stream);
    return setting == OTHERS_STOP_LATER ? set(flag, TRI_STOPPED, stream) : began;
}

void settings_check(enum setting setting, double took_ms)
{
    /* Each of the calls in the queue looks once more whether the others have stopped. */
    const bool alone = setting == OTHERS_NEVER_STOP;
    const double least = alone ? TRI_OTHERS_MS : 0, more = alone ? 10 : 4;
    CHECK_MSG(took_ms >= least && took_ms < least + more, "setting %d: %g ms", (int)setting,
              took_ms);
}
