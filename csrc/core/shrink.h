/* A new communicator of the ranks that remain when others are lost. */
#ifndef TRI_CORE_SHRINK_H
#define TRI_CORE_SHRINK_H

#include "csrc/core/communicator.h"

/* Who is lost: whom the abort names, and who has died since, ascending. Returns how many; the first
 * `capacity` go to `out`. */
int32_t tri_comm_lost(const struct trib_comm *comm, int32_t *out, int32_t capacity);

/* The public function of this name; `out` and `comm` are not NULL. */
trib_status tri_comm_shrink(struct trib_comm **out, struct trib_comm *comm, const int32_t *excluded,
                            int32_t n, uint32_t timeout_ms);

#endif
