/* How the ranks of a new communicator come to reach each other's memory across processes. */
#ifndef TRI_CORE_SHARE_H
#define TRI_CORE_SHARE_H

#include "csrc/core/communicator.h"

/* Collective over `comm`, which is new and introduced; `operation` makes it, until `deadline_ns` at
 * most. If its backend shares memory (struct tri_share_ops), and each rank is in a process of its own
 * on one host, all ranks use that from here on, or none does, which is logged at TRIB_LOG_INFO. Fails
 * if the communicator has ended meanwhile. */
trib_status tri_share(struct trib_comm *comm, int operation, uint64_t deadline_ns);

#endif
