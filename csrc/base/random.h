/* Randomness of the system's. */
#ifndef TRI_BASE_RANDOM_H
#define TRI_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* Bytes that nobody can guess. TRIB_ERR_SYSTEM. */
trib_status tri_random(uint8_t *out, size_t n);

#endif
