/* Calls that may block for ever: each runs on its own thread, and the caller waits with a
 * deadline, and no longer than until an abort. */
#ifndef TRI_NCCL_TASK_H
#define TRI_NCCL_TASK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/abort.h"
#include "csrc/base/status.h"

/* The first member of a struct that holds the call's arguments. */
struct tri_nccl_task {
    /* Makes the call. Stores its results where they outlive the task. */
    trib_status (*run)(struct tri_nccl_task *task);
    /* Frees the struct; the thread or the waiter calls it, whichever finishes last. */
    void (*free)(struct tri_nccl_task *task);

    /* Private. Guards the fields below: the thread writes them, the waiter reads them. */
    pthread_mutex_t lock;
    pthread_cond_t finished;
    int references;
    bool done, aborted;
    trib_status status;
    char detail[TRI_DETAIL_SIZE];
};

/* Start a thread that runs `task`, and wait for it until `deadline_ns`. An abort of `state` (which
 * may be NULL) raises NCCL's flags, upon which the call returns; but where it waits for a stream or
 * a device that other work holds, the wait ends without it, 250 ms later. Consumes the task. Returns what run returned, with its detail; or the reason of
 * `state`; or TRIB_ERR_TIMEOUT and *out_timed_out true. In the last two cases the call goes on, and
 * run cleans up. */
trib_status tri_nccl_task_run(struct tri_nccl_task *task, struct trib_abort *state,
                              uint64_t deadline_ns, bool *out_timed_out);

#endif
