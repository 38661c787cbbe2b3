/* Events: recorded points of streams.
 *
 * Each record creates a reference-counted point, which the event, the queued item that completes it
 * and every wait for it share. So a thread can record an event again, or destroy it, while another
 * still waits for the earlier record. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/host/eventcount.h"
#include "csrc/host/ops.h"
#include "csrc/host/registry.h"
#include "csrc/host/stream.h"

struct point {
    _Atomic uint32_t references;
    _Atomic bool completed;
    uint64_t time_ns;   /* of completion; written before completed */
    const void *stream; /* may dangle: for tri_stream_wake only */
    struct tri_eventcount eventcount;
};

struct event {
    /* Guards `point`: any thread may wait or query while another records. Held for a few
     * instructions. */
    pthread_mutex_t lock;
    struct point *point; /* NULL: never recorded */
};

static struct tri_registry events = TRI_REGISTRY_INIT;

static void release(struct point *point)
{
    if (point != NULL && atomic_fetch_sub(&point->references, 1) == 1)
        free(point);
}

/* Take a reference to the point recorded last, or NULL. */
static void retain_point(void *object, void *context)
{
    struct event *event = object;
    struct point **out = context;
    pthread_mutex_lock(&event->lock);
    *out = event->point;
    if (*out != NULL)
        atomic_fetch_add(&(*out)->references, 1);
    pthread_mutex_unlock(&event->lock);
}

/* `owner`: the device of the event, or -1 if it is no event. */
static trib_status check_owner(int32_t owner, trib_event handle, const char *operation)
{
    if (owner >= 0)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                    "%s: event %p is not a host event; pass one of trib_event_create that is not "
                    "destroyed",
                    operation, handle);
}

/* The point that the event recorded last, with a reference for the caller; NULL without a record.
 * Any thread, even while another destroys the event: the point outlives it. */
static trib_status last_point(struct point **out, trib_event handle, const char *operation)
{
    *out = NULL;
    return check_owner(tri_registry_visit(&events, handle, retain_point, out), handle, operation);
}

trib_status tri_host_event_create(int32_t device, trib_event *out)
{
    struct event *event = calloc(1, sizeof *event);
    *out = event;
    if (event != NULL) {
        (void)pthread_mutex_init(&event->lock, NULL);
        if (tri_registry_add(&events, event, sizeof *event, device))
            return TRIB_OK;
        pthread_mutex_destroy(&event->lock);
    }
    free(event);
    *out = NULL;
    return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "event_create: no memory for an event");
}

trib_status tri_host_event_destroy(int32_t device, trib_event handle)
{
    if (handle == NULL)
        return TRIB_OK;
    if (!tri_registry_remove(&events, handle, device))
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "event_destroy: %p is not an event of host device %d", handle, (int)device);
    struct event *event = handle;
    release(event->point);
    pthread_mutex_destroy(&event->lock);
    free(event);
    return TRIB_OK;
}

static void complete(void *item)
{
    struct point *point = *(struct point **)item;
    point->time_ns = tri_now_ns();
    atomic_store(&point->completed, true);
    tri_eventcount_notify(&point->eventcount);
    release(point);
}

/* A new point for the event, with a second reference for the item. Reuses the old point if the
 * event has the only reference. */
static struct point *renew(struct event *event, const void *stream)
{
    pthread_mutex_lock(&event->lock);
    struct point *point = event->point;
    if (point == NULL || atomic_load(&point->references) != 1) {
        point = calloc(1, sizeof *point);
        if (point != NULL) {
            release(event->point);
            event->point = point;
        }
    }
    if (point != NULL) {
        atomic_store(&point->completed, false);
        atomic_store(&point->references, 2);
        point->stream = stream;
    }
    pthread_mutex_unlock(&event->lock);
    return point;
}

trib_status tri_host_event_record(int32_t device, trib_event handle, trib_stream stream)
{
    struct tri_queue *queue = NULL;
    const int32_t owner = tri_registry_device(&events, handle);
    TRI_TRY(check_owner(owner, handle, "event_record"));
    TRI_TRY(tri_stream_find(&queue, device, stream, "event_record"));
    if (owner != device)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "event_record: event %p belongs to another device than its stream (%d)",
                        handle, (int)device);
    struct point **item = tri_queue_item(queue, sizeof *item);
    struct point *point = item == NULL ? NULL : renew(handle, queue);
    if (point == NULL) {
        if (item != NULL)
            tri_queue_drop(queue, item);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "event_record: no memory for the queue item");
    }
    *item = point;
    tri_queue_push(queue, item, complete);
    return TRIB_OK;
}

static bool has_completed(void *context)
{
    return atomic_load(&((struct point *)context)->completed);
}

/* Wait for a point and release it. */
static void await(struct point *point)
{
    if (!has_completed(point)) {
        tri_stream_wake(point->stream);
        (void)tri_eventcount_wait(&point->eventcount, has_completed, point, 0);
    }
    release(point);
}

static void run_await(void *item)
{
    await(*(struct point **)item);
}

trib_status tri_host_stream_wait_event(int32_t device, trib_event handle, trib_stream stream)
{
    struct point *point = NULL;
    struct tri_queue *queue = NULL;
    TRI_TRY(last_point(&point, handle, "stream_wait_event"));
    const trib_status status = tri_stream_find(&queue, device, stream, "stream_wait_event");
    if (status != TRIB_OK || point == NULL || has_completed(point)) {
        release(point);
        return status;
    }
    struct point **item = tri_queue_item(queue, sizeof *item);
    if (item == NULL) {
        release(point);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_wait_event: no memory for the queue item");
    }
    *item = point;
    tri_queue_push(queue, item, run_await);
    return TRIB_OK;
}

trib_status tri_host_event_wait(int32_t device, trib_event handle)
{
    (void)device;
    struct point *point = NULL;
    const trib_status status = last_point(&point, handle, "event_wait");
    if (point != NULL)
        await(point);
    return status;
}

trib_status tri_host_event_query(int32_t device, trib_event handle, bool *out_done)
{
    (void)device;
    struct point *point = NULL;
    TRI_TRY(last_point(&point, handle, "event_query"));
    *out_done = point == NULL || has_completed(point);
    if (!*out_done)
        tri_stream_wake(point->stream);
    release(point);
    return TRIB_OK;
}

/* When the point recorded last completed; 0 if it has not. */
static trib_status time_of(uint64_t *out, trib_event handle)
{
    struct point *point = NULL;
    const trib_status status = last_point(&point, handle, "event_elapsed");
    *out = point != NULL && has_completed(point) ? point->time_ns : 0;
    release(point);
    return status;
}

trib_status tri_host_event_elapsed(int32_t device, trib_event start, trib_event end, float *out_ms)
{
    (void)device;
    uint64_t from = 0, to = 0;
    TRI_TRY(time_of(&from, start));
    TRI_TRY(time_of(&to, end));
    if (from == 0 || to == 0)
        return tri_fail(TRIB_ERR_INVALID_USAGE,
                        "event_elapsed: the %s event has not completed; record it and wait for it "
                        "first",
                        from == 0 ? "start" : "end");
    *out_ms = (float)((double)(int64_t)(to - from) / 1e6);
    return TRIB_OK;
}
