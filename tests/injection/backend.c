/* The table of backends of this program: host, with a place to inject at in front of each member
 * that returns a status and of the questions that a call asks. A member without one here is host's
 * own. */
#include <string.h>

#include "csrc/base/abort.h"
#include "tests/injection/places.h"
#include "tests/own_backend.h"

static const struct tri_device_ops *real_device;
static const struct tri_transport_ops *real_transport;

/* -------------------------------------------------------------------------------------- devices */

/* Zeroed, so that what no call has written yet is the same in every run. */
static trib_status device_alloc(int32_t device, void **out, size_t bytes)
{
    static const struct injection_place place = {"device.alloc", TRIB_ERR_OUT_OF_MEMORY, false};
    TRI_TRY(injection_reach(&place));
    TRI_TRY(real_device->alloc(device, out, bytes));
    memset(*out, 0, bytes);
    return TRIB_OK;
}

FAILS(device, alloc_pinned, TRIB_ERR_OUT_OF_MEMORY, (void **out, size_t bytes), (out, bytes))
FAILS(device, stream_create, TRIB_ERR_CUDA, (int32_t device, trib_stream *out), (device, out))
FAILS(device, stream_wait_event, TRIB_ERR_CUDA,
      (int32_t device, trib_event event, trib_stream stream), (device, event, stream))
FAILS(device, stream_submit, TRIB_ERR_CUDA,
      (int32_t device, void (*function)(void *), void *argument, trib_stream stream),
      (device, function, argument, stream))
FAILS(device, event_create, TRIB_ERR_OUT_OF_MEMORY, (int32_t device, trib_event *out),
      (device, out))
FAILS(device, event_record, TRIB_ERR_CUDA, (int32_t device, trib_event event, trib_stream stream),
      (device, event, stream))

/* As of a slow link, whose measurement is short, and of the same calls in every run. */
static trib_status device_event_elapsed(int32_t device, trib_event start, trib_event end,
                                        float *out_ms)
{
    static const struct injection_place place = {"device.event_elapsed", TRIB_ERR_CUDA, false};
    enum { SLOW_MS = 100 };
    TRI_TRY(injection_reach(&place));
    TRI_TRY(real_device->event_elapsed(device, start, end, out_ms));
    *out_ms += SLOW_MS;
    return TRIB_OK;
}

/* The library ends its use of a resource that it frees, whatever CUDA says; the public functions
 * report it. */
FAILS_AFTER(device, free, TRIB_ERR_CUDA, true, (int32_t device, void *data), (device, data))
FAILS_AFTER(device, stream_destroy, TRIB_ERR_CUDA, true, (int32_t device, trib_stream stream),
            (device, stream))
FAILS_AFTER(device, event_destroy, TRIB_ERR_CUDA, true, (int32_t device, trib_event event),
            (device, event))
FAILS_AFTER(device, stream_wait, TRIB_ERR_CUDA, false, (int32_t device, trib_stream stream),
            (device, stream))
FAILS_AFTER(device, event_wait, TRIB_ERR_CUDA, false, (int32_t device, trib_event event),
            (device, event))

ANSWERS(int32_t, device, count, (void), ())
ANSWERS(enum tri_fault, device, check_buffer,
        (int32_t device, const void *data, size_t bytes, size_t *found),
        (device, data, bytes, found))
ANSWERS(enum tri_fault, device, check_stream, (int32_t device, trib_stream stream, size_t *found),
        (device, stream, found))

/* A wait asks again and again. Where it is about to free, it also takes a failure for "not yet". */
static trib_status device_event_query(int32_t device, trib_event event, bool *out_done)
{
    static const struct injection_place place = {"device.event_query", TRIB_ERR_CUDA, true};
    const trib_status fault = injection_poll(&place, event);
    return fault != TRIB_OK ? fault : real_device->event_query(device, event, out_done);
}

static trib_status device_stream_query(int32_t device, trib_stream stream, bool *out_done)
{
    static const struct injection_place place = {"device.stream_query", TRIB_ERR_CUDA, true};
    const trib_status fault = injection_poll(&place, stream);
    return fault != TRIB_OK ? fault : real_device->stream_query(device, stream, out_done);
}

static bool queues; /* nothing is submitted, as on nccl */

/* What nccl would queue happens before the call returns. */
static trib_status move(int32_t device, void *dst, const void *src, size_t bytes,
                        trib_stream stream)
{
    const trib_status status = real_device->stream_wait(device, stream);
    if (status == TRIB_OK && bytes != 0 && dst != src)
        memmove(dst, src, bytes);
    return status;
}

static trib_status device_copy(int32_t device, void *dst, const void *src, size_t bytes,
                               trib_stream stream)
{
    static const struct injection_place place = {"device.copy", TRIB_ERR_CUDA, false};
    TRI_TRY(injection_reach(&place));
    return queues ? move(device, dst, src, bytes, stream)
                  : real_device->copy(device, dst, src, bytes, stream);
}

static trib_status device_fetch(int32_t device, void *dst, const void *src, size_t bytes,
                                trib_stream stream)
{
    static const struct injection_place place = {"device.fetch", TRIB_ERR_CUDA, false};
    TRI_TRY(injection_reach(&place));
    return queues ? move(device, dst, src, bytes, stream)
                  : real_device->fetch(device, dst, src, bytes, stream);
}

