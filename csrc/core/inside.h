/* Collectives among the ranks of one host, for algorithms that work inside hosts first. Of a
 * communicator on several hosts the ranks of each one get a communicator of their own, by a split.
 * It belongs to the one from which it was split, and they stop together, whichever stops first. */
#ifndef TRI_CORE_INSIDE_H
#define TRI_CORE_INSIDE_H

#include "csrc/core/communicator.h"

struct tri_inside; /* of one rank, and one map of the hosts */

/* Have the ranks of each host such collectives? The same on all ranks. If not, messages do: a
 * host-executed backend runs calls after the communicator may have been destroyed, and no call that it
 * has queued keeps a second one alive; and a communicator that was adopted closes without a wait. */
bool tri_inside_exists(const struct trib_comm *comm, const uint8_t *host_of);

/* Collective, blocking, for `operation`, and only where they exist: *out reaches the ranks of this
 * rank's host, in their order. Borrowed from `comm`, which makes it once for each map; NULL: no other
 * rank is on this host. A failure has ended `comm`. Of the ranks of a process the last one that closes
 * `comm` closes what all of them have, until the deadline of that, and frees it; the others wait for
 * nothing. */
trib_status tri_inside_open(struct tri_transport **out, struct trib_comm *comm, int operation,
                            const uint8_t *host_of);

#endif
