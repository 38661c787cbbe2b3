/* Monotonic time and deadlines. */
#ifndef TRI_BASE_CLOCK_H
#define TRI_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of a clock that never goes back. */
uint64_t tri_now_ns(void);

/* tri_now_ns() plus `ms` milliseconds. */
uint64_t tri_deadline_ns(uint32_t ms);

/* Sleep for about `ns` nanoseconds. */
void tri_nap_ns(uint64_t ns);

#endif
