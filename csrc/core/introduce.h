/* How the ranks of a new communicator get to know those in other processes. */
#ifndef TRI_CORE_INTRODUCE_H
#define TRI_CORE_INTRODUCE_H

#include "csrc/core/making.h"

/* Collective over a new communicator, some of whose ranks are in other processes: they exchange
 * addresses and connect, and `comm->remote` is set on all ranks or on none: none if one of them does
 * not want it (TRIB_NO_SIDE_CHANNEL) or cannot, which is logged. If it fails, the communicator has
 * ended. */
trib_status tri_introduce(const struct tri_making *making);

#endif
