/* What a new communicator tells NCCL of itself. */
#ifndef TRI_NCCL_CONFIG_H
#define TRI_NCCL_CONFIG_H

#include <nccl.h>
#include <stdbool.h>

#include "csrc/backend.h"

/* Does NCCL know the policy, the one that is loaded and the one of the build? */
bool tri_nccl_has_policy(trib_cta_policy policy);

/* Has NCCL windows, and does an abort end the calls on them? */
bool tri_nccl_aborts_windows(void);

/* Can NCCL do that? `config` NULL: all defaults. `operation` begins the detail. */
trib_status tri_nccl_config_check(const struct tri_config *config, const char *operation);

/* For a blocking communicator that shares nothing with another one. Refers to the strings of
 * `config`. */
ncclConfig_t tri_nccl_config(const struct tri_config *config);

#endif
