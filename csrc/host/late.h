/* Late ranks: a rank that waits long for another one logs a warning. */
#ifndef TRI_HOST_LATE_H
#define TRI_HOST_LATE_H

#include <stdint.h>

#include "csrc/host/local.h"

/* tri_eventcount_wait without a deadline. Calls `late(context)` once if the wait exceeds the
 * threshold: 10 s, unless a test sets another one. */
void tri_host_late_wait(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                        void (*late)(void *context));
void tri_host_late_set_threshold(uint64_t ns);

/* Log a warning: `ranks` (bit 1 << rank for each) have not `done` ("reached", "finished") `call` of
 * `self`. */
void tri_host_late_log(const struct tri_transport *self, const struct tri_call *call,
                       uint64_t ranks, const char *done);

#endif
