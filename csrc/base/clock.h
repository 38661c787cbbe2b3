/* Monotonic time and deadlines. */
#ifndef TRI_BASE_CLOCK_H
#define TRI_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of a clock that never goes back. */
uint64_t tri_now_ns(void);

/* The same clock at the last tick of the system's timer, 1 to 10 ms ago: a few nanoseconds to
 * read. */
uint64_t tri_coarse_ns(void);

/* A counter of this machine that only grows, at 1 to 5 ticks per nanosecond (slower on some): 20 ns
 * to read, where reading a clock may take longer than what it should tell. Differs between
 * threads. */
uint64_t tri_ticks(void);

/* tri_now_ns() plus `ms` milliseconds. */
uint64_t tri_deadline_ns(uint32_t ms);
/* The milliseconds from now to then, rounded up; 1 if it has passed. */
uint32_t tri_left_ms(uint64_t deadline_ns);

/* Sleep for about `ns` nanoseconds. */
void tri_nap_ns(uint64_t ns);

#endif
