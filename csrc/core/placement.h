/* The beginning of a communicator, told to whom it concerns: the log and profilers. */
#ifndef TRI_CORE_PLACEMENT_H
#define TRI_CORE_PLACEMENT_H

#include "csrc/core/communicator.h"

/* The communicator is open: say where this rank is, if the debug switch is on, and name it to a
 * profiler. */
void tri_placement_begin(const struct trib_comm *comm);

#endif
