/* How a communicator ends in several processes.
 *
 * Every rank tells those elsewhere that its communicator has ended, also if it was told. Until all their
 * processes have said so, have left, or have ended as the system says, it holds the abort state
 * (base/abort.h): so long, within bounds, no backend interrupts a collective, for a rank elsewhere may
 * take what that hands on for a result. */
#ifndef TRI_CORE_REMOTE_ENDS_H
#define TRI_CORE_REMOTE_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tri_remote;

/* From now on tell all when the communicator ends, and hold its abort state until they have heard. */
void tri_remote_watch(struct tri_remote *remote);
/* No longer, also if it never began. Of a communicator that has ended it waits some ms for the answers: later nobody
 * hears them, and the hold stays for its time. */
void tri_remote_unwatch(struct tri_remote *remote);

/* `rank` says that its communicator has ended, and why; that its has ended, too. */
void tri_remote_on_abort(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                         size_t length);
void tri_remote_on_stopped(struct tri_remote *remote, int32_t rank);
/* Callbacks of the peers; the context is a struct tri_remote. */
void tri_remote_on_dead(void *context, int32_t rank, const char *text, bool ended);
void tri_remote_on_left(void *context, int32_t rank);
void tri_remote_on_leaving(void *context);

#endif
