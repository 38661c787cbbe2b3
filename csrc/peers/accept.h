/* Accepts connections, and keeps those whose other end has not proved itself yet: a bounded number
 * for a bounded time, and the oldest goes first, before the others those that have said nothing. The caller holds the lock of the service. */
#ifndef TRI_PEERS_ACCEPT_H
#define TRI_PEERS_ACCEPT_H

#include "csrc/peers/channel.h"

/* Its fields belong to accept.c. */
struct tri_accept {
    const struct tri_channel_family *family;
    struct tri_service_item listeners[2]; /* TCP, Unix; fd -1: closed */
    struct tri_channel *waiting;          /* accepted, not proven; the oldest first */
    int32_t refusals;                     /* of connections; only some are logged */
    int error;                            /* of the last accept that failed, or 0: for its owner */
};

/* No listener yet. `family` outlives it. */
void tri_accept_begin(struct tri_accept *accept, const struct tri_channel_family *family);
/* `fd` becomes the listener of its kind, and accepts nothing yet; negative: none. */
void tri_accept_set(struct tri_accept *accept, bool local, int fd);
/* Accept from now on. Returns 0, also without a listener of that kind, or an errno. */
int tri_accept_start(struct tri_accept *accept, bool local);
void tri_accept_close(struct tri_accept *accept, bool local);
/* Close both listeners, and end all that wait. */
void tri_accept_end(struct tri_accept *accept);

/* The channel has opened or ended, and belongs to the caller; false if it is not among those that
 * wait. */
bool tri_accept_take(struct tri_accept *accept, const struct tri_channel *channel);
/* A connection was refused: is that one of the few to be logged? Strangers do not fill the log. */
bool tri_accept_logs(struct tri_accept *accept);

#endif
