/* Calls that may block for ever: each runs on its own thread, and the caller waits with a
 * deadline, and no longer than until an abort. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/nccl/task.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/thread.h"

/* So long an aborted call may take: one that is about to succeed, as a split whose parent is aborted
 * by a rank that has its child, shall. */
enum { ABORTED_MS = 250 };

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
    task->done = task->aborted = false;
    return good;
}

static void on_abort(void *context, bool relayed)
{
    struct tri_nccl_task *task = context;
    (void)relayed;
    pthread_mutex_lock(&task->lock);
    task->aborted = true;
    pthread_cond_signal(&task->finished);
    pthread_mutex_unlock(&task->lock);
}

/* Locked. Wait for the end of the call; or, if `until_abort`, for an abort. */
static void wait_until(struct tri_nccl_task *task, uint64_t deadline_ns, bool until_abort)
{
    const struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                                   (long)(deadline_ns % 1000000000u)};
    int waited = 0;
    while (!task->done && !(until_abort && task->aborted) && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&task->finished, &task->lock, &until);
}

/* True: it is done, and *out is what run returned. */
static bool wait_for(struct tri_nccl_task *task, uint64_t deadline_ns, trib_status *out)
{
    pthread_mutex_lock(&task->lock);
    wait_until(task, deadline_ns, true);
    if (task->aborted) {
        const uint64_t late_ns = tri_deadline_ns(ABORTED_MS);
        wait_until(task, late_ns < deadline_ns ? late_ns : deadline_ns, false);
    }
    const bool done = task->done;
    if (done && task->status != TRIB_OK)
        (void)tri_fail(task->status, "%s", task->detail);
    *out = task->status;
    pthread_mutex_unlock(&task->lock);
    return done;
}

static bool wait_observing(struct tri_nccl_task *task, struct trib_abort *state,
                           uint64_t deadline_ns, trib_status *out)
{
    struct tri_abort_observer observer = {.raised = on_abort, .context = task};
    if (state != NULL)
        tri_abort_observe(state, &observer);
    const bool done = wait_for(task, deadline_ns, out);
    if (state != NULL)
        tri_abort_unobserve(state, &observer);
    return done;
}

trib_status tri_nccl_task_run(struct tri_nccl_task *task, struct trib_abort *state,
                              uint64_t deadline_ns, bool *out_timed_out)
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
    trib_status status = TRIB_OK;
    if (!wait_observing(task, state, deadline_ns, &status)) {
        status = state == NULL ? TRIB_OK : tri_abort_status(state);
        *out_timed_out = status == TRIB_OK;
    }
    release(task);
    return *out_timed_out ? TRIB_ERR_TIMEOUT : status;
}
