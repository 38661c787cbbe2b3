/* Host streams: queues that are known by device, under a public handle. */
#ifndef TRI_HOST_STREAM_H
#define TRI_HOST_STREAM_H

#include <stdint.h>

#include "csrc/host/queue.h"
#include "tributary.h"

/* The queue behind a public handle. NULL and (void *)1 mean the device's default stream, which is
 * made at first use. TRIB_ERR_INVALID_STREAM names `operation`. */
trib_status tri_stream_find(struct tri_queue **out, int32_t device, trib_stream stream,
                            const char *operation);

/* tri_queue_kick for any pointer: one that is no living stream is left alone. */
void tri_stream_kick(const void *stream);

/* One round of the patrol over all streams. */
void tri_stream_patrol(void);

#endif
