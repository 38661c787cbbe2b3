/* An eventcount: threads wait until a condition on some atomics holds. They spin for a moment, then
 * sleep.
 *
 * A thread that changes the atomics calls tri_eventcount_notify afterwards; a thread that waits
 * passes a predicate that reads them. No notification is lost as long as both use sequentially
 * consistent operations: either the waiter sees the change, or the notifier sees the waiter. */
#ifndef TRI_HOST_EVENTCOUNT_H
#define TRI_HOST_EVENTCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* All zero: no waiters. */
struct tri_eventcount {
    _Atomic uint32_t epoch;   /* changes with every notify that finds a waiter */
    _Atomic uint32_t waiters; /* threads that sleep or are about to */
};

/* Does the condition hold? May change the state if it does (to take a lock, for example). */
typedef bool (*tri_predicate)(void *context);

/* Return true as soon as `holds` does; false once `deadline_ns` (0: never) has passed. */
bool tri_eventcount_wait(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                         uint64_t deadline_ns);

/* The same for `ns` from now. Reads the clock only if it has to wait. */
bool tri_eventcount_wait_for(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                             uint64_t ns);

/* Make all waiters evaluate their predicates again. A load if there are none. */
void tri_eventcount_notify(struct tri_eventcount *eventcount);

#endif
