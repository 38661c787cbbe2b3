/* The options of a communicator. */
#ifndef TRI_CORE_SETTINGS_H
#define TRI_CORE_SETTINGS_H

#include "csrc/core/communicator.h"

/* trib_options with defaults filled in. */
struct tri_settings {
    const struct tri_backend *backend; /* NULL: not given */
    uint32_t flags, timeout_ms, close_timeout_ms, call_timeout_ms;
    struct tri_config config;
};

/* `options` may be NULL. */
trib_status tri_settings_read(struct tri_settings *out, const char *function,
                              const trib_options *options);
/* Those with which a communicator goes on in a new one; no backend. */
struct tri_settings tri_settings_of(const struct trib_comm *comm);

#endif
