/* The beginning and the end of a communicator. */
#ifndef TRI_CORE_LIFECYCLE_H
#define TRI_CORE_LIFECYCLE_H

#include "csrc/core/settings.h"

/* Make a communicator without its transport. This allocates all memory, so that joining cannot fail
 * after the other ranks have joined. `max_size`: ranks at most. */
trib_status tri_comm_prepare(struct trib_comm **out, const struct tri_backend *backend,
                             int32_t device, int32_t max_size, const struct tri_settings *settings);
void tri_comm_attach(struct trib_comm *comm, struct tri_transport *transport, uint64_t identity);
/* tri_introduce and tri_share for `comm`, which `operation` makes, until `deadline_ns` at most, and which
 * has its transport; destroys it if one of them fails. */
trib_status tri_comm_introduce(struct trib_comm *comm, int operation, uint64_t deadline_ns);
/* tri_comm_split; the child has these settings. *out is NULL without a color. */
trib_status tri_comm_split_as(struct trib_comm **out, struct trib_comm *comm, int32_t color,
                              int32_t key, const struct tri_settings *settings);
/* Free a communicator without a transport. */
void tri_comm_discard(struct trib_comm *comm);

/* The public functions of these names; pointers that must not be NULL are not NULL. */
trib_status tri_id_create(trib_id *out, const char *backend);
trib_status tri_comm_create(struct trib_comm **out, const trib_id *id, int32_t rank, int32_t size,
                            int32_t device, const trib_options *options);
trib_status tri_comm_split(struct trib_comm **out, struct trib_comm *comm, int32_t color,
                           int32_t key);
trib_status tri_comm_close(struct trib_comm *comm, uint32_t timeout_ms);
trib_status tri_comm_destroy(struct trib_comm *comm);

#endif
