/* Where a call has its scratch. */
#include "csrc/core/room.h"

#include <stdlib.h>

#include "csrc/base/lock.h"

/* The captured calls of one communicator that have memory. Their graphs may outlive it. */
struct tri_captures {
    struct tri_lock lock; /* guards the rest. Held during no call of a backend */
    uint32_t references;  /* the communicator's, and one for each call */
    struct captured *first;
    struct tri_list_counts gone; /* of calls whose graphs are gone */
};

/* What one captured call owns. */
struct captured {
    struct tri_captures *of;
    struct captured *next, **before;
    struct tri_block *block, *cell; /* the cell: struct tri_list_counts */
    struct trib_abort *state;       /* replays read its abort flag */
};

static struct tri_captures *captures_of(struct trib_comm *comm)
{
    if (comm->captures == NULL && (comm->captures = calloc(1, sizeof *comm->captures)) != NULL) {
        tri_lock_init(&comm->captures->lock);
        comm->captures->references = 1;
    }
    return comm->captures;
}

void tri_captures_release(struct tri_captures *captures)
{
    if (captures == NULL)
        return;
    tri_lock(&captures->lock);
    const bool last = --captures->references == 0;
    tri_unlock(&captures->lock);
    if (last)
        free(captures);
}

static struct tri_list_counts counts_of(const struct tri_block *cell)
{
    const struct tri_list_counts *counts = cell->data;
    return (struct tri_list_counts){.committed =
                                        __atomic_load_n(&counts->committed, __ATOMIC_ACQUIRE),
                                    .refused = __atomic_load_n(&counts->refused, __ATOMIC_ACQUIRE)};
}

static void add_counts(struct tri_list_counts *sum, struct tri_list_counts counts)
{
    sum->committed += counts.committed;
    sum->refused += counts.refused;
}

static void enlist(struct captured *call, struct tri_captures *captures)
{
    tri_lock(&captures->lock);
    captures->references++;
    call->of = captures;
    call->next = captures->first;
    call->before = &captures->first;
    if (call->next != NULL)
        call->next->before = &call->next;
    captures->first = call;
    tri_unlock(&captures->lock);
}

/* The graph is gone, on a thread of CUDA's. Frees without a call of CUDA's: see tri_memory_free. */
static void drop(void *argument)
{
    struct captured *call = argument;
    struct tri_captures *captures = call->of;
    tri_lock(&captures->lock);
    *call->before = call->next;
    if (call->next != NULL)
        call->next->before = call->before;
    add_counts(&captures->gone, counts_of(call->cell));
    tri_unlock(&captures->lock);
    tri_memory_free(call->block);
    tri_memory_free(call->cell);
    tri_abort_release(call->state);
    tri_captures_release(captures);
    free(call);
}

static trib_status allocate(struct captured *call, struct trib_comm *comm, size_t bytes)
{
    TRI_TRY(tri_memory_alloc(&call->block, comm->owner, TRI_NO_STATE, bytes));
    const trib_status status = tri_memory_alloc_pinned(&call->cell, comm->owner, TRI_NO_STATE,
                                                       sizeof(struct tri_list_counts));
    if (status != TRIB_OK)
        tri_memory_free(call->block);
    return status;
}

uint64_t tri_capture_of(const struct trib_comm *comm, trib_stream stream)
{
    const struct tri_device_ops *device = comm->backend->device;
    return device->capturing == NULL ? 0 : device->capturing(comm->device, stream);
}

trib_status tri_room_capture(struct tri_room *out, struct trib_comm *comm, trib_stream stream,
                             uint64_t capture, size_t bytes)
{
    struct tri_captures *captures = captures_of(comm);
    struct captured *call = calloc(1, sizeof *call);
    if (captures == NULL || call == NULL) {
        free(call);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to describe a captured call");
    }
    const trib_status status = allocate(call, comm, TRI_SCALARS_BYTES + bytes);
    if (status != TRIB_OK) {
        free(call);
        return status;
    }
    call->state = tri_abort_retain(comm->state);
    enlist(call, captures);
    *out = (struct tri_room){.capture = capture,
                             .scalars = call->block->data,
                             .data = (char *)call->block->data + TRI_SCALARS_BYTES,
                             .counts = call->cell->data};
    return comm->backend->device->keep(comm->device, stream, drop, call);
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

struct tri_list_counts tri_room_lists(const struct trib_comm *comm)
{
    struct tri_list_counts sum = tri_workspace_lists(&comm->workspace);
    struct tri_captures *captures = comm->captures;
    if (captures == NULL)
        return sum;
    tri_lock(&captures->lock);
    add_counts(&sum, captures->gone);
    for (const struct captured *call = captures->first; call != NULL; call = call->next)
        add_counts(&sum, counts_of(call->cell));
    tri_unlock(&captures->lock);
    return sum;
}
