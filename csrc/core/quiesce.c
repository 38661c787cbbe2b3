/* The end of all background work of the library: workspaces that were set aside, and what backends
 * give back. */
#include "csrc/core/quiesce.h"

#include "csrc/backend.h"
#include "csrc/base/clock.h"
#include "csrc/core/workspace.h"

enum { NAP_NS = 500000 };

/* All backends, one after the other. */
static uint32_t quiesce_backends(uint64_t deadline_ns)
{
    uint32_t left = 0;
    for (size_t i = 0; tri_backends[i] != NULL; i++)
        if (tri_backends[i]->quiesce != NULL)
            left += tri_backends[i]->quiesce(deadline_ns);
    return left;
}

/* A workspace comes free when what was queued has run; then a backend gives its memory back. */
trib_status tri_quiesce(uint32_t timeout_ms)
{
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    uint32_t aside;
    while ((aside = tri_workspace_sweep()) > 0 && tri_now_ns() < deadline)
        tri_nap_ns(NAP_NS);
    const uint32_t left = quiesce_backends(deadline);
    if (aside + left == 0)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_TIMEOUT,
                    "trib_quiesce: after %u ms %u things are still being given back in the "
                    "background (communicators, memory, calls that were given up) and %u "
                    "workspaces wait for what was queued before their communicators went; CUDA "
                    "graphs that captured a communicator and are still alive, and kernels that "
                    "do not end, are the usual reasons",
                    (unsigned)timeout_ms, (unsigned)left, (unsigned)aside);
}
