/* A communicator of one rank, without NCCL. */
#ifndef TRI_NCCL_SINGLE_H
#define TRI_NCCL_SINGLE_H

#include "csrc/backend.h"

/* tri_transport_ops.collective for calls of one such transport. Its device is current. */
trib_status tri_nccl_single(const struct tri_call *calls, size_t n);

#endif
