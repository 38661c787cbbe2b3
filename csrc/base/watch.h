/* Deadlines of calls that may wait where no clock is looked at: inside NCCL, whose first collective
 * of a kind connects the ranks, nothing but an abort reaches a call. So a thread of its own
 * watches, and does what has to be done when a call is late. */
#ifndef TRI_BASE_WATCH_H
#define TRI_BASE_WATCH_H

#include <stdint.h>

#include "csrc/base/status.h"

/* One call that is being watched; lives on its stack. `late(context)` is called once, on another
 * thread, at `deadline_ns`, unless tri_watch_end comes first. It must not wait, and must not call
 * back into here. The other fields are the watch's. */
struct tri_watch {
    void (*late)(void *context);
    void *context;
    uint64_t deadline_ns;
    struct tri_watch *next;
};

/* TRIB_ERR_SYSTEM if there is no thread to be had: then nothing is watched. */
trib_status tri_watch_begin(struct tri_watch *watch);
/* After this `late` is not running, nor will it be. */
void tri_watch_end(struct tri_watch *watch);

#endif
