/* A queue of items that run in order. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/queue.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/base/thread.h"
#include "csrc/host/eventcount.h"
#include "csrc/host/wakeup.h"

enum {
    ITEM_BYTES = 256, /* the capacity of items that the queue reuses */
    SPARE_ITEMS = 64  /* the most that it keeps */
};

struct item {
    struct item *next;
    void (*run)(void *);
    size_t capacity;
    _Alignas(16) unsigned char argument[];
};

struct tri_queue {
    /* Guards first, last, spare and spares, and writes of queued, done and running. No item runs
     * under it. */
    pthread_mutex_t lock;
    struct item *first;
    struct item **last;
    struct item *spare;
    int spares;
    _Atomic uint64_t queued;          /* items pushed so far */
    _Atomic uint64_t done;            /* items run so far */
    _Atomic bool running;             /* a thread runs the queue */
    struct tri_eventcount completion; /* for done and running */

    struct tri_wakeup wakeup;
    _Atomic uint32_t users; /* threads between acquire and release; destroy waits for them */

    pthread_t worker;
    _Atomic bool woken; /* the worker must run the queue */
    _Atomic bool closing;
    struct tri_eventcount work; /* the worker waits on it for woken and closing */
};

/* ---------------------------------------------------------------------------------------- items */

static struct item *item_of(void *argument)
{
    return (struct item *)(void *)((unsigned char *)argument - offsetof(struct item, argument));
}

static struct item *take_spare(struct tri_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct item *item = queue->spare;
    if (item != NULL) {
        queue->spare = item->next;
        queue->spares--;
    }
    pthread_mutex_unlock(&queue->lock);
    return item;
}

/* Keep an item for reuse, or free it. Locked. */
static void recycle(struct tri_queue *queue, struct item *item)
{
    if (item->capacity == ITEM_BYTES && queue->spares < SPARE_ITEMS) {
        item->next = queue->spare;
        queue->spare = item;
        queue->spares++;
    } else {
        free(item);
    }
}

void *tri_queue_item(struct tri_queue *queue, size_t bytes)
{
    struct item *item = NULL;
    if (bytes <= ITEM_BYTES) {
        bytes = ITEM_BYTES;
        item = take_spare(queue);
    }
    if (item == NULL) {
        item = bytes > SIZE_MAX / 2 ? NULL : malloc(sizeof *item + bytes);
        if (item == NULL)
            return NULL;
        item->capacity = bytes;
    }
    return item->argument;
}

void tri_queue_drop(struct tri_queue *queue, void *argument)
{
    pthread_mutex_lock(&queue->lock);
    recycle(queue, item_of(argument));
    pthread_mutex_unlock(&queue->lock);
}

/* -------------------------------------------------------------------------------------- running */

static void wake_worker(struct tri_queue *queue)
{
    atomic_store(&queue->woken, true);
    tri_eventcount_notify(&queue->work);
}

void tri_queue_push(struct tri_queue *queue, void *argument, void (*run)(void *item))
{
    struct item *item = item_of(argument);
    item->next = NULL;
    item->run = run;
    pthread_mutex_lock(&queue->lock);
    *queue->last = item;
    queue->last = &item->next;
    atomic_store(&queue->queued, atomic_load(&queue->queued) + 1);
    const bool running = atomic_load(&queue->running);
    pthread_mutex_unlock(&queue->lock);
    if (!running && tri_wakeup_pushed(&queue->wakeup)) /* a running thread sees the item */
        wake_worker(queue);
}

/* Remove the first item and run it. Locked, but not while it runs. */
static void run_first(struct tri_queue *queue, struct item *item)
{
    queue->first = item->next;
    if (queue->first == NULL)
        queue->last = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    item->run(item->argument);
    pthread_mutex_lock(&queue->lock);
    recycle(queue, item);
}

/* Run the items up to number `until`, unless another thread runs the queue. */
static void drain(struct tri_queue *queue, uint64_t until)
{
    pthread_mutex_lock(&queue->lock);
    if (atomic_load(&queue->running) || queue->first == NULL) {
        pthread_mutex_unlock(&queue->lock);
        return;
    }
    atomic_store(&queue->running, true);
    uint64_t done = atomic_load(&queue->done);
    struct item *item;
    while (done < until && (item = queue->first) != NULL) {
        run_first(queue, item);
        atomic_store(&queue->done, ++done);
        tri_eventcount_notify(&queue->completion);
    }
    atomic_store(&queue->running, false);
    if (queue->first != NULL)
        wake_worker(queue);
    tri_eventcount_notify(&queue->completion);
    pthread_mutex_unlock(&queue->lock);
}

