/* How the ranks of a new communicator come to reach each other's memory across processes. */
#ifndef TRI_CORE_SHARE_H
#define TRI_CORE_SHARE_H

#include "csrc/core/making.h"

/* Collective over a new communicator whose ranks are introduced. If its backend shares memory (struct
 * tri_share_ops), and each rank is in a process of its own on one host, all ranks use that from here
 * on, or none does, which is logged at TRIB_LOG_INFO. If it fails, the communicator has ended. */
trib_status tri_share(const struct tri_making *making);

#endif
