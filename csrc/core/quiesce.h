/* The end of all background work of the library. */
#ifndef TRI_CORE_QUIESCE_H
#define TRI_CORE_QUIESCE_H

#include <stdint.h>

#include "csrc/base/status.h"

/* The public function of this name. */
trib_status tri_quiesce(uint32_t timeout_ms);

#endif
