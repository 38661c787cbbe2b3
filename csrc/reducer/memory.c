/* A reducer's memory. */
#include "csrc/reducer/memory.h"

#include "csrc/core/device.h"
#include "csrc/core/operation.h"
#include "csrc/core/symmetric.h"

enum { ALIGN = 256 };

/* Of the states' words: there are no more buckets than gradients. */
static size_t calls_bytes(const struct trib_reducer *reducer)
{
    const size_t bytes = reducer->n * sizeof(struct tri_revocable);
    return reducer->states == NULL ? 0 : (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Of the buckets, or of as many twins. */
static size_t set_bytes(const struct trib_reducer *reducer)
{
    return reducer->learning ? reducer->layout.most : reducer->layout.bytes;
}

static size_t buckets_bytes(const struct trib_reducer *reducer)
{
    return ((reducer->flags & TRIB_REDUCER_TWINS) != 0 ? 2 : 1) * set_bytes(reducer);
}

/* Does symmetric memory serve any bucket? The same on all ranks. Those of a sparse reducer are no buffers of a
 * collective, and those in place are the caller's. */
static bool serves_any(const struct trib_reducer *reducer)
{
    const struct tri_gradient_layout *layout = &reducer->layout;
    bool any = false;
    for (size_t b = 0; reducer->states == NULL && b < layout->nbuckets && !any; b++)
        any =
            layout->buckets[b].data == NULL &&
            tri_symmetric_serves(reducer->comm, layout->buckets[b].count, layout->buckets[b].dtype);
    return any;
}

static void place_buckets(struct trib_reducer *reducer, char *buckets)
{
    const bool twins = (reducer->flags & TRIB_REDUCER_TWINS) != 0;
    reducer->buckets = buckets;
    reducer->twins = twins ? buckets + set_bytes(reducer) : NULL;
}

/* `shares`: but for the buckets. */
static trib_status allocate(struct trib_reducer *reducer, bool shares)
{
    const size_t calls = calls_bytes(reducer);
    const struct tri_device_ops *ops = reducer->backend->device;
    TRI_TRY(tri_workspace_open(&reducer->memory, reducer->comm->owner, TRI_NO_STATE,
                               sizeof(struct tri_list_counts)));
    TRI_TRY(
        tri_workspace_add(&reducer->memory, ALIGN + calls + (shares ? 0 : buckets_bytes(reducer))));
    reducer->counts = reducer->memory.pinned;
    reducer->scalars = reducer->memory.blocks->data;
    reducer->calls = (struct tri_revocable *)(void *)((char *)reducer->memory.blocks->data + ALIGN);
    if (!shares)
        place_buckets(reducer, (char *)reducer->memory.blocks->data + ALIGN + calls);
    TRI_TRY(ops->event_create(reducer->device, &reducer->event));
    return ops->stream_create(reducer->device, &reducer->stream);
}

/* Views begin at 0, padding included. */
static trib_status clear_buckets(struct trib_reducer *reducer)
{
    const struct tri_reducer_scalars scalars = {.one = 1};
    const struct tri_device_ops *ops = reducer->backend->device;
    TRI_TRY(
        ops->fetch(reducer->device, reducer->scalars, &scalars, sizeof scalars, reducer->stream));
    for (size_t b = 0; (reducer->flags & TRIB_REDUCER_VIEWS) != 0 && b < reducer->layout.nbuckets;
         b++) {
        TRI_TRY(tri_reducer_zero_bucket(reducer, b, reducer->stream));
        tri_reducer_set_views(reducer, b);
    }
    return ops->stream_wait(reducer->device, reducer->stream);
}

static trib_status clear(struct trib_reducer *reducer)
{
    uintptr_t previous = 0;
    TRI_TRY(tri_device_push(reducer->backend, reducer->device, &previous));
    const trib_status status = clear_buckets(reducer);
    tri_device_pop(reducer->backend, previous);
    return status;
}

trib_status tri_reducer_allocate(struct trib_reducer *reducer)
{
    const bool shares = serves_any(reducer);
    TRI_TRY(allocate(reducer, shares));
    return shares ? TRIB_OK : clear(reducer);
}

trib_status tri_reducer_share(struct trib_reducer *reducer, trib_stream stream)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.*): no rank has failed, so there is one */
    struct trib_comm *comm = reducer->comm;
    if (reducer->buckets != NULL)
        return TRIB_OK;
    TRI_TRY(tri_symmetric_make(&reducer->near, comm, TRI_REDUCER_CREATE, buckets_bytes(reducer),
                               stream));
    place_buckets(reducer, reducer->near->of[comm->rank].here);
    const trib_status status = clear(reducer);
    if (status != TRIB_OK) /* the others have their reducers */
        (void)tri_abort_raise(comm->state, status, tri_detail());
    return status;
}
