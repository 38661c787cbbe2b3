/* Where a communicator is, in the log. */
#ifndef TRI_CORE_PLACEMENT_H
#define TRI_CORE_PLACEMENT_H

#include "csrc/core/communicator.h"

/* The communicator is open: say where this rank is, if the debug switch is on. */
void tri_placement_begin(const struct trib_comm *comm);

#endif
