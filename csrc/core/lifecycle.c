/* The beginning and the end of a communicator. */
#include "csrc/core/lifecycle.h"

#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/line.h"
#include "csrc/base/log.h"
#include "csrc/base/process.h"
#include "csrc/base/stopped.h"
#include "csrc/core/batch.h"
#include "csrc/core/device.h"
#include "csrc/core/introduce.h"
#include "csrc/core/issue.h"
#include "csrc/core/match.h"
#include "csrc/core/operation.h"
#include "csrc/core/placement.h"
#include "csrc/core/remote.h"
#include "csrc/core/share.h"
#include "csrc/core/symmetric.h"
#include "csrc/core/watchdog.h"

enum {
    FIRST_BATCH = 8,   /* calls that a batch records before it grows */
    DRAIN_NS = 2000000 /* 2 ms for work that has probably just ended */
};

trib_status tri_comm_prepare(struct trib_comm **out, const struct tri_backend *backend,
                             int32_t device, int32_t max_size, const struct tri_settings *settings)
{
    tri_process_use();
    (void)tri_workspace_sweep();
    *out = NULL;
    uint32_t flags = settings->flags;
    if ((flags & TRIB_UNRECORDED) == 0)
        TRI_TRY(tri_watchdog_start());
    if ((flags & TRIB_COMPARED) != 0 && !backend->compares)
        flags |= TRIB_MATCH;
    struct trib_comm *comm = tri_line_calloc(sizeof *comm);
    if (comm != NULL) {
        comm->batch.calls = calloc(FIRST_BATCH, sizeof *comm->batch.calls);
        comm->batch.capacity = FIRST_BATCH;
        comm->owner = tri_owner_create(backend, device);
        if ((flags & TRIB_UNRECORDED) == 0)
            comm->recorder = tri_recorder_create(comm);
        if ((flags & TRIB_MATCH) != 0)
            comm->signatures = calloc((size_t)max_size, sizeof *comm->signatures);
    }
    if (comm == NULL || comm->batch.calls == NULL || comm->owner == NULL ||
        ((flags & TRIB_MATCH) != 0 && comm->signatures == NULL) ||
        ((flags & TRIB_UNRECORDED) == 0 && comm->recorder == NULL)) {
        tri_comm_discard(comm);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for a communicator");
    }
    comm->backend = backend;
    comm->device = device;
    comm->flags = flags;
    comm->timeout_ms = settings->timeout_ms;
    comm->close_timeout_ms = settings->close_timeout_ms;
    comm->config = settings->config;
    tri_comm_set_call_timeout(comm, settings->call_timeout_ms, (flags & TRIB_TIMED) != 0);
    *out = comm;
    return TRIB_OK;
}

void tri_comm_attach(struct trib_comm *comm, struct tri_transport *transport, uint64_t identity)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    comm->transport = transport;
    comm->state = tri_abort_retain(ops->abort_state(transport));
    comm->rank = ops->rank(transport);
    comm->size = ops->size(transport);
    comm->identity = identity;
    tri_owner_name(comm->owner, identity, comm->rank);
    tri_comm_count_peers(comm);
    tri_placement_begin(comm);
    tri_watchdog_begin(comm);
}

/* With the ranks of other processes. */
static trib_status introduce(struct trib_comm *comm, int operation, uint64_t deadline_ns)
{
    struct tri_making making;
    if (comm->backend->transport->here(comm->transport) >= comm->size)
        return TRIB_OK;
    trib_status status = tri_making_begin(&making, comm, operation, deadline_ns);
    if (status == TRIB_OK)
        status = tri_introduce(&making);
    if (status == TRIB_OK)
        status = tri_share(&making);
    if (status == TRIB_OK)
        status = tri_symmetric_bring(&making);
    tri_making_end(&making);
    return status == TRIB_OK ? TRIB_OK : tri_comm_usable(comm, operation);
}

trib_status tri_comm_introduce(struct trib_comm *comm, int operation, uint64_t deadline_ns)
{
    const trib_status status = introduce(comm, operation, deadline_ns);
    if (status == TRIB_OK)
        return TRIB_OK;
    const struct tri_detail_copy why = tri_detail_copy();
    (void)tri_comm_destroy(comm);
    return tri_fail(status, "%s", why.text);
}

void tri_comm_discard(struct trib_comm *comm)
{
    if (comm == NULL)
        return;
    free(comm->batch.calls);
    free(comm->batch.copies);
    free(comm->signatures);
    free(comm->recorder);
    free(comm->scratch);
    free(comm->last_list);
    tri_captures_release(comm->captures);
    if (comm->owner != NULL)
        tri_owner_peers(comm->owner, 0);
    tri_owner_release(comm->owner);
    free(comm);
}

