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
    cudaError_t error = cudaEventCreateWithFlags(&order->event, cudaEventDisableTiming);
    for (int i = 0; i < TRI_NCCL_CAPTURES && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&order->captured[i].event, cudaEventDisableTiming);
    return error;
}

static void destroy(cudaEvent_t *event)
{
    if (*event != NULL)
        (void)cudaEventDestroy(*event);
    *event = NULL;
}

void tri_nccl_order_destroy(struct tri_nccl_order *order)
{
    destroy(&order->event);
    for (int i = 0; i < TRI_NCCL_CAPTURES; i++)
        destroy(&order->captured[i].event);
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

/* The place of this capture; -1: it has none. */
static int place_of(const struct tri_nccl_order *order, uint64_t capture)
{
    int place = TRI_NCCL_CAPTURES - 1;
    while (place >= 0 && order->captured[place].capture != capture)
        place--;
    return place;
}

static cudaError_t begin_captured(const struct tri_nccl_order *order, cudaStream_t stream)
{
    const int place = place_of(order, order->begun.capture);
    return place < 0 ? cudaSuccess : cudaStreamWaitEvent(stream, order->captured[place].event, 0);
}

cudaError_t tri_nccl_order_begin(struct tri_nccl_order *order, int32_t device, cudaStream_t stream)
{
    order->begun.capture = tri_nccl_capturing(device, stream);
    order->begun.stream = 0;
    if (order->begun.capture != 0)
        return begin_captured(order, stream);
    order->begun.stream = number_of(stream);
    const bool same = order->begun.stream != 0 && order->begun.stream == order->stream;
    return same ? cudaSuccess : tri_nccl_order_wait(order, stream);
}

/* In the place of the capture, or of the one that has been there longest. */
static cudaError_t end_captured(struct tri_nccl_order *order, cudaStream_t stream)
{
    const int known = place_of(order, order->begun.capture);
    const int place = known >= 0 ? known : (int)(order->captures % TRI_NCCL_CAPTURES);
    const cudaError_t error = cudaEventRecord(order->captured[place].event, stream);
    if (error != cudaSuccess)
        return error;
    order->captures += known < 0;
    order->captured[place].capture = order->begun.capture;
    return cudaSuccess;
}

cudaError_t tri_nccl_order_end(struct tri_nccl_order *order, cudaStream_t stream)
{
    if (order->begun.capture != 0)
        return end_captured(order, stream);
    const cudaError_t error = cudaEventRecord(order->event, stream);
    order->lost = order->lost || error != cudaSuccess;
    if (error != cudaSuccess)
        return error;
    order->queued = true;
    order->stream = order->begun.stream;
    return cudaSuccess;
}

cudaError_t tri_nccl_order_wait(const struct tri_nccl_order *order, cudaStream_t stream)
{
    return order->queued ? cudaStreamWaitEvent(stream, order->event, 0) : cudaSuccess;
}
