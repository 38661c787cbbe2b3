/* Calls a function at a deadline, on a thread of the library's own. For calls that may block where
 * they look at no clock: the first collective of a kind connects the ranks inside NCCL, and only an
 * abort ends that wait. */
#ifndef TRI_BASE_WATCH_H
#define TRI_BASE_WATCH_H

#include <stdint.h>

#include "csrc/base/status.h"

/* One call with a deadline; lives on its stack. Unless tri_watch_end comes first, the thread calls
 * `late(context)` once, at `deadline_ns`. late must not wait, and must not call back into here. The
 * watch thread owns the other fields. */
struct tri_watch {
    void (*late)(void *context);
    void *context;
    uint64_t deadline_ns;
    struct tri_watch *next;
};

/* TRIB_ERR_SYSTEM if the thread cannot be started; then nothing is watched. */
trib_status tri_watch_begin(struct tri_watch *watch);
/* Once this has returned, `late` neither runs nor will run. */
void tri_watch_end(struct tri_watch *watch);

#endif
