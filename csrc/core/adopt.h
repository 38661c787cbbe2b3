/* A communicator over one that the caller keeps. */
#ifndef TRI_CORE_ADOPT_H
#define TRI_CORE_ADOPT_H

#include "csrc/core/communicator.h"

/* trib_comm_adopt; the pointers are not NULL. */
trib_status tri_comm_adopt(struct trib_comm **out, void *handle, const trib_options *options);

#endif
