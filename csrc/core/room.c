/* Where a call has its scratch. */
#include "csrc/core/room.h"

uint64_t tri_capture_of(const struct trib_comm *comm, trib_stream stream)
{
    const struct tri_device_ops *device = comm->backend->device;
    return device->capturing == NULL ? 0 : device->capturing(comm->device, stream);
}

trib_status tri_room_capture(struct tri_room *out, struct trib_comm *comm, trib_stream stream,
                             uint64_t capture, size_t bytes)
{
    const struct tri_capturing of = {&comm->captures, comm->owner, comm->state, stream};
    char *data = NULL;
    TRI_TRY(tri_captures_alloc(&data, &out->counts, &of, TRI_SCALARS_BYTES + bytes));
    out->capture = capture;
    out->scalars = (struct tri_workspace_scalars *)(void *)data;
    out->table = NULL;
    out->data = data + TRI_SCALARS_BYTES;
    return TRIB_OK;
}

trib_status tri_room_take(struct tri_room *out, struct trib_comm *comm, trib_stream stream,
                          size_t bytes)
{
    const uint64_t capture = tri_capture_of(comm, stream);
    if (capture != 0)
        return tri_room_capture(out, comm, stream, capture, bytes);
    TRI_TRY(tri_comm_reserve(comm, bytes));
    struct tri_workspace_pinned *pinned = comm->workspace.pinned;
    *out = (struct tri_room){.scalars = tri_workspace_scalars(&comm->workspace),
                             .table = tri_workspace_table(&comm->workspace),
                             .data = tri_workspace_data(&comm->workspace),
                             .counts = &pinned->counts};
    return TRIB_OK;
}

trib_status tri_room_wait(const struct trib_comm *comm, uint64_t capture, trib_stream stream)
{
    return capture != 0 ? TRIB_OK : tri_workspace_wait(&comm->workspace, stream);
}

trib_status tri_room_mark(struct trib_comm *comm, uint64_t capture, trib_stream stream)
{
    return capture != 0 ? TRIB_OK : tri_workspace_mark(&comm->workspace, comm->state, stream);
}
