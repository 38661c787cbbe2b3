/* The order in which gradients get ready, learnt from the first step. */
#include <stdlib.h>

#include "csrc/base/log.h"
#include "csrc/core/all_ranks.h"
#include "csrc/core/deadline.h"
#include "csrc/core/device.h"
#include "csrc/core/issue.h"
#include "csrc/core/validate.h"
#include "csrc/reducer/agree.h"
#include "csrc/reducer/states.h"

enum { ALIGN = 256 };

/* All memory that this takes, until it is done. */
struct room {
    struct tri_workspace memory; /* of the order, and then of a copy of all views */
    uint64_t *order;
    char *copy;
    trib_tensor *tensors;
    struct tri_gradient_layout next;
    struct trib_sparse **states; /* of its buckets, if there are states */
    size_t *work;
    size_t n; /* gradients: room for as many buckets */
    bool all; /* ranks have it */
};

static size_t order_bytes(const struct trib_reducer *reducer)
{
    return (reducer->n * sizeof(uint64_t) + ALIGN - 1) / ALIGN * ALIGN;
}

static trib_status make_room(struct room *room, const struct trib_reducer *reducer)
{
    const bool views = (reducer->flags & TRIB_REDUCER_VIEWS) != 0;
    room->tensors = calloc(reducer->n, sizeof *room->tensors);
    room->work = calloc(TRI_GRADIENT_WORK * reducer->n, sizeof *room->work);
    room->states = calloc(reducer->n, sizeof *room->states);
    if (!tri_gradient_layout_alloc(&room->next, reducer->n) || room->tensors == NULL ||
        room->work == NULL || room->states == NULL)
        return tri_fail_call(reducer->comm, TRI_REDUCER_FINISH, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory for the order of %zu gradients", reducer->n);
    TRI_TRY(tri_workspace_open(&room->memory, reducer->comm->owner, TRI_NO_STATE,
                               sizeof(struct tri_list_counts)));
    TRI_TRY(tri_workspace_add(&room->memory,
                              order_bytes(reducer) + (views ? reducer->layout.bytes : 0)));
    room->order = room->memory.blocks->data;
    room->copy = (char *)room->memory.blocks->data + order_bytes(reducer);
    return TRIB_OK;
}

/* Only this call has used the device memory, and it has waited; unless the communicator ended. */
static void free_room(struct room *room)
{
    const struct tri_detail_copy why = tri_detail_copy();
    tri_workspace_close(&room->memory);
    if (room->states != NULL)
        tri_reducer_states_discard(room->states, room->n);
    free(room->tensors);
    tri_gradient_layout_free(&room->next);
    free(room->states);
    free(room->work);
    (void)tri_fail(TRIB_OK, "%s", why.text);
}

/* Do all ranks go on? If not, and the communicator lives, the order stays; all ranks know. */
static trib_status go_on(struct room *room, const struct trib_reducer *reducer, trib_status status)
{
    room->all = status == TRIB_OK;
    if (room->all || !tri_abort_live(reducer->comm->state))
        return status;
    tri_log(TRIB_LOG_WARN,
            "%s; so the buckets stay in the order in which the gradients were registered",
            tri_detail());
    return TRIB_OK;
}

/* Gradients that were not ready come last. */
static void complete_order(struct trib_reducer *reducer)
{
    for (size_t i = 0; i < reducer->n; i++)
        if (!reducer->readiness[i].ready)
            reducer->order[reducer->nordered++] = i;
}

static trib_status queue_broadcast(const struct trib_reducer *reducer, struct room *room,
                                   trib_stream stream)
{
    struct trib_comm *comm = reducer->comm;
    const struct tri_call call = {.kind = TRI_BROADCAST,
                                  .transport = reducer->transport,
                                  .send = room->order,
                                  .recv = room->order,
                                  .count = reducer->n,
                                  .dtype = TRIB_U64,
                                  .stream = stream};
    const struct tri_recorded record =
        tri_recorded_of(TRI_REDUCER_FINISH, &(struct tri_call){.count = reducer->n});
    trib_status status = reducer->backend->device->copy(
        reducer->device, room->order, reducer->order, reducer->n * sizeof *reducer->order, stream);
    if (status == TRIB_OK)
        status = tri_issue(comm, &record, &call, 1);
    const trib_status end = tri_workspace_mark(&room->memory, comm->state, stream);
    return status != TRIB_OK ? status : end;
}

/* Every rank gets the order of rank 0. */
static trib_status broadcast(struct trib_reducer *reducer, struct room *room, trib_stream stream)
{
    struct trib_comm *comm = reducer->comm;
    complete_order(reducer);
    TRI_TRY(queue_broadcast(reducer, room, stream));
    comm->backend_calls++;
    TRI_TRY(tri_deadline_wait(comm, TRI_REDUCER_FINISH, &room->memory));
    TRI_TRY(reducer->backend->device->fetch(reducer->device, reducer->order, room->order,
                                            reducer->n * sizeof *reducer->order, stream));
    return tri_comm_usable(comm, TRI_REDUCER_FINISH); /* after an abort it is garbage */
}

/* As they were registered; views as they lie in the copy. */
static void describe(const struct trib_reducer *reducer, const struct room *room)
{
    const struct tri_gradient_layout *layout = &reducer->layout;
    for (size_t i = 0; i < reducer->n; i++) {
        if (layout->gradients[i].bucket == TRI_NO_BUCKET)
            continue;
        const struct tri_slice *slice = &layout->slices[layout->gradients[i].slice];
        void *data = slice->data;
        if ((reducer->flags & TRIB_REDUCER_VIEWS) != 0)
            data = room->copy + ((char *)data - reducer->buckets);
        room->tensors[i] = (trib_tensor){data, slice->count, slice->dtype, 0};
    }
}

/* What the views hold goes to where they are from now on. */
static trib_status fill_views(const struct trib_reducer *reducer)
{
    const trib_stream stream = reducer->stream;
    for (size_t b = 0; b < reducer->layout.nbuckets; b++) {
        const struct tri_gradient_bucket *of = &reducer->layout.buckets[b];
        const struct tri_bucket bucket = tri_reducer_bucket(reducer, reducer->buckets, b);
        TRI_TRY(tri_reducer_zero_bucket(reducer, b, stream));
        TRI_TRY(reducer->backend->kernels->pack(&reducer->layout.slices[of->first], of->n, &bucket,
                                                NULL, stream));
    }
    return reducer->backend->device->stream_wait(reducer->device, stream);
}

/* Views lie in the buckets whatever fails: the copy goes. */
static trib_status move_views(struct trib_reducer *reducer)
{
    uintptr_t previous = 0;
    trib_status status = tri_device_push(reducer->backend, reducer->device, &previous);
    if (status == TRIB_OK) {
        status = fill_views(reducer);
        tri_device_pop(reducer->backend, previous);
    }
    for (size_t b = 0; b < reducer->layout.nbuckets; b++)
        tri_reducer_set_views(reducer, b);
    return status;
}

/* What the views hold, as it is now. */
static trib_status copy_views(const struct trib_reducer *reducer, struct room *room)
{
    const struct tri_device_ops *ops = reducer->backend->device;
    TRI_TRY(ops->copy(reducer->device, room->copy, reducer->buckets, reducer->layout.bytes,
                      reducer->stream));
    return ops->stream_wait(reducer->device, reducer->stream);
}

/* States for the next buckets, which keep what the present ones do. All ranks, or none. */
static trib_status make_states(const struct trib_reducer *reducer, struct room *room)
{
    if (reducer->states == NULL)
        return TRIB_OK;
    TRI_TRY(go_on(room, reducer, tri_reducer_states_create(room->states, reducer, &room->next)));
    return room->all ? tri_reducer_states_move(reducer, room->states, &room->next) : TRIB_OK;
}

/* The states change places: free_room frees those that are left in the room. */
static trib_status install_states(struct trib_reducer *reducer, struct room *room, size_t old)
{
    if (reducer->states == NULL)
        return TRIB_OK;
    for (size_t b = 0; b < reducer->n; b++) {
        struct trib_sparse *const state = b < old ? reducer->states[b] : NULL;
        reducer->states[b] = room->states[b];
        room->states[b] = state;
    }
    return tri_reducer_states_install(reducer);
}

static trib_status install(struct trib_reducer *reducer, struct room *room)
{
    const size_t old = reducer->layout.nbuckets;
    tri_gradient_layout_copy(&reducer->layout, &room->next, reducer->n);
    const trib_status installed = install_states(reducer, room, old);
    const bool views = (reducer->flags & TRIB_REDUCER_VIEWS) != 0;
    const trib_status moved = views ? move_views(reducer) : TRIB_OK;
    return installed != TRIB_OK ? installed : moved;
}

static trib_status lay_out(struct trib_reducer *reducer, struct room *room)
{
    if ((reducer->flags & TRIB_REDUCER_VIEWS) != 0)
        TRI_TRY(copy_views(reducer, room));
    describe(reducer, room);
    (void)tri_gradient_layout_make(&room->next, room->tensors, reducer->n, reducer->order,
                                   &reducer->limits, room->work); /* it fits, as before */
    TRI_TRY(make_states(reducer, room));
    return room->all ? install(reducer, room) : TRIB_OK;
}

/* The arguments of learn_order. */
struct learning {
    struct trib_reducer *reducer;
    struct room *room;
};

static trib_status learn_order(void *argument, trib_stream stream)
{
    const struct learning *learning = argument;
    struct trib_reducer *reducer = learning->reducer;
    TRI_TRY(tri_deadline_wait(reducer->comm, TRI_REDUCER_FINISH, &reducer->memory)); /* the step */
    const trib_status own = make_room(learning->room, reducer);
    TRI_TRY(go_on(learning->room, reducer,
                  tri_reducer_agree(reducer, TRI_REDUCER_FINISH, own, stream)));
    return learning->room->all ? broadcast(reducer, learning->room, stream) : TRIB_OK;
}

trib_status tri_reducer_learn(struct trib_reducer *reducer)
{
    struct room room = {.n = reducer->n};
    struct learning learning = {reducer, &room};
    reducer->learning = false;
    if (reducer->n == 0)
        return TRIB_OK;
    trib_status status =
        tri_all_ranks_run(reducer->comm, TRI_REDUCER_FINISH, learn_order, &learning);
    if (status == TRIB_OK && room.all)
        status = lay_out(reducer, &room);
    free_room(&room);
    return status;
}
