/* Monotonic time and deadlines. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/clock.h"

#include <time.h>

uint64_t tri_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t tri_deadline_ns(uint32_t ms)
{
    return tri_now_ns() + (uint64_t)ms * 1000000u;
}

uint32_t tri_left_ms(uint64_t deadline_ns)
{
    const uint64_t now = tri_now_ns();
    return now < deadline_ns ? (uint32_t)((deadline_ns - now) / 1000000u) + 1 : 1;
}

void tri_nap_ns(uint64_t ns)
{
    const struct timespec nap = {.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)};
    (void)nanosleep(&nap, NULL);
}
