/* Calls of one rank in the order in which they were made.
 *
 * An event behind each call, and a wait before a call on another stream than the last one's. Streams
 * are told apart by the driver's numbers: a stream may have been destroyed, and another one have its
 * address. */
#include "csrc/nccl/order.h"

#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"

enum { DEFAULT_STREAM = -1 }; /* as a number, which the driver gives to none */

cudaError_t tri_nccl_order_create(struct tri_nccl_order *order)
{
    const cudaError_t error = cudaEventCreateWithFlags(&order->event, cudaEventDisableTiming);
    return error != cudaSuccess
               ? error
               : cudaEventCreateWithFlags(&order->captured_event, cudaEventDisableTiming);
}

void tri_nccl_order_destroy(struct tri_nccl_order *order)
{
    if (order->event != NULL)
        (void)cudaEventDestroy(order->event);
    if (order->captured_event != NULL)
        (void)cudaEventDestroy(order->captured_event);
    order->event = order->captured_event = NULL;
    order->queued = false;
}

/* Not of a stream in capture, which the question would invalidate. */
static uint64_t number_of(cudaStream_t stream)
{
    unsigned long long number = 0;
    if (stream == NULL || stream == cudaStreamLegacy)
        return (uint64_t)DEFAULT_STREAM;
    if (tri_nccl_driver.stream_id == NULL ||
        tri_nccl_driver.stream_id(stream, &number) != CUDA_SUCCESS)
        return 0;
    return number;
}

cudaError_t tri_nccl_order_begin(struct tri_nccl_order *order, int32_t device, cudaStream_t stream)
{
    const uint64_t capture = tri_nccl_capturing(device, stream);
    const bool first = capture == 0 ? !order->queued : order->capture != capture;
    order->begun.capture = capture;
    order->begun.stream = capture == 0 ? number_of(stream) : 0;
    if (first || (order->begun.stream != 0 && order->begun.stream == order->stream))
        return cudaSuccess;
    return cudaStreamWaitEvent(stream, capture == 0 ? order->event : order->captured_event, 0);
}

cudaError_t tri_nccl_order_end(struct tri_nccl_order *order, int32_t device, cudaStream_t stream)
{
    const uint64_t capture = order->begun.capture;
    (void)device;
    const cudaError_t error =
        cudaEventRecord(capture == 0 ? order->event : order->captured_event, stream);
    if (error != cudaSuccess) {
        order->lost = order->lost || capture == 0;
        return error;
    }
    if (capture == 0) {
        order->queued = true;
        order->stream = order->begun.stream;
    } else {
        order->capture = capture;
    }
    return cudaSuccess;
}

cudaError_t tri_nccl_order_wait(const struct tri_nccl_order *order, cudaStream_t stream)
{
    return order->queued ? cudaStreamWaitEvent(stream, order->event, 0) : cudaSuccess;
}