/* ----------------------------------------------------------------------------------- transports */

FAILS(transport, id_create, TRIB_ERR_NCCL, (trib_id * out), (out))
FAILS(transport, open, TRIB_ERR_OUT_OF_MEMORY,
      (struct tri_transport * *out, const trib_id *id, int32_t rank, int32_t size, int32_t device,
       const struct tri_config *config, uint32_t timeout_ms),
      (out, id, rank, size, device, config, timeout_ms))
FAILS(transport, open_group, TRIB_ERR_OUT_OF_MEMORY,
      (struct tri_transport * *out, const int32_t *devices, int32_t size,
       const struct tri_config *config, uint32_t timeout_ms),
      (out, devices, size, config, timeout_ms))
FAILS(transport, split, TRIB_ERR_OUT_OF_MEMORY,
      (struct tri_transport * *out, struct tri_transport *parent, int32_t color, int32_t key,
       const struct tri_config *config, uint32_t timeout_ms),
      (out, parent, color, key, config, timeout_ms))
FAILS_AFTER(transport, close, TRIB_ERR_NCCL, false,
            (struct tri_transport * transport, uint32_t timeout_ms), (transport, timeout_ms))
ANSWERS(struct trib_abort *, transport, abort_state, (struct tri_transport * transport),
        (transport))
ANSWERS(const uint32_t *, transport, abort_flag, (struct tri_transport * transport), (transport))

static void transport_destroy(struct tri_transport *transport)
{
    static const struct injection_place place = {"transport.destroy", TRIB_OK, false};
    (void)injection_reach(&place);
    real_transport->destroy(transport);
}

/* What the caller's thread counts as goes with the function that it submits. */
struct submission {
    struct injection_context context;
    void (*function)(void *argument);
    _Alignas(16) unsigned char argument[];
};

static void run_submission(void *argument)
{
    struct submission *submission = argument;
    const struct injection_context before = injection_context();
    injection_resume(submission->context);
    submission->function(submission->argument);
    injection_resume(before);
}

static trib_status transport_submit(struct tri_transport *transport, void (*function)(void *),
                                    const void *argument, size_t bytes, trib_stream stream)
{
    enum { LARGEST = 32768 };
    static _Thread_local union {
        struct submission submission;
        unsigned char room[sizeof(struct submission) + LARGEST];
    } copy;
    static const struct injection_place place = {"transport.submit", TRIB_ERR_OUT_OF_MEMORY, false};
    TRI_TRY(injection_reach(&place));
    if (bytes > LARGEST)
        return tri_fail(TRIB_ERR_INTERNAL, "the test has no room for %zu bytes", bytes);
    copy.submission.context = injection_context();
    copy.submission.function = function;
    memcpy(copy.submission.argument, argument, bytes);
    return real_transport->submit(transport, run_submission, &copy, sizeof copy.submission + bytes,
                                  stream);
}

/* On a stream it fails for good, which raises the state. As nccl it fails before it has queued
 * anything, and does not. */
static trib_status transport_collective(const struct tri_call *calls, size_t n)
{
    static const struct injection_place place = {"transport.collective", TRIB_ERR_NCCL, false};
    const trib_status fault = injection_reach(&place);
    if (fault != TRIB_OK && !queues)
        (void)tri_abort_raise(real_transport->abort_state(calls[0].transport), fault, tri_detail());
    return fault != TRIB_OK ? fault : real_transport->collective(calls, n);
}

/* Calls run where they are queued: none waits. */
static void queued_progress(struct tri_transport *of, struct tri_progress *out)
{
    (void)of;
    *out = (struct tri_progress){0};
}

/* ---------------------------------------------------------------------------------------- table */

static struct tri_device_ops device;
static struct tri_transport_ops transport;

void injection_backend(bool queued)
{
    backend = tri_backend_host;
    real_device = backend.device;
    real_transport = backend.transport;
    device = *real_device;
    transport = *real_transport;
#define PUT(of, member) of.member = of##_##member
    PUT(device, alloc), PUT(device, alloc_pinned), PUT(device, free), PUT(device, copy);
    PUT(device, fetch), PUT(device, count), PUT(device, check_buffer), PUT(device, check_stream);
    PUT(device, stream_create), PUT(device, stream_wait), PUT(device, stream_query);
    PUT(device, stream_wait_event), PUT(device, stream_submit), PUT(device, stream_destroy);
    PUT(device, event_create), PUT(device, event_record), PUT(device, event_wait);
    PUT(device, event_query), PUT(device, event_elapsed), PUT(device, event_destroy);
    PUT(transport, id_create), PUT(transport, open), PUT(transport, open_group);
    PUT(transport, split), PUT(transport, close), PUT(transport, destroy);
    PUT(transport, abort_state), PUT(transport, abort_flag), PUT(transport, submit);
    PUT(transport, collective);
#undef PUT
    queues = queued;
    if (queued) {
        transport.submit = NULL;
        transport.progress = queued_progress;
    }
    backend.device = &device;
    backend.transport = &transport;
    backend.kernels = injection_kernels();
}
