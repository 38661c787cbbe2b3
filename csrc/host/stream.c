/* Host streams: queues behind public handles, each of one device. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/stream.h"

#include <pthread.h>
#include <stdatomic.h>

#include "csrc/base/status.h"
#include "csrc/host/ops.h"
#include "csrc/host/registry.h"

static struct tri_registry streams = TRI_REGISTRY_INIT;

/* The default streams: the first use creates them, and nothing destroys them. */
static _Atomic(struct tri_queue *) defaults[TRI_HOST_MAX_RANKS];

/* ------------------------------------------------------------------------------------- handles */

static bool is_default(trib_stream stream)
{
    return (uintptr_t)stream <= 1; /* NULL, and 1 as in cudaStreamLegacy */
}

static trib_status create(struct tri_queue **out, int32_t device)
{
    struct tri_queue *queue = NULL;
    TRI_TRY(tri_queue_create(&queue));
    if (!tri_registry_add(&streams, queue, 1, device)) {
        tri_queue_destroy(queue);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_create: no memory for a stream");
    }
    *out = queue;
    return TRIB_OK;
}

static trib_status default_stream(struct tri_queue **out, int32_t device)
{
    /* Guards the creation of default streams; threads read created ones without it. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    *out = atomic_load(&defaults[device]);
    if (*out != NULL)
        return TRIB_OK;
    trib_status status = TRIB_OK;
    pthread_mutex_lock(&lock);
    *out = atomic_load(&defaults[device]);
    if (*out == NULL)
        status = create(out, device);
    if (status == TRIB_OK)
        atomic_store(&defaults[device], *out);
    pthread_mutex_unlock(&lock);
    return status;
}

enum tri_fault tri_host_check_stream(int32_t device, trib_stream stream, size_t *found)
{
    if (is_default(stream))
        return TRI_FAULT_NONE;
    const int32_t owner = tri_registry_device(&streams, stream);
    if (owner == device)
        return TRI_FAULT_NONE;
    if (owner < 0)
        return TRI_FAULT_UNKNOWN_STREAM;
    *found = (size_t)owner;
    return TRI_FAULT_OTHER_DEVICE;
}

/* `owner`: the device of `stream`, or -1 if it is no stream. */
static trib_status check_owner(int32_t owner, int32_t device, trib_stream stream,
                               const char *operation)
{
    if (owner == device)
        return TRIB_OK;
    if (owner >= 0)
        return tri_fail(TRIB_ERR_INVALID_STREAM,
                        "%s: stream %p belongs to host device %d, not to device %d; pass a stream "
                        "of that device",
                        operation, stream, (int)owner, (int)device);
    return tri_fail(TRIB_ERR_INVALID_STREAM,
                    "%s: %p is not a host stream; pass NULL or a stream of trib_stream_create of "
                    "host device %d that is not destroyed",
                    operation, stream, (int)device);
}

trib_status tri_stream_find(struct tri_queue **out, int32_t device, trib_stream stream,
                            const char *operation)
{
    *out = stream;
    if (is_default(stream))
        return default_stream(out, device);
    return check_owner(tri_registry_device(&streams, stream), device, stream, operation);
}

static void acquire(void *stream, void *context)
{
    (void)context;
    tri_queue_acquire(stream);
}

/* tri_stream_find for functions that any thread may call, even while another destroys the stream.
 * After success, tri_queue_release must follow. */
static trib_status find_and_acquire(struct tri_queue **out, int32_t device, trib_stream stream,
                                    const char *operation)
{
    *out = stream;
    if (is_default(stream)) {
        TRI_TRY(default_stream(out, device));
        tri_queue_acquire(*out);
        return TRIB_OK;
    }
    const int32_t owner = tri_registry_visit(&streams, stream, acquire, NULL);
    const trib_status status = check_owner(owner, device, stream, operation);
    if (status != TRIB_OK && owner >= 0)
        tri_queue_release(stream);
    return status;
}

static void wake(void *stream, void *context)
{
    (void)context;
    tri_queue_wake(stream);
}

void tri_stream_wake(const void *stream)
{
    (void)tri_registry_visit(&streams, stream, wake, NULL);
}

/* ----------------------------------------------------------------------- members of the backend */

trib_status tri_host_stream_create(int32_t device, trib_stream *out)
{
    struct tri_queue *queue = NULL;
    const trib_status status = create(&queue, device);
    *out = queue;
    return status;
}

trib_status tri_host_stream_wait(int32_t device, trib_stream stream)
{
    struct tri_queue *queue = NULL;
    TRI_TRY(find_and_acquire(&queue, device, stream, "stream_wait"));
    tri_queue_wait(queue);
    tri_queue_release(queue);
    return TRIB_OK;
}

trib_status tri_host_stream_query(int32_t device, trib_stream stream, bool *out_done)
{
    struct tri_queue *queue = NULL;
    TRI_TRY(find_and_acquire(&queue, device, stream, "stream_query"));
    *out_done = tri_queue_done(queue);
    if (!*out_done)
        tri_queue_wake(queue);
    tri_queue_release(queue);
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
                                   trib_stream stream)
{
    struct tri_queue *queue = NULL;
    TRI_TRY(tri_stream_find(&queue, device, stream, "stream_submit"));
    struct user_function *user = tri_queue_item(queue, sizeof *user);
    if (user == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "stream_submit: no memory for the queue item");
    *user = (struct user_function){function, argument};
    tri_queue_push(queue, user, run_user_function);
    return TRIB_OK;
}

trib_status tri_host_stream_destroy(int32_t device, trib_stream stream)
{
    if (stream == NULL)
        return TRIB_OK;
    if (is_default(stream))
        return tri_fail(TRIB_ERR_INVALID_STREAM,
                        "stream_destroy: the default stream cannot be destroyed");
    TRI_TRY(tri_host_stream_wait(device, stream));
    if (!tri_registry_remove(&streams, stream, device))
        return tri_fail(TRIB_ERR_INVALID_STREAM, "stream_destroy: %p is destroyed already", stream);
    tri_queue_destroy(stream);
    return TRIB_OK;
}
