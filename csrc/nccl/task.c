/* Calls that may block for ever: each runs on its own thread, and the caller waits with a
 * deadline. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/nccl/task.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "csrc/nccl/thread.h"

static void release(struct tri_nccl_task *task)
{
    pthread_mutex_lock(&task->lock);
    bool last = --task->references == 0;
    pthread_mutex_unlock(&task->lock);
    if (!last)
        return;
    pthread_cond_destroy(&task->finished);
    pthread_mutex_destroy(&task->lock);
    task->free(task);
}

static void *thread_main(void *argument)
{
    struct tri_nccl_task *task = argument;
    trib_status status = task->run(task);
    pthread_mutex_lock(&task->lock);
    task->done = true;
    task->status = status;
    (void)snprintf(task->detail, sizeof task->detail, "%s", status == TRIB_OK ? "" : tri_detail());
    pthread_cond_signal(&task->finished);
    pthread_mutex_unlock(&task->lock);
    release(task);
    return tri_nccl_thread_end(TRI_NCCL_TASKS);
}

static bool prepare(struct tri_nccl_task *task)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return false;
    bool good = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&task->finished, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    if (good && pthread_mutex_init(&task->lock, NULL) != 0) {
        pthread_cond_destroy(&task->finished);
        good = false;
    }
    task->references = 2; /* the thread's and the waiter's */
    task->done = false;
    return good;
}

static trib_status wait_for(struct tri_nccl_task *task, uint64_t deadline_ns, bool *out_timed_out)
{
    const struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                                   (long)(deadline_ns % 1000000000u)};
    pthread_mutex_lock(&task->lock);
    int waited = 0;
    while (!task->done && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&task->finished, &task->lock, &until);
    *out_timed_out = !task->done;
    trib_status status = task->done ? task->status : TRIB_ERR_TIMEOUT;
    if (task->done && status != TRIB_OK)
        (void)tri_fail(status, "%s", task->detail);
    pthread_mutex_unlock(&task->lock);
    return status;
}

trib_status tri_nccl_task_run(struct tri_nccl_task *task, uint64_t deadline_ns, bool *out_timed_out)
{
    *out_timed_out = false;
    if (!prepare(task)) {
        task->free(task);
        return tri_fail(TRIB_ERR_SYSTEM, "no lock for a helper thread");
    }
    int error = tri_nccl_thread(TRI_NCCL_TASKS, thread_main, task);
    if (error != 0) {
        release(task);
        release(task);
        return tri_fail(TRIB_ERR_SYSTEM, "cannot start a helper thread: %s",
                        tri_error_text(error).text);
    }
    trib_status status = wait_for(task, deadline_ns, out_timed_out);
    release(task);
    return status;
}