static bool worker_woken(void *context)
{
    struct tri_queue *queue = context;
    return atomic_load(&queue->woken) || atomic_load(&queue->closing);
}

static void *work(void *context)
{
    struct tri_queue *queue = context;
    for (;;) {
        (void)tri_eventcount_wait(&queue->work, worker_woken, queue, 0);
        if (atomic_load(&queue->closing))
            return NULL;
        atomic_store(&queue->woken, false);
        drain(queue, UINT64_MAX);
    }
}

void tri_queue_wake(struct tri_queue *queue)
{
    if (!tri_queue_done(queue) && !atomic_load(&queue->running))
        wake_worker(queue);
}

static void wake(struct tri_wakeup *wakeup)
{
    void *queue = (char *)wakeup - offsetof(struct tri_queue, wakeup);
    tri_queue_wake(queue);
}

/* -------------------------------------------------------------------------------------- waiting */

struct wait {
    struct tri_queue *queue;
    uint64_t until;
};

static bool reached_or_idle(void *context)
{
    const struct wait *wait = context;
    return atomic_load(&wait->queue->done) >= wait->until || !atomic_load(&wait->queue->running);
}

/* Run the items, or wait for the thread that does. A failing item sets this thread's detail;
 * restore it. */
static void wait_until(struct tri_queue *queue, uint64_t until)
{
    struct wait wait = {queue, until};
    char detail[TRI_DETAIL_SIZE];
    strcpy(detail, tri_detail());
    while (atomic_load(&queue->done) < until) {
        drain(queue, until);
        (void)tri_eventcount_wait(&queue->completion, reached_or_idle, &wait, 0);
    }
    if (strcmp(detail, tri_detail()) != 0)
        (void)tri_fail(TRIB_OK, "%s", detail);
}

void tri_queue_wait(struct tri_queue *queue)
{
    tri_wakeup_waiting(&queue->wakeup);
    const uint64_t until = atomic_load(&queue->queued);
    if (atomic_load(&queue->done) < until) {
        tri_wakeup_awaited(&queue->wakeup);
        wait_until(queue, until);
    }
}

bool tri_queue_done(struct tri_queue *queue)
{
    const uint64_t until = atomic_load(&queue->queued);
    return atomic_load(&queue->done) >= until;
}

/* ------------------------------------------------------------------------------------- lifetime */

static trib_status start_worker(struct tri_queue *queue)
{
    if (!tri_wakeup_open(&queue->wakeup, wake))
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_create: no memory for a stream");
    const int error = tri_thread_start(&queue->worker, work, queue);
    if (error == 0)
        return TRIB_OK;
    tri_wakeup_close(&queue->wakeup);
    return tri_fail(TRIB_ERR_SYSTEM, "stream_create: no thread for a host stream: %s",
                    tri_error_text(error).text);
}

trib_status tri_queue_create(struct tri_queue **out)
{
    struct tri_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_create: no memory for a stream");
    queue->last = &queue->first;
    (void)pthread_mutex_init(&queue->lock, NULL);
    const trib_status status = start_worker(queue);
    if (status != TRIB_OK) {
        pthread_mutex_destroy(&queue->lock);
        free(queue);
        return status;
    }
    *out = queue;
    return TRIB_OK;
}

void tri_queue_acquire(struct tri_queue *queue)
{
    atomic_fetch_add(&queue->users, 1);
}

void tri_queue_release(struct tri_queue *queue)
{
    atomic_fetch_sub(&queue->users, 1);
}

void tri_queue_destroy(struct tri_queue *queue)
{
    tri_wakeup_close(&queue->wakeup);
    atomic_store(&queue->closing, true);
    tri_eventcount_notify(&queue->work);
    pthread_join(queue->worker, NULL);
    while (atomic_load(&queue->users) != 0) /* all items have run, so they release soon */
        sched_yield();
    while (queue->spare != NULL) {
        struct item *item = queue->spare;
        queue->spare = item->next;
        free(item);
    }
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}
