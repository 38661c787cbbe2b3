/* Sends and receives between local ranks. */
#ifndef TRI_HOST_P2P_H
#define TRI_HOST_P2P_H

#include "csrc/host/local.h"

/* Run the sends and receives among `n` calls of one rank, all of them concurrently; skip calls of
 * other kinds. Aborts on failure. */
trib_status tri_host_p2p(struct tri_transport *self, const struct tri_call *calls, size_t n);

#endif