/* The backend that made `id`. The search starts at the end of the table: see backends.c. */
static const struct tri_backend *backend_of(const trib_id *id)
{
    size_t n = 0;
    while (tri_backends[n] != NULL)
        n++;
    while (n-- > 0)
        if (tri_backends[n]->transport->id_is_mine(id))
            return tri_backends[n];
    return NULL;
}

trib_status tri_id_create(trib_id *out, const char *name)
{
    const struct tri_backend *backend = NULL;
    TRI_TRY(name == NULL ? tri_backend_with(&backend, 0) : tri_backend_get(&backend, name));
    TRI_TRY(tri_backend_has(backend, 0));
    return backend->transport->id_create(out);
}

static trib_status check_create(const struct tri_backend **out, const trib_id *id, int32_t rank,
                                int32_t size, int32_t device, const struct tri_settings *settings)
{
    if (size < 1)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_comm_create: `size` is %d; expected 1 or more", size);
    if (rank < 0 || rank >= size)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_comm_create: `rank` is %d; expected 0 to %d, each once", rank,
                        size - 1);
    *out = backend_of(id);
    if (*out == NULL)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_comm_create: no backend of this build made `id`: pass the 128 bytes "
                        "of a trib_id_create unchanged");
    if (settings->backend != NULL && settings->backend != *out)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_comm_create: options.backend is \"%s\", but \"%s\" made `id`: pass "
                        "NULL, or make the id with trib_id_create(\"%s\")",
                        settings->backend->name, (*out)->name, settings->backend->name);
    return tri_backend_has(*out, device);
}

trib_status tri_comm_create(struct trib_comm **out, const trib_id *id, int32_t rank, int32_t size,
                            int32_t device, const trib_options *options)
{
    struct tri_settings settings;
    const struct tri_backend *backend = NULL;
    struct trib_comm *comm = NULL;
    TRI_TRY(tri_settings_read(&settings, "trib_comm_create", options));
    TRI_TRY(check_create(&backend, id, rank, size, device, &settings));
    TRI_TRY(tri_comm_prepare(&comm, backend, device, size, &settings));
    struct tri_transport *transport = NULL;
    const uint64_t deadline_ns = tri_deadline_ns(settings.timeout_ms);
    const trib_status status = backend->transport->open(&transport, id, rank, size, device,
                                                        &comm->config, settings.timeout_ms);
    if (status != TRIB_OK) {
        tri_comm_discard(comm);
        return status;
    }
    tri_comm_attach(comm, transport, tri_digest(0, id, sizeof *id));
    comm->id = *id;
    TRI_TRY(tri_comm_introduce(comm, TRI_CREATE, deadline_ns));
    *out = comm;
    return TRIB_OK;
}

static trib_status check_split(const struct trib_comm *comm, int32_t color)
{
    TRI_TRY(tri_comm_usable(comm, TRI_SPLIT));
    if (comm->batch.open)
        return tri_fail(TRIB_ERR_INVALID_USAGE,
                        "trib_comm_split on rank %d: inside a batch; call trib_batch_end first",
                        comm->rank);
    if (color < TRIB_NO_COLOR)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_comm_split on rank %d: `color` is %d; expected 0 or more, or "
                        "TRIB_NO_COLOR",
                        comm->rank, color);
    return TRIB_OK;
}

/* An abort of the parent has overtaken the split. Ranks of the child that have theirs already must
 * not wait for this one. */
static void give_up_child(struct tri_transport **child, const struct trib_comm *comm)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    if (*child == NULL)
        return;
    (void)tri_abort_raise(ops->abort_state(*child), TRIB_ERR_ABORTED,
                          "the parent was aborted before the split had returned on every rank");
    (void)ops->close(*child, 0);
    ops->destroy(*child);
    *child = NULL;
}

/* If the parent is no longer usable, the result is why: a mistake would not be this call's. */
static trib_status split_transport(struct tri_transport **out, struct trib_comm *comm,
                                   int32_t color, int32_t key)
{
    TRI_TRY(tri_issue_register(comm));
    const trib_status status = comm->backend->transport->split(out, comm->transport, color, key,
                                                               &comm->config, comm->timeout_ms);
    tri_abort_unregister(comm->state);
    if (tri_abort_live(comm->state) || (status != TRIB_OK && !tri_is_mistake(status)))
        return status;
    give_up_child(out, comm);
    return tri_comm_usable(comm, TRI_SPLIT);
}

static void end_child(void *state, bool relayed)
{
    (void)relayed;
    (void)tri_abort_raise(state, TRIB_ERR_ABORTED,
                          "the parent was aborted before the split had returned on every rank");
}

