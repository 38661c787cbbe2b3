/* How an abort reaches kernels that wait: which values their flag takes, and when (csrc/base/stopped.h). */
#ifndef TRI_TESTS_PUSH_SETTINGS_H
#define TRI_TESTS_PUSH_SETTINGS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* Ranks of other processes have stopped as well when the flag is set, 50 ms later, or have not when kernels cease to
 * wait for them. */
enum setting { ALL_STOP, OTHERS_STOP_LATER, OTHERS_NEVER_STOP };

/* Sets it, each time after 50 ms in which `stream` does not end; tri_now_ns() of the last time. */
uint64_t settings_make(uint32_t *flag, enum setting setting, cudaStream_t stream);
/* The kernels have ended so many ms after it: in time, and not before they may. */
void settings_check(enum setting setting, double took_ms);

#endif
