/* When a push wakes a stream's worker. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/wakeup.h"

#include <pthread.h>
#include <time.h>

#include "csrc/base/thread.h"
#include "csrc/host/eventcount.h"
#include "csrc/host/registry.h"

enum {
    TICK_NS = 200000,
    IDLE_TICKS = 100, /* ticks without a deferred wakeup before the timer sleeps */
    MAX_DEFERRED = 64 /* streams with a deferred wakeup for each thread */
};

/* The open wakeups. */
static struct tri_registry wakeups = TRI_REGISTRY_INIT;

/* The wakeups that this thread has deferred, the oldest first. A pointer may dangle: pass it to
 * wake_if_open only. */
static _Thread_local const struct tri_wakeup *deferred[MAX_DEFERRED];
static _Thread_local int n_deferred;

static struct {
    pthread_once_t once;
    bool started; /* written once, under `once` */
    _Atomic bool asleep;
    _Atomic uint32_t deferred;        /* a wakeup was deferred since the last tick */
    struct tri_eventcount eventcount; /* for asleep */
} timer = {.once = PTHREAD_ONCE_INIT};

bool tri_wakeup_open(struct tri_wakeup *wakeup, void (*wake)(struct tri_wakeup *wakeup))
{
    wakeup->wake = wake;
    return tri_registry_add(&wakeups, wakeup, 1, 0);
}

void tri_wakeup_close(struct tri_wakeup *wakeup)
{
    (void)tri_registry_remove(&wakeups, wakeup, 0);
}

/* ------------------------------------------------------------------------------------ the timer */

/* Wake the worker if the wakeup has been deferred for two ticks. */
static void tick(void *object)
{
    struct tri_wakeup *wakeup = object;
    const uint32_t ticks = atomic_load(&wakeup->ticks);
    if (ticks == 0)
        return;
    if (ticks == 1) {
        uint32_t once = 1;
        (void)atomic_compare_exchange_strong(&wakeup->ticks, &once, 2);
        return;
    }
    atomic_store(&wakeup->ticks, 0);
    atomic_store(&wakeup->awaited, false);
    wakeup->wake(wakeup);
}

static bool timer_woken(void *context)
{
    (void)context;
    return !atomic_load(&timer.asleep);
}

static void sleep_until_deferred(void)
{
    atomic_store(&timer.asleep, true);
    if (atomic_load(&timer.deferred) == 0)
        (void)tri_eventcount_wait(&timer.eventcount, timer_woken, NULL, 0);
    atomic_store(&timer.asleep, false);
}

static void *run_timer(void *context)
{
    (void)context;
    const struct timespec pause = {0, TICK_NS};
    for (int idle = 0;; idle++) {
        nanosleep(&pause, NULL);
        tri_registry_visit_all(&wakeups, tick);
        if (atomic_exchange(&timer.deferred, 0) != 0)
            idle = 0;
        if (idle < IDLE_TICKS)
            continue;
        sleep_until_deferred();
        idle = 0;
    }
    return NULL;
}

static void start_timer(void)
{
    pthread_t thread;
    timer.started = tri_thread_start(&thread, run_timer, NULL) == 0;
    if (timer.started)
        pthread_detach(thread);
}

/* ------------------------------------------------------------------------------------ deferring */

/* Record that this thread has deferred the wakeup. False if it has deferred too many. */
static bool record_deferred(const struct tri_wakeup *wakeup)
{
    for (int i = 0; i < n_deferred; i++)
        if (deferred[i] == wakeup)
            return true;
    if (n_deferred == MAX_DEFERRED)
        return false;
    deferred[n_deferred++] = wakeup;
    return true;
}

/* Leave the wakeup to the timer. False if there is no timer, or too many wakeups are deferred. */
static bool defer(struct tri_wakeup *wakeup)
{
    pthread_once(&timer.once, start_timer);
    if (!timer.started || !record_deferred(wakeup))
        return false;
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(&wakeup->ticks, &none, 1);
    atomic_store(&timer.deferred, 1);
    if (atomic_load(&timer.asleep)) {
        atomic_store(&timer.asleep, false);
        tri_eventcount_notify(&timer.eventcount);
    }
    return true;
}

bool tri_wakeup_pushed(struct tri_wakeup *wakeup)
{
    return !atomic_load(&wakeup->awaited) || !defer(wakeup);
}

static void wake(void *object, void *context)
{
    struct tri_wakeup *wakeup = object;
    (void)context;
    wakeup->wake(wakeup);
}

static void wake_if_open(const struct tri_wakeup *wakeup)
{
    (void)tri_registry_visit(&wakeups, wakeup, wake, NULL);
}

void tri_wakeup_waiting(struct tri_wakeup *wakeup)
{
    for (int i = 0; i < n_deferred; i++)
        if (deferred[i] != wakeup)
            wake_if_open(deferred[i]);
    n_deferred = 0;
    atomic_store(&wakeup->ticks, 0);
}

void tri_wakeup_awaited(struct tri_wakeup *wakeup)
{
    atomic_store(&wakeup->awaited, true);
}
