/* Waits for all background work of the library: workspaces that were set aside, and the
 * backends'. */
#include "csrc/core/quiesce.h"

#include "csrc/backend.h"
#include "csrc/base/clock.h"
#include "csrc/core/workspace.h"

enum { NAP_NS = 500000 };

/* All backends, one after the other. */
static uint32_t quiesce_backends(uint64_t deadline_ns, uint32_t *graphs)
{
    uint32_t left = 0;
    for (size_t i = 0; tri_backends[i] != NULL; i++)
        if (tri_backends[i]->quiesce != NULL)
            left += tri_backends[i]->quiesce(deadline_ns, graphs);
    return left;
}

/* Workspaces first: once their queued work has run, the backends free their memory. */
trib_status tri_quiesce(uint32_t timeout_ms)
{
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    uint32_t aside;
    while ((aside = tri_workspace_sweep()) > 0 && tri_now_ns() < deadline)
        tri_nap_ns(NAP_NS);
    uint32_t graphs = 0;
    const uint32_t left = quiesce_backends(deadline, &graphs);
    if (aside + left == 0)
        return TRIB_OK;
    return tri_fail(
        TRIB_ERR_TIMEOUT,
        "trib_quiesce: after %u ms the background still frees %u things (communicators, memory, "
        "calls that were given up), and %u workspaces wait for work queued before their "
        "communicators were destroyed; communicators wait for %u live CUDA graphs that captured "
        "their calls. Destroy such graphs; another usual reason is a kernel that does not end",
        (unsigned)timeout_ms, (unsigned)left, (unsigned)aside, (unsigned)graphs);
}
