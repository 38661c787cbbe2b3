/* What lists share with the other collectives. */
#ifndef TRI_HOST_COLLECTIVES_H
#define TRI_HOST_COLLECTIVES_H

#include "csrc/host/local.h"

/* Post `call`, the first one of `list` (NULL: of none). Returns which of the double-buffered posts
 * it is; the caller fills in the rest of that. */
int tri_host_post(struct tri_transport *self, const struct tri_call *call,
                  const struct tri_host_list *list);

/* After the barrier: have all ranks made the same call, all of a list or none? */
trib_status tri_host_check_match(const struct tri_transport *self, int buffer);

/* Do two ranks make the same call? Buffers may differ. */
bool tri_host_same_call(const struct tri_call *a, const struct tri_call *b);

/* This rank's part of `count` elements of `element` bytes, in whole cache lines. Returns where it
 * begins. */
size_t tri_host_chunk(const struct tri_transport *self, size_t count, size_t element,
                      size_t *out_count);

#endif
