/* What backends and communicators can do. */
#ifndef TRI_CORE_CAPABILITIES_H
#define TRI_CORE_CAPABILITIES_H

#include "csrc/core/communicator.h"

/* The public functions of these names, after a check of out->size. */
trib_status tri_backend_capabilities(trib_capabilities *out, const struct tri_backend *backend);
trib_status tri_comm_capabilities(trib_capabilities *out, const struct trib_comm *comm);

#endif
