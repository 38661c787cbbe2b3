/* A queue of items that run in order: the implementation of a host stream.
 *
 * Every queue has a worker thread. A thread that waits for a queue runs the items itself ("helps")
 * unless another thread already does, so a call that is queued and waited for at once needs no
 * other thread; wakeup.h decides when a push wakes the worker. Any thread may call any function
 * here. tri_queue_wait, tri_queue_done and tri_queue_wake are safe between acquire and release even
 * while another thread destroys the queue. */
#ifndef TRI_HOST_QUEUE_H
#define TRI_HOST_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "tributary.h"

struct tri_queue;

trib_status tri_queue_create(struct tri_queue **out);

/* After tri_queue_wait. No thread may push or acquire any more; destroy waits for every release. */
void tri_queue_destroy(struct tri_queue *queue);

void tri_queue_acquire(struct tri_queue *queue);
void tri_queue_release(struct tri_queue *queue);

/* A push has two steps, so that nothing can fail between the caller's bookkeeping and the queue:
 * allocate an item of `bytes` bytes, aligned to 16 (NULL when memory is short), then push it.
 * The queue calls `run(item)` in order and frees the item when it returns. */
void *tri_queue_item(struct tri_queue *queue, size_t bytes);
void tri_queue_push(struct tri_queue *queue, void *item, void (*run)(void *item));
void tri_queue_drop(struct tri_queue *queue, void *item); /* instead of the push */

/* Wait until all items pushed before this call have run. Keeps the thread's detail. */
void tri_queue_wait(struct tri_queue *queue);

/* Have all items run? */
bool tri_queue_done(struct tri_queue *queue);

/* Wake the worker if items wait to run and no thread runs them. */
void tri_queue_wake(struct tri_queue *queue);

#endif
