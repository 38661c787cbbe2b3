/* A queue of work that runs in order: what a host stream is.
 *
 * Every queue has a worker thread, and a thread that waits for a queue runs it itself ("helps")
 * unless another is at it already. So a call that is queued and waited for at once needs no other
 * thread; patrol.h says when the worker is called. Any thread may call any function here, and wait
 * and ask between enter and leave even while another destroys the queue. */
#ifndef TRI_HOST_QUEUE_H
#define TRI_HOST_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "tributary.h"

struct tri_queue;

trib_status tri_queue_create(struct tri_queue **out);

/* After a wait. Nobody may push or enter any more; threads that are inside are waited for. */
void tri_queue_destroy(struct tri_queue *queue);

void tri_queue_enter(struct tri_queue *queue);
void tri_queue_leave(struct tri_queue *queue);

/* Pushing is two steps, so that nothing can fail between the caller's bookkeeping and the queue:
 * room for an item of `bytes` bytes, aligned to 16 (NULL when memory is short), then the push.
 * `run(item)` is called in the queue's order; the item is gone when it returns. */
void *tri_queue_item(struct tri_queue *queue, size_t bytes);
void tri_queue_push(struct tri_queue *queue, void *item, void (*run)(void *item));
void tri_queue_drop(struct tri_queue *queue, void *item); /* instead of the push */

/* Wait until everything pushed before this call has run. Keeps the thread's detail. */
void tri_queue_wait(struct tri_queue *queue);

/* Has everything run? */
bool tri_queue_done(struct tri_queue *queue);

/* See to it that what was pushed runs, even if nobody waits for it. */
void tri_queue_kick(struct tri_queue *queue);

/* One round of the patrol has come to this queue. */
void tri_queue_patrol(struct tri_queue *queue);

#endif
