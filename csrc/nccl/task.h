/* Calls that may block for ever, on a thread of their own, waited for with a deadline. */
#ifndef TRI_NCCL_TASK_H
#define TRI_NCCL_TASK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* The first member of a struct with what the call needs. */
struct tri_nccl_task {
    /* The call. What it yields goes where it outlives the task. */
    trib_status (*run)(struct tri_nccl_task *task);
    /* Frees the struct, on whichever side lets go of it last. */
    void (*free)(struct tri_nccl_task *task);

    /* Private. Guards the fields below: the runner writes them, the waiter reads them. */
    pthread_mutex_t lock;
    pthread_cond_t finished;
    int references;
    bool done;
    trib_status status;
    char detail[TRI_DETAIL_SIZE];
};

/* Start a thread that runs `task`, and wait for it until `deadline_ns`. Consumes the task.
 * Returns what run returned, its detail included; or TRIB_ERR_TIMEOUT with *out_late true: the
 * call goes on, and then it is for run to clean up. */
trib_status tri_nccl_task_run(struct tri_nccl_task *task, uint64_t deadline_ns, bool *out_late);

#endif
