/* Sends and receives between the ranks of a clique. */
#ifndef TRI_HOST_MAILBOX_H
#define TRI_HOST_MAILBOX_H

#include "csrc/host/clique.h"

/* Do the sends and receives among `n` calls of one rank, all together; the other kinds are passed
 * over. On failure the clique is aborted. */
trib_status tri_mailbox_exchange(struct tri_transport *self, const struct tri_call *calls,
                                 size_t n);

#endif
