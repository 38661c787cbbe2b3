/* A few bytes of every rank, on all of them. */
#include "csrc/core/exchange.h"

#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/watch.h"
#include "csrc/core/issue.h"
#include "csrc/core/operation.h"

enum { NAP_NS = 10000, LONGEST_NAP_NS = 1000000 };

/* What goes out is copied from the communicator's own memory, which stays until its last use has ended. */
static trib_status queue(struct trib_comm *comm, const void *own, size_t bytes, trib_stream stream)
{
    const struct tri_device_ops *device = comm->backend->device;
    trib_status status = tri_workspace_reserve(comm, bytes * (size_t)comm->size);
    if (status == TRIB_OK)
        status = tri_workspace_begin(comm, stream);
    if (status != TRIB_OK)
        return status;
    struct tri_workspace_shared *shared = comm->workspace.shared;
    char *area = tri_workspace_data(comm), *slot = area + bytes * (size_t)comm->rank;
    const struct tri_call call = {.kind = TRI_ALLGATHER,
                                  .transport = comm->transport,
                                  .send = slot,
                                  .recv = area,
                                  .count = bytes,
                                  .dtype = TRIB_U8,
                                  .stream = stream};
    memcpy(shared->staged, own, bytes);
    status = device->copy(comm->device, slot, shared->staged, bytes, stream);
    if (status == TRIB_OK)
        status = tri_issue(comm, &call, 1);
    const trib_status end = tri_workspace_end(comm, stream); /* part of it may be queued */
    return status != TRIB_OK ? status : end;
}

/* Until all has run, or the communicator is over. Not in the device's own wait, which an abort reaches
 * only if nothing else holds the stream. */
static trib_status wait(const struct trib_comm *comm)
{
    const struct tri_workspace *workspace = &comm->workspace;
    uint64_t nap = NAP_NS;
    bool passed = false;
    trib_status status = TRIB_OK;
    for (;;) {
        status = workspace->ops->event_query(workspace->device, workspace->event, &passed);
        if (status != TRIB_OK || passed || !tri_abort_live(comm->state))
            return status;
        tri_nap_ns(nap);
        nap = nap < LONGEST_NAP_NS ? 2 * nap : nap;
    }
}

struct meeting {
    struct trib_comm *comm;
    int operation;
};

static void late(void *context)
{
    const struct meeting *meeting = context;
    const struct trib_comm *comm = meeting->comm;
    const trib_status status =
        tri_fail(TRIB_ERR_TIMEOUT,
                 "a rank has not come: rank %d has waited for all of them in trib_%s for %u ms, the "
                 "timeout_ms of the communicator's options",
                 comm->rank, tri_operations[meeting->operation].name, comm->timeout_ms);
    (void)tri_abort_raise(comm->state, status, tri_detail());
}

/* Has every rank's part come to this rank's device? */
static trib_status meet(struct trib_comm *comm, int operation, const void *own, size_t bytes,
                        trib_stream stream)
{
    struct meeting meeting = {comm, operation};
    struct tri_watch watch = {
        .late = late, .context = &meeting, .deadline_ns = tri_deadline_ns(comm->timeout_ms)};
    trib_status status = tri_watch_begin(&watch);
    if (status != TRIB_OK)
        return status;
    status = queue(comm, own, bytes, stream);
    if (status == TRIB_OK)
        status = wait(comm);
    tri_watch_end(&watch);
    return status;
}

trib_status tri_exchange(struct trib_comm *comm, int operation, const void *own, size_t bytes,
                         void *all, trib_stream stream)
{
    trib_status status = tri_comm_usable(comm, operation);
    if (status != TRIB_OK)
        return status;
    status = meet(comm, operation, own, bytes, stream);
    if (status == TRIB_OK && tri_abort_live(comm->state))
        status = comm->backend->device->fetch(comm->device, all, tri_workspace_data(comm),
                                              bytes * (size_t)comm->size, stream);
    comm->engine_calls++;
    if (status != TRIB_OK && tri_abort_raise(comm->state, status, tri_detail()))
        return status;
    return tri_comm_usable(comm, operation); /* an abort leaves garbage, and says what happened */
}
