/* A few bytes of every rank, on all of them. */
#include "csrc/core/exchange.h"

#include <string.h>

#include "csrc/core/issue.h"
#include "csrc/core/meeting.h"

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

/* Has every rank's part come to this rank's device? */
static trib_status meet(struct trib_comm *comm, int operation, const void *own, size_t bytes,
                        trib_stream stream)
{
    struct tri_meeting meeting;
    trib_status status = tri_meeting_begin(&meeting, comm, operation);
    if (status != TRIB_OK)
        return status;
    status = queue(comm, own, bytes, stream);
    if (status == TRIB_OK)
        status = tri_meeting_wait(comm, operation, &comm->workspace);
    tri_meeting_end(&meeting);
    return status;
}

trib_status tri_exchange(struct trib_comm *comm, int operation, const void *own, size_t bytes,
                         void *all, trib_stream stream)
{
    trib_status status = tri_comm_usable(comm, operation);
    if (status != TRIB_OK)
        return status;
    status = meet(comm, operation, own, bytes, stream);
    if (status == TRIB_OK)
        status = comm->backend->device->fetch(comm->device, all, tri_workspace_data(comm),
                                              bytes * (size_t)comm->size, stream);
    comm->engine_calls++;
    if (status != TRIB_OK && tri_abort_raise(comm->state, status, tri_detail()))
        return status;
    return tri_comm_usable(comm, operation); /* an abort leaves garbage, and says what happened */
}
