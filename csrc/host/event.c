/* Events: remembered points of streams.
 *
 * Each record makes a point of its own, which the event, the queued item that passes it and every
 * wait for it share by count. So an event can be recorded again, or destroyed, while somebody still
 * waits for what it recorded before. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/host/host.h"
#include "csrc/host/park.h"
#include "csrc/host/registry.h"
#include "csrc/host/stream.h"

struct point {
    _Atomic uint32_t references;
    _Atomic bool passed;
    uint64_t time_ns;   /* when; written before passed */
    const void *stream; /* only for tri_stream_kick: it may be gone */
    struct tri_park park;
};

struct event {
    /* Guards `point`: waits and queries may come from any thread while one records. Held for a few
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

/* The point recorded last, with a reference for the caller, or NULL. */
static struct point *last_point(struct event *event)
{
    pthread_mutex_lock(&event->lock);
    struct point *point = event->point;
    if (point != NULL)
        atomic_fetch_add(&point->references, 1);
    pthread_mutex_unlock(&event->lock);
    return point;
}

/* The event behind a handle of any device. */
static trib_status find(struct event **out, trib_event handle, const char *operation)
{
    *out = handle;
    if (handle != NULL && tri_registry_device(&events, handle) >= 0)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                    "%s: event %p is not a host event; pass what trib_event_create gave, before it "
                    "is destroyed",
                    operation, handle);
}

trib_status tri_host_event_create(int32_t device, trib_event *out)
{
    struct event *event = calloc(1, sizeof *event);
    *out = event;
    if (event != NULL && tri_registry_add(&events, event, sizeof *event, device)) {
        (void)pthread_mutex_init(&event->lock, NULL);
        return TRIB_OK;
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
                        "event_destroy: %p is not an event of host device %d", handle,
                        (int)device);
    struct event *event = handle;
    release(event->point);
    pthread_mutex_destroy(&event->lock);
    free(event);
    return TRIB_OK;
}

static void pass(void *item)
{
    struct point *point = *(struct point **)item;
    point->time_ns = tri_now_ns();
    atomic_store(&point->passed, true);
    tri_park_wake(&point->park);
    release(point);
}

/* A fresh point for the event, with a second reference for the item. The old one serves again if
 * nobody else knows it. */
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
        atomic_store(&point->passed, false);
        atomic_store(&point->references, 2);
        point->stream = stream;
    }
    pthread_mutex_unlock(&event->lock);
    return point;
}

trib_status tri_host_event_record(int32_t device, trib_event handle, trib_stream stream)
{
    struct event *event;
    struct tri_queue *queue = NULL;
    trib_status status = find(&event, handle, "event_record");
    if (status == TRIB_OK)
        status = tri_stream_find(&queue, device, stream, "event_record");
    if (status != TRIB_OK)
        return status;
    if (tri_registry_device(&events, handle) != device)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "event_record: event %p is of another device than its stream (%d)", handle,
                        (int)device);
    struct point **item = tri_queue_item(queue, sizeof *item);
    struct point *point = item == NULL ? NULL : renew(event, queue);
    if (point == NULL) {
        if (item != NULL)
            tri_queue_drop(queue, item);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "event_record: no memory to queue it");
    }
    *item = point;
    tri_queue_push(queue, item, pass);
    return TRIB_OK;
}

static bool has_passed(void *context)
{
    return atomic_load(&((struct point *)context)->passed);
}

/* Wait for a point and give it back. */
static void await(struct point *point)
{
    if (!has_passed(point)) {
        tri_stream_kick(point->stream);
        (void)tri_park_until(&point->park, has_passed, point, 0);
    }
    release(point);
}

static void run_await(void *item)
{
    await(*(struct point **)item);
}

trib_status tri_host_stream_wait_event(int32_t device, trib_event handle, trib_stream stream)
{
    struct event *event;
    struct tri_queue *queue = NULL;
    trib_status status = find(&event, handle, "stream_wait_event");
    if (status == TRIB_OK)
        status = tri_stream_find(&queue, device, stream, "stream_wait_event");
    if (status != TRIB_OK)
        return status;
    struct point *point = last_point(event);
    if (point == NULL || has_passed(point)) {
        release(point);
        return TRIB_OK;
    }
    struct point **item = tri_queue_item(queue, sizeof *item);
    if (item == NULL) {
        release(point);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_wait_event: no memory to queue it");
    }
    *item = point;
    tri_queue_push(queue, item, run_await);
    return TRIB_OK;
}

trib_status tri_host_event_wait(int32_t device, trib_event handle)
{
    (void)device;
    struct event *event;
    const trib_status status = find(&event, handle, "event_wait");
    if (status != TRIB_OK)
        return status;
    struct point *point = last_point(event);
    if (point != NULL)
        await(point);
    return TRIB_OK;
}

trib_status tri_host_event_query(int32_t device, trib_event handle, bool *out_done)
{
    (void)device;
    struct event *event;
    const trib_status status = find(&event, handle, "event_query");
    if (status != TRIB_OK)
        return status;
    struct point *point = last_point(event);
    *out_done = point == NULL || has_passed(point);
    if (!*out_done)
        tri_stream_kick(point->stream);
    release(point);
    return TRIB_OK;
}

/* When the point recorded last was passed; 0 if that has not happened. */
static uint64_t time_of(struct event *event)
{
    struct point *point = last_point(event);
    const uint64_t time_ns = point != NULL && has_passed(point) ? point->time_ns : 0;
    release(point);
    return time_ns;
}

trib_status tri_host_event_elapsed(int32_t device, trib_event start, trib_event end, float *out_ms)
{
    (void)device;
    struct event *events_of[2];
    trib_status status = find(&events_of[0], start, "event_elapsed");
    if (status == TRIB_OK)
        status = find(&events_of[1], end, "event_elapsed");
    if (status != TRIB_OK)
        return status;
    const uint64_t from = time_of(events_of[0]);
    const uint64_t to = time_of(events_of[1]);
    if (from == 0 || to == 0)
        return tri_fail(TRIB_ERR_INVALID_USAGE,
                        "event_elapsed: the %s event has not been passed; record it and wait for "
                        "it first",
                        from == 0 ? "start" : "end");
    *out_ms = (float)((double)(int64_t)(to - from) / 1e6);
    return TRIB_OK;
}
