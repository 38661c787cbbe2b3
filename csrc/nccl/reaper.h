/* The reaper: the threads that give back what may take long to give back, so that nobody else waits
 * for it. They are there before they are needed: posting an errand starts no thread, takes no memory
 * and does not wait. */
#ifndef TRI_NCCL_REAPER_H
#define TRI_NCCL_REAPER_H

#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* Something to give back. Part of what is given back, so that nothing is allocated. */
struct tri_nccl_errand {
    /* NULL, or what an abort has to do inside the reaper's open NCCL group, again and again until it
     * returns true: raise the flags of what has appeared, and see whether all calls have come back.
     * Never waits. */
    bool (*prepare)(struct tri_nccl_errand *errand);
    /* After the group has ended, and with it what prepare put into it. May wait for long, and may
     * free the errand. */
    void (*finish)(struct tri_nccl_errand *errand);
    int32_t device; /* current meanwhile */

    /* The reaper's. */
    struct tri_nccl_errand *next;
    bool prepared;
};

/* Somebody lives who may post an errand: from now on there is a reaper. Fails if there is no thread
 * to be had. Each hold is let go of once. */
trib_status tri_nccl_reaper_hold(void);
void tri_nccl_reaper_let_go(void);

/* Any thread; while somebody holds the reaper. (Otherwise one is started; if that fails the errand
 * waits for the next hold.) */
void tri_nccl_post(struct tri_nccl_errand *errand);

/* Wait until everything posted has ended; not beyond `deadline_ns`, and not while for 2 s none ends
 * (a CUDA graph that lives, a kernel that does not end): nor again before one does.
 *
 * Who opens a communicator waits for this first. NCCL gives memory back with calls that wait until
 * the device is idle and keep a lock of the driver's meanwhile, which many other CUDA calls take.
 * Should the device be busy with a collective by then, and the thread that is to make the peer's
 * call, or to abort, need that lock, all wait for ever. */
void tri_nccl_await_errands(uint64_t deadline_ns);

/* Errands that have not ended; and how many have, ever. */
uint32_t tri_nccl_errands(uint64_t *out_ended);

/* If nobody holds the reaper and there is nothing to do its threads end, soon; then true. */
bool tri_nccl_reaper_dismiss(void);

#endif
