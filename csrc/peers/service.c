/* The service thread: one for all channels of the process. */
#define _GNU_SOURCE
#include "csrc/peers/service.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/descriptor.h"
#include "csrc/base/process.h"
#include "csrc/base/thread.h"

/* Guards the references and the start and the end of the thread. Held while the thread is joined:
 * the thread does not take it. Taken before `lock`. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static uint32_t references;
static pthread_t thread;

/* Guards all below, and what service.h says. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* tri_service_wake */
static int epoll = -1, timer = -1;
static bool stopping;
static struct tri_service_item *items;
static uint64_t numbers;  /* given to items; 0 is the timer's */
static uint64_t armed_ns; /* what the timer is set to; 0: nothing */

void tri_service_lock(void)
{
    pthread_mutex_lock(&lock);
}

void tri_service_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

bool tri_service_wait(uint64_t deadline_ns)
{
    const struct timespec at = {(time_t)(deadline_ns / 1000000000u),
                                (long)(deadline_ns % 1000000000u)};
    return pthread_cond_timedwait(&changed, &lock, &at) != ETIMEDOUT;
}

void tri_service_wake(void)
{
    (void)pthread_cond_broadcast(&changed);
}

/* --------------------------------------------------------------------------------------- forks */

/* The lock is held across the fork, so that the child finds the list whole. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* A copy of a connection in a child would hide its parent's death from the peers, and a copy of a
 * listener would take their connections. */
static void in_child(void)
{
    for (struct tri_service_item *item = items; item != NULL; item = item->next)
        tri_descriptor_close(&item->fd);
    tri_descriptor_close(&epoll);
    tri_descriptor_close(&timer);
    pthread_mutex_unlock(&lock);
}

static void prepare(void)
{
    pthread_condattr_t clock;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* the clock of tri_now_ns */
    (void)pthread_cond_init(&changed, &clock);
    (void)pthread_condattr_destroy(&clock);
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

/* --------------------------------------------------------------------------------------- items */

/* Set the timer to the first deadline. */
static void arm(void)
{
    uint64_t first = stopping ? 1 : UINT64_MAX;
    for (const struct tri_service_item *item = items; item != NULL; item = item->next)
        if (item->deadline_ns != 0 && item->deadline_ns < first)
            first = item->deadline_ns;
    first = first == UINT64_MAX ? 0 : first;
    if (first == armed_ns)
        return;
    const struct itimerspec at = {
        .it_value = {(time_t)(first / 1000000000u), (long)(first % 1000000000u)}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) == 0)
        armed_ns = first;
}

void tri_service_add(struct tri_service_item *item)
{
    item->number = ++numbers;
    item->events = 0;
    item->deadline_ns = 0;
    item->next = items;
    items = item;
}

void tri_service_remove(struct tri_service_item *item)
{
    struct tri_service_item **link = &items;
    while (*link != NULL && *link != item)
        link = &(*link)->next;
    if (*link == NULL)
        return;
    (void)tri_service_events(item, 0);
    *link = item->next;
    arm();
}

int tri_service_events(struct tri_service_item *item, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = item->number};
    if (events == item->events)
        return 0;
    const int what = events == 0         ? EPOLL_CTL_DEL
                     : item->events == 0 ? EPOLL_CTL_ADD
                                         : EPOLL_CTL_MOD;
    if (epoll_ctl(epoll, what, item->fd, &event) != 0)
        return errno;
    item->events = events;
    return 0;
}

void tri_service_deadline(struct tri_service_item *item, uint64_t deadline_ns)
{
    item->deadline_ns = deadline_ns;
    arm();
}

/* -------------------------------------------------------------------------------------- thread */

static struct tri_service_item *first_due(void)
{
    const uint64_t now = tri_now_ns();
    for (struct tri_service_item *item = items; item != NULL; item = item->next)
        if (item->deadline_ns != 0 && item->deadline_ns <= now)
            return item;
    return NULL;
}

static void run_due(void)
{
    armed_ns = 0;
    /* From the start after each, because an item may go while another runs. */
    for (struct tri_service_item *item = first_due(); item != NULL; item = first_due()) {
        item->deadline_ns = 0;
        item->ready(item, 0);
    }
    arm();
}

/* By number: the item may have gone since epoll found it ready. */
static void run_ready(uint64_t number, uint32_t events)
{
    for (struct tri_service_item *item = items; item != NULL; item = item->next) {
        if (item->number == number) {
            item->ready(item, events);
            return;
        }
    }
}

static void *serve(void *nothing)
{
    const int waits_on = epoll, clock = timer; /* constant while the thread lives */
    (void)nothing;
    for (bool ends = false; !ends;) {
        struct epoll_event event;
        uint64_t expirations;
        /* One event at a time, so that none is out of date when it is served. */
        const int n = epoll_wait(waits_on, &event, 1, -1);
        if (n == 1 && event.data.u64 == 0)
            (void)!read(clock, &expirations, sizeof expirations);
        pthread_mutex_lock(&lock);
        ends = stopping;
        if (n == 1 && !ends) {
            if (event.data.u64 == 0)
                run_due();
            else
                run_ready(event.data.u64, event.events);
        }
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void close_descriptors(void)
{
    tri_descriptor_close(&epoll);
    tri_descriptor_close(&timer);
    armed_ns = 0;
}

/* Returns 0 or an errno. The lock is held. */
static int open_descriptors(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (epoll >= 0 && timer >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) == 0)
        return 0;
    const int error = errno;
    close_descriptors();
    return error;
}

/* Returns 0 or an errno. The caller holds `life`. */
static int start(void)
{
    pthread_mutex_lock(&lock);
    stopping = false;
    int error = open_descriptors();
    pthread_mutex_unlock(&lock);
    if (error != 0)
        return error;
    error = tri_thread_start(&thread, serve, NULL);
    if (error == 0)
        return 0;
    pthread_mutex_lock(&lock);
    close_descriptors();
    pthread_mutex_unlock(&lock);
    return error;
}

trib_status tri_service_retain(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tri_process_use();
    (void)pthread_once(&once, prepare);
    pthread_mutex_lock(&life);
    const int error = references == 0 ? start() : 0;
    references += error == 0;
    pthread_mutex_unlock(&life);
    return error == 0 ? TRIB_OK
                      : tri_fail(TRIB_ERR_SYSTEM, "no thread for the channels between ranks: %s",
                                 tri_error_text(error).text);
}

void tri_service_release(void)
{
    pthread_mutex_lock(&life);
    if (--references == 0) {
        pthread_mutex_lock(&lock);
        stopping = true;
        arm();
        pthread_mutex_unlock(&lock);
        (void)pthread_join(thread, NULL);
        pthread_mutex_lock(&lock);
        close_descriptors();
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&life);
}
