/* The options of one call: trib_call_options. */
#ifndef TRI_CORE_OPTIONS_H
#define TRI_CORE_OPTIONS_H

#include <stdbool.h>

#include "csrc/core/communicator.h"

/* trib_call_options with defaults filled in. */
struct tri_call_settings {
    bool scaled;   /* the call has a factor */
    bool unstaged; /* TRIB_CALL_UNSTAGED */
    struct tri_factor factor;
    trib_variant variant;
};

/* `options` NULL: all defaults. */
trib_status tri_call_settings_read(struct tri_call_settings *out, const struct trib_comm *comm,
                                   int operation, const trib_call_options *options);

#endif
