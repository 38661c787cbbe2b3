/* Calls functions at deadlines, on one thread of the library's own, which never makes a call that may
 * block: the watchdog's looks (core/watchdog.c), and the deadlines of calls that may block where
 * they look at no clock (core/deadline.c): the first collective of a kind connects the ranks inside
 * NCCL, and only an abort ends that wait. */
#ifndef TRI_BASE_WATCH_H
#define TRI_BASE_WATCH_H

#include <stdint.h>

#include "csrc/base/status.h"

/* One function with a deadline; the caller owns the memory. From begin to end the thread calls
 * `look(context)` at `deadline_ns`; it returns its next deadline, or 0: never again. look must not
 * wait, and must not call back into here. The watch thread owns the other fields. */
struct tri_watch {
    uint64_t (*look)(void *context);
    void *context;
    uint64_t deadline_ns; /* UINT64_MAX: not until tri_watch_sooner */
    struct tri_watch *next;
};

/* TRIB_ERR_SYSTEM if the thread cannot be started; then nothing is watched. */
trib_status tri_watch_begin(struct tri_watch *watch);
/* Look at `deadline_ns` if that is earlier. Any thread, between begin and end. */
void tri_watch_sooner(struct tri_watch *watch, uint64_t deadline_ns);
/* Once this has returned, `look` neither runs nor will run. */
void tri_watch_end(struct tri_watch *watch);

#endif
