/* A new communicator of the ranks that remain when others are lost. */
#ifndef TRI_CORE_SHRINK_H
#define TRI_CORE_SHRINK_H

#include "csrc/core/communicator.h"

/* The public function of this name; `out` and `comm` are not NULL. */
trib_status tri_comm_shrink(struct trib_comm **out, struct trib_comm *comm, const int32_t *excluded,
                            int32_t n, uint32_t timeout_ms);

#endif
