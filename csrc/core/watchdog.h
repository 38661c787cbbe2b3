/* Watches every recorded communicator of the process: a call that does not end by its deadline, and
 * an asynchronous error of the backend's library, end the communicator. The thread is that of
 * base/watch.h. It sleeps while nothing is queued. */
#ifndef TRI_CORE_WATCHDOG_H
#define TRI_CORE_WATCHDOG_H

#include "csrc/core/communicator.h"

/* Start the thread, once for the process. TRIB_ERR_SYSTEM if it cannot be started. */
trib_status tri_watchdog_start(void);

/* Watch `comm`, which has a transport; nothing if it is not recorded. */
void tri_watchdog_begin(struct trib_comm *comm);
/* Once this has returned, the watchdog no longer uses `comm`, whose end has been reported.
 * Idempotent. */
void tri_watchdog_end(struct trib_comm *comm);

/* The rank has entered a call, and has registered in the in-flight count since. Hot: one load,
 * unless the watchdog sleeps. */
void tri_watchdog_wake(void);

/* A call of `comm`, which is recorded, blocks until all ranks have come, and its own deadline
 * `due_ns` has passed. Ends the communicator as for a late call: once the ranks in other processes
 * have been asked about the call that is pending. The detail is `why`, followed by the sentence that
 * says who waits for whom; or `otherwise`, if no call is known to be pending. Returns when to call
 * this again, or 0: the communicator has ended. For the thread of base/watch.h; never waits. */
uint64_t tri_watchdog_blocked(struct trib_comm *comm, const char *why, const char *otherwise,
                              uint64_t due_ns);

/* Call `visit` with the list of all watched recorders, which stay while it runs. It must not wait,
 * and must not call back into here. */
void tri_watchdog_visit(void (*visit)(const struct tri_recorder *list, void *context),
                        void *context);

/* Dump all watched recorders to the file `path`. */
trib_status tri_watchdog_dump(const char *path);

#endif
