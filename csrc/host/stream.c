/* Host streams: queues that run in order. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/stream.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/host/host.h"
#include "csrc/host/park.h"
#include "csrc/host/patrol.h"
#include "csrc/host/registry.h"

enum {
    ITEM_BYTES = 256, /* items up to this size are kept for reuse */
    SPARE_ITEMS = 64  /* as many of them */
};

struct item {
    struct item *next;
    void (*run)(void *);
    size_t capacity;
    _Alignas(16) unsigned char argument[];
};

struct tri_stream {
    int32_t device;
    /* Guards the queue: first, last, spare, spares; and changes of queued, done and running. Never
     * held while an item runs. */
    pthread_mutex_t lock;
    struct item *first;
    struct item **last;
    struct item *spare;
    int spares;
    _Atomic uint64_t queued; /* items pushed so far */
    _Atomic uint64_t done;   /* items run so far */
    _Atomic bool running;    /* a thread runs the queue */
    struct tri_park waiters; /* for done and running */

    struct tri_patrolled patrolled;
    _Atomic uint32_t inside; /* threads in tri_host_stream_wait, which destroy must not outrun */

    pthread_t worker;
    _Atomic bool kicked; /* the worker is to look at the queue */
    _Atomic bool closing;
    struct tri_park desk; /* where the worker sleeps: for kicked and closing */
};

static struct tri_registry streams = TRI_REGISTRY_INIT;

/* The default streams, made at first use; they live for ever. */
static _Atomic(struct tri_stream *) defaults[TRI_MAX_RANKS_HOST];

/* ---------------------------------------------------------------------------------- the queue */

void *tri_stream_item(struct tri_stream *stream, size_t bytes)
{
    struct item *item = NULL;
    if (bytes <= ITEM_BYTES) {
        pthread_mutex_lock(&stream->lock);
        item = stream->spare;
        if (item != NULL) {
            stream->spare = item->next;
            stream->spares--;
        }
        pthread_mutex_unlock(&stream->lock);
        bytes = ITEM_BYTES;
    }
    if (item == NULL) {
        item = bytes > SIZE_MAX / 2 ? NULL : malloc(sizeof *item + bytes);
        if (item == NULL)
            return NULL;
        item->capacity = bytes;
    }
    return item->argument;
}

/* Keep an item that has run, or free it. The lock is held. */
static void recycle(struct tri_stream *stream, struct item *item)
{
    if (item->capacity == ITEM_BYTES && stream->spares < SPARE_ITEMS) {
        item->next = stream->spare;
        stream->spare = item;
        stream->spares++;
    } else {
        free(item);
    }
}

static struct item *item_of(void *argument)
{
    return (struct item *)(void *)((unsigned char *)argument - offsetof(struct item, argument));
}

void tri_stream_drop(struct tri_stream *stream, void *argument)
{
    pthread_mutex_lock(&stream->lock);
    recycle(stream, item_of(argument));
    pthread_mutex_unlock(&stream->lock);
}

static void call_worker(struct tri_stream *stream)
{
    atomic_store(&stream->kicked, true);
    tri_park_wake(&stream->desk);
}

void tri_stream_push(struct tri_stream *stream, void *argument, void (*run)(void *item))
{
    struct item *item = item_of(argument);
    item->next = NULL;
    item->run = run;
    pthread_mutex_lock(&stream->lock);
    *stream->last = item;
    stream->last = &item->next;
    atomic_store(&stream->queued, atomic_load(&stream->queued) + 1);
    const bool running = atomic_load(&stream->running);
    pthread_mutex_unlock(&stream->lock);
    if (tri_patrol_pushed(stream, &stream->patrolled, running))
        call_worker(stream);
}

/* Run what is queued, up to item number `until`, unless another thread is at it. */
static void drain(struct tri_stream *stream, uint64_t until)
{
    pthread_mutex_lock(&stream->lock);
    if (atomic_load(&stream->running) || stream->first == NULL) {
        pthread_mutex_unlock(&stream->lock);
        return;
    }
    atomic_store(&stream->running, true);
    uint64_t done = atomic_load(&stream->done);
    struct item *item;
    while (done < until && (item = stream->first) != NULL) {
        stream->first = item->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        pthread_mutex_unlock(&stream->lock);
        item->run(item->argument);
        pthread_mutex_lock(&stream->lock);
        recycle(stream, item);
        atomic_store(&stream->done, ++done);
        tri_park_wake(&stream->waiters);
    }
    atomic_store(&stream->running, false);
    if (stream->first != NULL)
        call_worker(stream);
    tri_park_wake(&stream->waiters);
    pthread_mutex_unlock(&stream->lock);
}

