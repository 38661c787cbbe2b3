/* trib_comm_wait. */
#ifndef TRI_CORE_WAIT_H
#define TRI_CORE_WAIT_H

#include "csrc/core/communicator.h"

/* The pointer is not NULL. */
trib_status tri_comm_wait(struct trib_comm *comm, trib_stream stream, uint32_t timeout_ms);

#endif
