/* A few bytes of every rank, on all of them. */
#include "csrc/core/small_allgather.h"

#include <string.h>

#include "csrc/core/deadline.h"
#include "csrc/core/issue.h"

/* The bytes are copied from the communicator's pinned memory, which lives until its last use has
 * ended. */
static trib_status queue_allgather(struct trib_comm *comm, int operation, const void *own,
                                   size_t bytes, trib_stream stream)
{
    const struct tri_device_ops *device = comm->backend->device;
    TRI_TRY(tri_comm_reserve(comm, bytes * (size_t)comm->size));
    TRI_TRY(tri_workspace_wait(&comm->workspace, stream));
    struct tri_workspace_pinned *pinned = comm->workspace.pinned;
    char *area = tri_workspace_data(&comm->workspace), *slot = area + bytes * (size_t)comm->rank;
    const struct tri_call call = {.kind = TRI_ALLGATHER,
                                  .transport = comm->transport,
                                  .send = slot,
                                  .recv = area,
                                  .count = bytes,
                                  .dtype = TRIB_U8,
                                  .stream = stream};
    struct tri_recorded record = tri_recorded_of(operation, &call);
    record.count = 0; /* whatever the operation is about, it is not these bytes */
    record.dtype = 0;
    memcpy(pinned->staged, own, bytes);
    trib_status status = device->copy(comm->device, slot, pinned->staged, bytes, stream);
    if (status == TRIB_OK)
        status = tri_issue(comm, &record, &call, 1);
    const trib_status end =
        tri_workspace_mark(&comm->workspace, comm->state, stream); /* part of it may be queued */
    return status != TRIB_OK ? status : end;
}

/* Wait until every rank's part is on this rank's device. */
static trib_status allgather_and_wait(struct trib_comm *comm, int operation, const void *own,
                                      size_t bytes, trib_stream stream)
{
    struct tri_deadline deadline;
    TRI_TRY(tri_deadline_begin(&deadline, comm, operation));
    trib_status status = queue_allgather(comm, operation, own, bytes, stream);
    if (status == TRIB_OK)
        status = tri_deadline_wait(comm, operation, &comm->workspace);
    tri_deadline_end(&deadline);
    return status;
}

trib_status tri_small_allgather(struct trib_comm *comm, int operation, const void *own,
                                size_t bytes, void *all, trib_stream stream)
{
    TRI_TRY(tri_comm_usable(comm, operation));
    trib_status status = allgather_and_wait(comm, operation, own, bytes, stream);
    if (status == TRIB_OK)
        status =
            comm->backend->device->fetch(comm->device, all, tri_workspace_data(&comm->workspace),
                                         bytes * (size_t)comm->size, stream);
    comm->backend_calls++;
    if (status != TRIB_OK && tri_abort_raise(comm->state, status, tri_detail()))
        return status;
    return tri_comm_usable(comm, operation); /* after an abort `all` is garbage */
}
