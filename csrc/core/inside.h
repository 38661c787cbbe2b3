/* Collectives among the ranks of one host, for algorithms that work inside hosts first. Of a
 * communicator on several hosts the ranks of each one get a communicator of their own, by a split.
 * It belongs to the one from which it was split, and they stop together, whichever stops first. */
#ifndef TRI_CORE_INSIDE_H
#define TRI_CORE_INSIDE_H

#include "csrc/core/communicator.h"

struct tri_inside; /* of one rank, and one map of the hosts */

/* Have the ranks of each host such collectives? The same on all ranks. If not, messages do: a
 * host-executed backend runs calls after the communicator may have been destroyed, and no call that it
 * has queued keeps a second one alive. */
bool tri_inside_exists(const struct trib_comm *comm, const uint8_t *host_of);

/* Collective, blocking, and only where they exist: *out reaches the ranks of this rank's host, in their
 * order. Borrowed from `comm`, which makes it once for each map; NULL: no other rank is on this host. A
 * failure has ended `comm`. */
trib_status tri_inside_open(struct tri_transport **out, struct trib_comm *comm,
                            const uint8_t *host_of);

/* When `comm` closes, after its own transport; and when it is destroyed. */
trib_status tri_inside_close(struct trib_comm *comm, uint32_t timeout_ms);
void tri_inside_destroy(struct trib_comm *comm);

#endif
