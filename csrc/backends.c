/* The table of compiled-in backends, with the only #ifdef for one. */
#include <string.h>

#include "csrc/backend.h"

extern const struct tri_backend tri_backend_host;
#ifdef TRI_WITH_NCCL
extern const struct tri_backend tri_backend_nccl;
#endif

/* Best first. The search for an id's backend starts at the end: host marks its ids, nccl takes the
 * rest. */
const struct tri_backend *const tri_backends[] = {
#ifdef TRI_WITH_NCCL
    &tri_backend_nccl,
#endif
    &tri_backend_host,
    NULL,
};

const struct tri_backend *tri_backend_find(const char *name)
{
    for (const struct tri_backend *const *backend = tri_backends; *backend != NULL; backend++)
        if (strcmp((*backend)->name, name) == 0)
            return *backend;
    return NULL;
}
