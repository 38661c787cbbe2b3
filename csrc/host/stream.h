/* Host streams: queues that run in order.
 *
 * Every stream has a worker thread, and a thread that waits for a stream runs the queue itself
 * ("helps") unless another is at it already. So a call that is queued and waited for at once needs
 * no other thread; patrol.h says when the worker is called. */
#ifndef TRI_HOST_STREAM_H
#define TRI_HOST_STREAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "tributary.h"

struct tri_stream;

/* The stream behind a public handle; the device's default stream for NULL and (void *)1. Makes
 * default streams. TRIB_ERR_INVALID_STREAM names `operation`. */
trib_status tri_stream_find(struct tri_stream **out, int32_t device, trib_stream stream,
                            const char *operation);

/* Queueing is two steps, so that nothing can fail between the caller's bookkeeping and the queue:
 * room for an item of `bytes` bytes, aligned to 16 (NULL when memory is short), then the push.
 * `run(item)` is called in the stream's order; the item is gone when it returns. */
void *tri_stream_item(struct tri_stream *stream, size_t bytes);
void tri_stream_push(struct tri_stream *stream, void *item, void (*run)(void *item));
void tri_stream_drop(struct tri_stream *stream, void *item); /* instead of the push */

/* See to it that the stream runs what is queued, even if nobody waits for it. Any pointer: one that
 * is no living stream is left alone. */
void tri_stream_kick(const void *stream);

#endif
