/* Waiting for what another thread will do: spin for a moment, then sleep.
 *
 * A park belongs to some state made of C11 atomics. Who changes the state calls tri_park_wake
 * afterwards; who waits passes a function that says whether the state is as wished. No wake is lost
 * as long as the state is changed and looked at with sequentially consistent atomics: either the
 * waiter sees the change, or the waker sees the waiter. */
#ifndef TRI_HOST_PARK_H
#define TRI_HOST_PARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* All zero is an empty park. */
struct tri_park {
    _Atomic uint32_t epoch;   /* changes with every wake that finds a waiter */
    _Atomic uint32_t waiters; /* threads that sleep or are about to */
};

/* Is the state as wished? May change the state if it says yes (to take a lock, for example). */
typedef bool (*tri_ready)(void *context);

/* Return true as soon as `ready` says so; false once `deadline_ns` (0: never) has passed. */
bool tri_park_until(struct tri_park *park, tri_ready ready, void *context, uint64_t deadline_ns);

/* The same with a time from now on, which is looked up only if there is something to wait for. */
bool tri_park_for(struct tri_park *park, tri_ready ready, void *context, uint64_t ns);

/* Make all waiters look again. A load if there are none. */
void tri_park_wake(struct tri_park *park);

#endif
