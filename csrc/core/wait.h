/* trib_comm_wait and trib_group_wait. */
#ifndef TRI_CORE_WAIT_H
#define TRI_CORE_WAIT_H

#include "csrc/core/issue.h"

/* On one rank, or on all ranks of a group, which share a state. TRI_WAIT or TRI_GROUP_WAIT. */
trib_status tri_wait(const struct tri_issuing *ranks, int operation, uint32_t timeout_ms);

/* Sleep between two looks, in proportion to the time since `begin_ns`: whoever looks is late by a
 * sixteenth at most, and a millisecond; but not beyond `end_ns`. */
void tri_wait_nap(uint64_t begin_ns, uint64_t end_ns);

#endif
