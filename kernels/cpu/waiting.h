/* How the twins of push and pull give up, as cuda/waiting.cuh has it: a part of both. */
#ifndef TRI_CPU_WAITING_H
#define TRI_CPU_WAITING_H

#include <stdint.h>

/* Asked by who has waited since `began` (tri_now_ns): are all calls over? The value of the abort flag, in
 * which TRI_PUSH_LATE is stored if he has waited for longer than `patience_ns` (0: for ever). */
uint32_t tri_cpu_over(uint32_t *abort_flag, uint64_t patience_ns, uint64_t began);

#endif
