/* Calls functions at deadlines, on one thread of the library's own. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/watch.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/base/thread.h"

/* Guards the variables below and the watches in the list. Held while `look` runs, which does not
 * wait, so that nobody uses a watch once tri_watch_end has returned. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sooner; /* signalled when `wakes_ns` is too late */
static struct tri_watch *watches;
static uint64_t wakes_ns; /* the thread's next look */
static bool started;

/* Call what is due. Returns the time of the next look. The caller holds the lock. */
static uint64_t look(void)
{
    const uint64_t now = tri_now_ns();
    uint64_t next = UINT64_MAX;
    for (struct tri_watch **link = &watches; *link != NULL;) {
        struct tri_watch *watch = *link;
        if (watch->deadline_ns <= now)
            watch->deadline_ns = watch->look(watch->context);
        if (watch->deadline_ns == 0) {
            *link = watch->next;
        } else {
            next = watch->deadline_ns < next ? watch->deadline_ns : next;
            link = &watch->next;
        }
    }
    return next;
}

static void *keep_watch(void *nothing)
{
    (void)nothing;
    pthread_mutex_lock(&lock);
    for (;;) {
        wakes_ns = look();
        if (wakes_ns == UINT64_MAX) {
            (void)pthread_cond_wait(&sooner, &lock);
        } else {
            const struct timespec at = {(time_t)(wakes_ns / 1000000000u),
                                        (long)(wakes_ns % 1000000000u)};
            (void)pthread_cond_timedwait(&sooner, &lock, &at);
        }
    }
    return NULL;
}

/* The thread lives for ever. The caller holds the lock. */
static trib_status start(void)
{
    pthread_condattr_t clock;
    pthread_t thread;
    if (started)
        return TRIB_OK;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* the clock of tri_now_ns */
    (void)pthread_cond_init(&sooner, &clock);
    (void)pthread_condattr_destroy(&clock);
    const int error = tri_thread_start(&thread, keep_watch, NULL);
    if (error != 0) {
        (void)pthread_cond_destroy(&sooner);
        return tri_fail(TRIB_ERR_SYSTEM, "no thread for deadlines: %s", tri_error_text(error).text);
    }
    (void)pthread_detach(thread);
    started = true;
    return TRIB_OK;
}

trib_status tri_watch_begin(struct tri_watch *watch)
{
    pthread_mutex_lock(&lock);
    const trib_status status = start();
    if (status == TRIB_OK) {
        watch->next = watches;
        watches = watch;
        if (watch->deadline_ns < wakes_ns)
            (void)pthread_cond_signal(&sooner);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void tri_watch_sooner(struct tri_watch *watch, uint64_t deadline_ns)
{
    pthread_mutex_lock(&lock);
    if (deadline_ns < watch->deadline_ns) {
        watch->deadline_ns = deadline_ns;
        if (deadline_ns < wakes_ns)
            (void)pthread_cond_signal(&sooner);
    }
    pthread_mutex_unlock(&lock);
}

void tri_watch_end(struct tri_watch *watch)
{
    pthread_mutex_lock(&lock);
    struct tri_watch **link = &watches;
    while (*link != NULL && *link != watch)
        link = &(*link)->next;
    if (*link != NULL)
        *link = watch->next;
    pthread_mutex_unlock(&lock);
}
