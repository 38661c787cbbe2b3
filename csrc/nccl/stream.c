/* Streams and events: CUDA's own. */
#include <cuda_runtime_api.h>

#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"

/* Make `call` with `device` current, as `push` makes it, and turn its cudaError_t into a status
 * with `fail`. */
#define WITH_DEVICE_OR(push, fail, device, operation, call)                                        \
    do {                                                                                           \
        struct tri_nccl_device_guard guard;                                                        \
        TRI_TRY(push(&guard, device));                                                             \
        cudaError_t error = (call);                                                                \
        tri_nccl_pop_device(&guard);                                                               \
        return error == cudaSuccess ? TRIB_OK : fail(error, operation, device);                    \
    } while (0)
#define WITH_DEVICE(device, operation, call)                                                       \
    WITH_DEVICE_OR(tri_nccl_push_device, tri_nccl_cuda_fail, device, operation, call)
#define WAIT(device, operation, call)                                                              \
    WITH_DEVICE_OR(tri_nccl_push_device_to_wait, tri_nccl_wait_fail, device, operation, call)

/* cudaErrorNotReady is an answer, not a failure. */
static trib_status answer(cudaError_t error, const char *operation, int32_t device, bool *out_done)
{
    *out_done = error == cudaSuccess;
    if (error == cudaSuccess)
        return TRIB_OK;
    if (error != cudaErrorNotReady)
        return tri_nccl_wait_fail(error, operation, device);
    (void)cudaGetLastError();
    return TRIB_OK;
}

static cudaError_t make_stream(trib_stream *out)
{
    cudaStream_t stream = NULL;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    *out = stream;
    return error;
}

trib_status tri_nccl_stream_create(int32_t device, trib_stream *out)
{
    WITH_DEVICE(device, "creating a stream", make_stream(out));
}

trib_status tri_nccl_stream_wait(int32_t device, trib_stream stream)
{
    WAIT(device, "waiting for a stream", cudaStreamSynchronize(stream));
}

trib_status tri_nccl_stream_query(int32_t device, trib_stream stream, bool *out_done)
{
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device_to_wait(&guard, device));
    cudaError_t error = tri_nccl_relaxed_stream_query(stream);
    tri_nccl_pop_device(&guard);
    return answer(error, "querying a stream", device, out_done);
}

trib_status tri_nccl_stream_wait_event(int32_t device, trib_event event, trib_stream stream)
{
    WITH_DEVICE(device, "making a stream wait for an event", cudaStreamWaitEvent(stream, event, 0));
}

trib_status tri_nccl_stream_submit(int32_t device, void (*function)(void *), void *argument,
                                   trib_stream stream)
{
    WITH_DEVICE(device, "queueing a host function", cudaLaunchHostFunc(stream, function, argument));
}

static cudaError_t finish(trib_stream stream)
{
    cudaError_t error = cudaStreamSynchronize(stream);
    cudaError_t destroyed = cudaStreamDestroy(stream);
    return error == cudaSuccess ? destroyed : error;
}

trib_status tri_nccl_stream_destroy(int32_t device, trib_stream stream)
{
    WITH_DEVICE(device, "destroying a stream", finish(stream));
}

static cudaError_t make_event(trib_event *out)
{
    cudaEvent_t event = NULL;
    cudaError_t error = cudaEventCreate(&event);
    *out = event;
    return error;
}

trib_status tri_nccl_event_create(int32_t device, trib_event *out)
{
    WITH_DEVICE(device, "creating an event", make_event(out));
}

trib_status tri_nccl_event_record(int32_t device, trib_event event, trib_stream stream)
{
    WITH_DEVICE(device, "recording an event", cudaEventRecord(event, stream));
}

trib_status tri_nccl_event_wait(int32_t device, trib_event event)
{
    WAIT(device, "waiting for an event", cudaEventSynchronize(event));
}

trib_status tri_nccl_event_query(int32_t device, trib_event event, bool *out_done)
{
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device_to_wait(&guard, device));
    cudaError_t error = tri_nccl_relaxed_event_query(event);
    tri_nccl_pop_device(&guard);
    return answer(error, "querying an event", device, out_done);
}

trib_status tri_nccl_event_elapsed(int32_t device, trib_event start, trib_event end, float *out_ms)
{
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device(&guard, device));
    cudaError_t error = cudaEventElapsedTime(out_ms, start, end);
    tri_nccl_pop_device(&guard);
    if (error == cudaSuccess)
        return TRIB_OK;
    if (error != cudaErrorNotReady && error != cudaErrorInvalidResourceHandle)
        return tri_nccl_cuda_fail(error, "measuring the time between two events", device);
    (void)cudaGetLastError();
    return tri_fail(TRIB_ERR_INVALID_USAGE,
                    "event_elapsed: an event of device %d %s; record both and wait for them first",
                    (int)device,
                    error == cudaErrorNotReady ? "has not completed"
                                               : "was never recorded, or was made without timing");
}

trib_status tri_nccl_event_destroy(int32_t device, trib_event event)
{
    WITH_DEVICE(device, "destroying an event", cudaEventDestroy(event));
}
