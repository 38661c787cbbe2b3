/* How the ranks of a new communicator get to know those in other processes. */
#ifndef TRI_CORE_INTRODUCE_H
#define TRI_CORE_INTRODUCE_H

#include "csrc/core/communicator.h"

/* Collective over `comm`, which is new; `operation` makes it, until `deadline_ns` at most. If some of
 * its ranks are in other processes, they exchange addresses and connect, and `comm->remote` is set
 * on all ranks or on none: none if one of them does not want it (TRIB_NO_SIDE_CHANNEL) or cannot,
 * which is logged. Fails if the communicator has ended meanwhile. */
trib_status tri_introduce(struct trib_comm *comm, int operation, uint64_t deadline_ns);

#endif