/* ----------------------------------------------------------------------------------- the worker */

static bool worker_called(void *context)
{
    struct tri_stream *stream = context;
    return atomic_load(&stream->kicked) || atomic_load(&stream->closing);
}

static void *work(void *context)
{
    struct tri_stream *stream = context;
    for (;;) {
        (void)tri_park_until(&stream->desk, worker_called, stream, 0);
        if (atomic_load(&stream->closing))
            return NULL;
        atomic_store(&stream->kicked, false);
        drain(stream, UINT64_MAX);
    }
}

int tri_thread_start(pthread_t *out, void *(*function)(void *), void *argument)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int failed = pthread_create(out, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

/* ----------------------------------------------------------------------------- life of a stream */

static void free_stream(struct tri_stream *stream)
{
    while (stream->spare != NULL) {
        struct item *item = stream->spare;
        stream->spare = item->next;
        free(item);
    }
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

static void stop_worker(struct tri_stream *stream)
{
    atomic_store(&stream->closing, true);
    tri_park_wake(&stream->desk);
    pthread_join(stream->worker, NULL);
}

static trib_status make_stream(struct tri_stream **out, int32_t device)
{
    struct tri_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_create: no memory for a stream");
    stream->device = device;
    stream->last = &stream->first;
    (void)pthread_mutex_init(&stream->lock, NULL);
    const int failed = tri_thread_start(&stream->worker, work, stream);
    if (failed != 0) {
        free_stream(stream);
        return tri_fail(TRIB_ERR_SYSTEM, "stream_create: no thread for a stream of host device %d "
                        "(pthread_create: error %d)", (int)device, failed);
    }
    if (!tri_registry_add(&streams, stream, sizeof *stream, device)) {
        stop_worker(stream);
        free_stream(stream);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_create: no memory for a stream");
    }
    *out = stream;
    return TRIB_OK;
}

trib_status tri_host_stream_create(int32_t device, trib_stream *out)
{
    struct tri_stream *stream = NULL;
    const trib_status status = make_stream(&stream, device);
    *out = stream;
    return status;
}

static trib_status default_stream(struct tri_stream **out, int32_t device)
{
    /* Guards the making of a default stream; finished ones are read without it. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    *out = atomic_load(&defaults[device]);
    if (*out != NULL)
        return TRIB_OK;
    trib_status status = TRIB_OK;
    pthread_mutex_lock(&lock);
    *out = atomic_load(&defaults[device]);
    if (*out == NULL)
        status = make_stream(out, device);
    if (status == TRIB_OK)
        atomic_store(&defaults[device], *out);
    pthread_mutex_unlock(&lock);
    return status;
}

static bool names_default(trib_stream stream)
{
    return (uintptr_t)stream <= 1; /* NULL, and 1 as in cudaStreamLegacy */
}

enum tri_fault tri_host_check_stream(int32_t device, trib_stream stream, size_t *found)
{
    if (names_default(stream))
        return TRI_FAULT_NONE;
    const int32_t owner = tri_registry_device(&streams, stream);
    if (owner == device)
        return TRI_FAULT_NONE;
    if (owner < 0)
        return TRI_FAULT_UNKNOWN_STREAM;
    *found = (size_t)owner;
    return TRI_FAULT_OTHER_DEVICE;
}

trib_status tri_stream_find(struct tri_stream **out, int32_t device, trib_stream stream,
                            const char *operation)
{
    if (names_default(stream))
        return default_stream(out, device);
    size_t owner = 0;
    switch (tri_host_check_stream(device, stream, &owner)) {
    case TRI_FAULT_NONE:
        *out = stream;
        return TRIB_OK;
    case TRI_FAULT_OTHER_DEVICE:
        return tri_fail(TRIB_ERR_INVALID_STREAM,
                        "%s: stream %p belongs to host device %zu, not to device %d; pass a stream "
                        "of that device",
                        operation, stream, owner, (int)device);
    default:
        return tri_fail(TRIB_ERR_INVALID_STREAM,
                        "%s: %p is not a host stream; pass NULL or what trib_stream_create of host "
                        "device %d gave, before it is destroyed",
                        operation, stream, (int)device);
    }
}

static void kick_visited(void *context)
{
    struct tri_stream *stream = context;
    if (atomic_load(&stream->done) < atomic_load(&stream->queued) &&
        !atomic_load(&stream->running))
        call_worker(stream);
}

void tri_stream_kick(const void *stream)
{
    tri_registry_visit(&streams, stream, kick_visited);
}

static void patrol_visited(void *context)
{
    struct tri_stream *stream = context;
    if (tri_patrol_overdue(&stream->patrolled))
        kick_visited(stream);
}

void tri_stream_patrol(void)
{
    tri_registry_visit(&streams, NULL, patrol_visited);
}

/* -------------------------------------------------------------------------------------- waiting */

struct wait {
    struct tri_stream *stream;
    uint64_t until;
};

static bool passed_or_free(void *context)
{
    const struct wait *wait = context;
    return atomic_load(&wait->stream->done) >= wait->until ||
           !atomic_load(&wait->stream->running);
}

/* Help, or wait for the thread that runs the queue. What the items fail with is theirs: this
 * thread's detail stays. */
static void wait_until(struct tri_stream *stream, uint64_t until)
{
    struct wait wait = {stream, until};
    char detail[TRI_DETAIL_SIZE];
    strcpy(detail, tri_detail());
    while (atomic_load(&stream->done) < until) {
        drain(stream, until);
        (void)tri_park_until(&stream->waiters, passed_or_free, &wait, 0);
    }
    if (strcmp(detail, tri_detail()) != 0)
        (void)tri_fail(TRIB_OK, "%s", detail);
}

trib_status tri_host_stream_wait(int32_t device, trib_stream handle)
{
    struct tri_stream *stream = NULL;
    const trib_status status = tri_stream_find(&stream, device, handle, "stream_wait");
    if (status != TRIB_OK)
        return status;
    atomic_fetch_add(&stream->inside, 1);
    tri_patrol_waiting(stream, &stream->patrolled);
    const uint64_t until = atomic_load(&stream->queued);
    if (atomic_load(&stream->done) < until) {
        tri_patrol_awaited(&stream->patrolled);
        wait_until(stream, until);
    }
    atomic_fetch_sub(&stream->inside, 1);
    return TRIB_OK;
}

trib_status tri_host_stream_query(int32_t device, trib_stream handle, bool *out_done)
{
    struct tri_stream *stream = NULL;
    const trib_status status = tri_stream_find(&stream, device, handle, "stream_query");
    if (status != TRIB_OK)
        return status;
    const uint64_t until = atomic_load(&stream->queued);
    *out_done = atomic_load(&stream->done) >= until;
    if (!*out_done && !atomic_load(&stream->running))
        call_worker(stream);
    return TRIB_OK;
}

struct user_function {
    void (*function)(void *);
    void *argument;
};

static void run_user_function(void *item)
{
    const struct user_function *user = item;
    user->function(user->argument);
}

trib_status tri_host_stream_submit(int32_t device, void (*function)(void *), void *argument,
                                   trib_stream handle)
{
    struct tri_stream *stream = NULL;
    const trib_status status = tri_stream_find(&stream, device, handle, "stream_submit");
    if (status != TRIB_OK)
        return status;
    struct user_function *user = tri_stream_item(stream, sizeof *user);
    if (user == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_submit: no memory to queue it");
    *user = (struct user_function){function, argument};
    tri_stream_push(stream, user, run_user_function);
    return TRIB_OK;
}

trib_status tri_host_stream_destroy(int32_t device, trib_stream handle)
{
    if (handle == NULL)
        return TRIB_OK;
    if (names_default(handle))
        return tri_fail(TRIB_ERR_INVALID_STREAM, "stream_destroy: the default stream stays");
    trib_status status = tri_host_stream_wait(device, handle);
    if (status != TRIB_OK)
        return status;
    struct tri_stream *stream = handle;
    if (!tri_registry_remove(&streams, stream, device))
        return tri_fail(TRIB_ERR_INVALID_STREAM, "stream_destroy: %p is destroyed already", handle);
    stop_worker(stream);
    while (atomic_load(&stream->inside) != 0 || atomic_load(&stream->running))
        sched_yield(); /* a thread that waited too is on its way out */
    pthread_mutex_lock(&stream->lock); /* and has left the lock */
    pthread_mutex_unlock(&stream->lock);
    free_stream(stream);
    return TRIB_OK;
}
