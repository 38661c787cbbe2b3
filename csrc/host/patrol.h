/* When a stream's worker is called.
 *
 * Calling a sleeping thread costs microseconds and, with more threads than CPUs, takes the CPU from
 * the one that is just about to wait for the stream and could run the queue itself. So a stream
 * whose last work was waited for keeps its worker asleep at a push, for a moment: until the same
 * thread waits for another stream, or until the patrol, a thread that goes round every 200
 * microseconds while there is such a stream, finds it on two rounds. Then it is clear that nobody
 * waits; the worker is called, and from then on at every push, until work is waited for again. */
#ifndef TRI_HOST_PATROL_H
#define TRI_HOST_PATROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What is known of one stream. All zero is a new one. */
struct tri_patrolled {
    _Atomic bool awaited;    /* its last work was waited for */
    _Atomic uint32_t rounds; /* 0: nothing put off; else 1 + rounds that have seen it put off */
};

/* `stream` got an item, and no thread runs it. Returns whether its worker is to be called now. */
bool tri_patrol_pushed(const void *stream, struct tri_patrolled *patrolled);

/* This thread is about to wait for `stream`, and will see whatever was pushed before this call. */
void tri_patrol_waiting(const void *stream, struct tri_patrolled *patrolled);

/* There was something to wait for. */
void tri_patrol_awaited(struct tri_patrolled *patrolled);

/* One round has come to a stream: is its worker to be called? */
bool tri_patrol_overdue(struct tri_patrolled *patrolled);

#endif
