/* Monotonic time and deadlines. */
#ifndef TRI_BASE_CLOCK_H
#define TRI_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of a clock that never goes back. */
uint64_t tri_now_ns(void);

/* tri_now_ns() plus `ms` milliseconds. */
uint64_t tri_deadline_ns(uint32_t ms);
/* The milliseconds from now to then, rounded up; 1 if it has passed. */
uint32_t tri_left_ms(uint64_t deadline_ns);

/* Sleep for about `ns` nanoseconds. */
void tri_nap_ns(uint64_t ns);

#endif
