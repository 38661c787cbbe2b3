/* Ranks of one process find each other. */
#ifndef TRI_NCCL_JOIN_H
#define TRI_NCCL_JOIN_H

#include "csrc/nccl/local.h"

/* Create a rank. With `key` it joins the local ranks of that key, until tri_nccl_end_joining; with
 * NULL it starts its own. `rank` -1: not known yet. Adds a reference, the transport's. Keeps the
 * deadline whatever the devices do. */
trib_status tri_nccl_join(struct tri_transport **out, const struct tri_nccl_key *key, int32_t rank,
                          int32_t size, int32_t device, uint64_t deadline_ns);
/* Create another rank beside `first`, whose local ranks no other thread knows yet. Adds a
 * reference. */
trib_status tri_nccl_join_same(struct tri_transport **out, struct tri_transport *first,
                               int32_t rank, int32_t device);

#endif
