/* What a single call may want: trib_call_options. */
#ifndef TRI_CORE_OPTIONS_H
#define TRI_CORE_OPTIONS_H

#include <stdbool.h>

#include "csrc/core/communicator.h"

/* What they say, defaults filled in. */
struct tri_call_settings {
    bool scaled; /* a factor counts */
    struct tri_factor factor;
};

/* NULL: all defaults. */
trib_status tri_call_settings_read(struct tri_call_settings *out, const struct trib_comm *comm,
                                   int operation, const trib_call_options *options);

#endif
