/* Host streams: queues behind public handles, each of one device. */
#ifndef TRI_HOST_STREAM_H
#define TRI_HOST_STREAM_H

#include <stdint.h>

#include "csrc/host/queue.h"
#include "tributary.h"

/* The queue behind a public handle. NULL and (void *)1 are the device's default stream, which the
 * first use creates. TRIB_ERR_INVALID_STREAM names `operation`. */
trib_status tri_stream_find(struct tri_queue **out, int32_t device, trib_stream stream,
                            const char *operation);

/* tri_queue_wake for any pointer: does nothing unless `stream` is a live stream. */
void tri_stream_wake(const void *stream);

#endif
