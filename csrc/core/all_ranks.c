/* Blocking calls that all ranks make together. */
#include "csrc/core/all_ranks.h"

#include "csrc/core/deadline.h"
#include "csrc/core/match.h"

/* With TRIB_MATCH: do all ranks call this function? The body itself compares arguments. */
static trib_status match_operation(struct trib_comm *comm, int operation, trib_stream stream)
{
    const struct tri_call call = {.count = 0};
    const struct tri_signature signature = tri_signature(operation, &call, 0);
    if ((comm->flags & TRIB_MATCH) == 0)
        return TRIB_OK;
    const trib_status status = tri_match(comm, &signature, stream);
    return tri_match_done(comm, status); /* the body reports later failures to the others */
}

/* The thread waits for the workspace, which small_allgather uses; the stream does not, because an
 * abort would not end that wait while the caller's work holds the other stream. */
static trib_status run(struct trib_comm *comm, int operation,
                       trib_status (*body)(void *argument, trib_stream stream), void *argument)
{
    const struct tri_device_ops *device = comm->backend->device;
    trib_stream stream = NULL;
    trib_status status = tri_deadline_wait(comm, operation, &comm->workspace);
    if (status == TRIB_OK)
        status = device->stream_create(comm->device, &stream);
    if (status != TRIB_OK) { /* the others wait for this rank */
        (void)tri_abort_raise(comm->state, status, tri_detail());
        return status;
    }
    status = match_operation(comm, operation, stream);
    if (status == TRIB_OK)
        status = body(argument, stream);
    (void)device->stream_destroy(comm->device, stream);
    return status;
}

trib_status tri_all_ranks_run(struct trib_comm *comm, int operation,
                              trib_status (*body)(void *argument, trib_stream stream),
                              void *argument)
{
    struct tri_deadline deadline;
    TRI_TRY(tri_comm_usable(comm, operation));
    TRI_TRY(tri_deadline_begin(&deadline, comm, operation));
    const trib_status status = run(comm, operation, body, argument);
    tri_deadline_end(&deadline);
    return status;
}
