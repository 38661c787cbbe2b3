/* Calls that may block for ever, on a thread of their own, waited for with a deadline. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/nccl/task.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "csrc/base/clock.h"

enum { EXIT_PATIENCE_MS = 3000 };

int tri_nccl_thread(void *(*function)(void *argument), void *argument)
{
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    int error = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (error != 0)
        return error;
    error = pthread_create(&thread, NULL, function, argument); /* it inherits the mask */
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_detach(thread);
    return error;
}

/* What runs in the background. */
struct errand {
    void (*function)(void *argument);
    void *argument;
};

static _Atomic int errands;                     /* those that have not ended */
static pthread_once_t once = PTHREAD_ONCE_INIT; /* guards the call of atexit */

/* A process that ends takes CUDA down under the threads that still use it. Freeing takes half a
 * second or a whole one: let it end. What waits for longer (a CUDA graph that lives, a kernel that
 * does not end) is left as it is. */
static void wait_at_exit(void)
{
    const uint64_t deadline = tri_deadline_ns(EXIT_PATIENCE_MS);
    const struct timespec pause = {0, 1000000};
    while (atomic_load(&errands) > 0 && tri_now_ns() < deadline)
        (void)nanosleep(&pause, NULL);
}

static void register_exit(void)
{
    (void)atexit(wait_at_exit);
}

static void *run_errand(void *argument)
{
    const struct errand errand = *(struct errand *)argument;
    free(argument);
    errand.function(errand.argument);
    atomic_fetch_sub(&errands, 1);
    return NULL;
}

bool tri_nccl_background(void (*function)(void *argument), void *argument)
{
    struct errand *errand = malloc(sizeof *errand);
    if (errand == NULL)
        return false;
    *errand = (struct errand){function, argument};
    (void)pthread_once(&once, register_exit);
    atomic_fetch_add(&errands, 1);
    if (tri_nccl_thread(run_errand, errand) == 0)
        return true;
    atomic_fetch_sub(&errands, 1);
    free(errand);
    return false;
}

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
    return NULL;
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

static trib_status wait_for(struct tri_nccl_task *task, uint64_t deadline_ns, bool *out_late)
{
    const struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                                   (long)(deadline_ns % 1000000000u)};
    pthread_mutex_lock(&task->lock);
    int waited = 0;
    while (!task->done && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&task->finished, &task->lock, &until);
    *out_late = !task->done;
    trib_status status = task->done ? task->status : TRIB_ERR_TIMEOUT;
    if (task->done && status != TRIB_OK)
        (void)tri_fail(status, "%s", task->detail);
    pthread_mutex_unlock(&task->lock);
    return status;
}

trib_status tri_nccl_task_run(struct tri_nccl_task *task, uint64_t deadline_ns, bool *out_late)
{
    *out_late = false;
    if (!prepare(task)) {
        task->free(task);
        return tri_fail(TRIB_ERR_SYSTEM, "no lock for a helper thread");
    }
    int error = tri_nccl_thread(thread_main, task);
    if (error != 0) {
        release(task);
        release(task);
        return tri_fail(TRIB_ERR_SYSTEM, "no helper thread: %s", strerror(error));
    }
    trib_status status = wait_for(task, deadline_ns, out_late);
    release(task);
    return status;
}