/* An abort of the parent ends the wait for the child's other ranks. */
static trib_status introduce_child(struct trib_comm *child, const struct trib_comm *comm,
                                   uint64_t deadline_ns)
{
    if (child->backend->transport->here(child->transport) >= child->size)
        return TRIB_OK;
    struct trib_abort *state = tri_abort_retain(child->state); /* a failure frees the child */
    struct tri_abort_observer observer = {.raised = end_child, .context = state};
    tri_abort_observe(comm->state, &observer);
    const trib_status status = tri_comm_introduce(child, TRI_SPLIT, deadline_ns);
    tri_abort_unobserve(comm->state, &observer);
    tri_abort_release(state);
    if (status != TRIB_OK || tri_abort_live(comm->state))
        return status;
    (void)tri_comm_destroy(child);
    return tri_comm_usable(comm, TRI_SPLIT);
}

trib_status tri_comm_split_as(struct trib_comm **out, struct trib_comm *comm, int32_t color,
                              int32_t key, const struct tri_settings *settings)
{
    struct trib_comm *child = NULL;
    *out = NULL;
    TRI_TRY(check_split(comm, color));
    TRI_TRY(tri_comm_prepare(&child, comm->backend, comm->device, comm->size, settings));
    struct tri_transport *transport = NULL;
    const uint32_t which[2] = {comm->splits++, (uint32_t)color};
    const uint64_t identity = tri_digest(comm->identity, which, sizeof which);
    const uint64_t deadline_ns = tri_deadline_ns(comm->timeout_ms);
    const trib_status status = split_transport(&transport, comm, color, key);
    if (status != TRIB_OK || transport == NULL) {
        tri_comm_discard(child);
        return status;
    }
    tri_comm_attach(child, transport, identity);
    child->id = comm->id;
    TRI_TRY(introduce_child(child, comm, deadline_ns));
    *out = child;
    return TRIB_OK;
}

trib_status tri_comm_split(struct trib_comm **out, struct trib_comm *comm, int32_t color,
                           int32_t key)
{
    const struct tri_settings settings = tri_settings_of(comm);
    return tri_comm_split_as(out, comm, color, key, &settings);
}

trib_status tri_comm_close(struct trib_comm *comm, uint32_t timeout_ms)
{
    if (comm->closed)
        return tri_comm_usable(comm, TRI_NO_OPERATION);
    comm->closed = true;
    tri_watchdog_end(comm);
    tri_batch_drop(comm);
    const uint64_t deadline_ns = tri_deadline_ns(timeout_ms);
    trib_status status = comm->backend->transport->close(comm->transport, timeout_ms);
    if (comm->close_insides != NULL) {
        const trib_status inside = comm->close_insides(comm, deadline_ns);
        status = status == TRIB_OK ? inside : status;
    }
    /* If this is the last rank to close, the backend has waited, and a list's steps after its
     * collectives are about to end. Otherwise they may stay queued for long, and this waits in
     * vain. */
    if (status == TRIB_OK && tri_abort_live(comm->state))
        tri_workspace_drain(&comm->workspace, timeout_ms == 0 ? 0 : DRAIN_NS);
    tri_remote_close(comm->remote);
    comm->remote = NULL;
    return status;
}

/* A list writes its tensors behind its calls, for which alone the backend waits. */
static void part_with_symmetric(struct trib_comm *comm)
{
    const struct tri_symmetric_ops *ops = comm->backend->transport->symmetric;
    if (ops == NULL || ops->keep == NULL || *ops->list(comm->transport) == NULL)
        return;
    if (tri_workspace_await(&comm->workspace, tri_deadline_ns(TRI_RUN_OUT_MS)))
        return;
    ops->keep(comm->transport);
    tri_log(TRIB_LOG_WARN,
            "symmetric memory of rank %d on device %d is never freed: its last list has not ended",
            (int)comm->rank, (int)comm->device);
}

trib_status tri_comm_destroy(struct trib_comm *comm)
{
    const trib_status status =
        comm->closed ? TRIB_OK : tri_comm_close(comm, comm->close_timeout_ms);
    part_with_symmetric(comm);
    tri_workspace_close(&comm->workspace);
    (void)tri_workspace_sweep();
    (void)comm->backend->device->event_destroy(comm->device, comm->waited);
    comm->backend->transport->destroy(comm->transport);
    tri_abort_release(comm->state);
    tri_comm_discard(comm);
    /* The caller wants the end of a communicator that is over already. */
    return status == TRIB_ERR_ABORTED || status == TRIB_ERR_CLOSED ? TRIB_OK : status;
}
