/* When a push wakes a stream's worker.
 *
 * Waking a sleeping thread costs microseconds and, with more threads than CPUs, takes the CPU from
 * a thread that is about to wait for the stream and could run the queue itself. So a push to a
 * stream whose last work a thread waited for defers the wakeup. The worker wakes when
 *  - the pushing thread waits for another stream, or
 *  - a timer thread, which ticks every 200 microseconds while wakeups are deferred, finds the
 *    stream deferred in two ticks. Evidently no thread waits for it; from then on every push wakes
 *    the worker, until a thread waits for the stream's work again. */
#ifndef TRI_HOST_WAKEUP_H
#define TRI_HOST_WAKEUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The state of one stream. All zero before tri_wakeup_open. */
struct tri_wakeup {
    void (*wake)(struct tri_wakeup *wakeup); /* wakes the worker; must not wait */
    _Atomic bool awaited;                    /* a thread waited for the stream's last work */
    _Atomic uint32_t ticks; /* 0: no wakeup deferred; else 1 + ticks since it was deferred */
};

/* Between open and close, any thread may call `wake`. Open returns false when memory is short. */
bool tri_wakeup_open(struct tri_wakeup *wakeup, void (*wake)(struct tri_wakeup *wakeup));
void tri_wakeup_close(struct tri_wakeup *wakeup);

/* The stream got an item, and no thread runs its queue. True: wake its worker now. */
bool tri_wakeup_pushed(struct tri_wakeup *wakeup);

/* This thread is about to wait for the stream, and will run all items pushed before this call. */
void tri_wakeup_waiting(struct tri_wakeup *wakeup);

/* The wait found work that had not run. */
void tri_wakeup_awaited(struct tri_wakeup *wakeup);

#endif
