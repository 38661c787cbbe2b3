/* One rank of one communicator. */
#include "csrc/core/communicator.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "csrc/core/operation.h"

#undef tri_fail_call /* the analyzer's */
trib_status tri_fail_call(const struct trib_comm *comm, int operation, trib_status status,
                          const char *format, ...)
{
    char text[TRI_DETAIL_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tri_fail(status, "trib_%s on rank %d (device %d of %s): %s",
                    tri_operations[operation].name, comm->rank, comm->device, comm->backend->name,
                    text);
}

bool tri_is_mistake(trib_status status)
{
    return status != TRIB_OK && status < TRIB_ERR_ABORTED;
}

/* The state's detail says what happened; this adds rank and operation, and what to do. */
static trib_status explain(const struct trib_comm *comm, int operation, trib_status status,
                           const char *what)
{
    char why[TRI_DETAIL_SIZE];
    (void)snprintf(why, sizeof why, "%.*s", TRI_DETAIL_SIZE - 160, what);
    if (operation == TRI_NO_OPERATION)
        return tri_fail(status, "rank %d (device %d of %s): %s", comm->rank, comm->device,
                        comm->backend->name, why);
    return tri_fail_call(comm, operation, status,
                         "%s; make a new communicator, or with trib_comm_shrink one of the "
                         "ranks that are left",
                         why);
}

/* `cause`: return what ended the communicator even if that was a mistake. */
static trib_status usable(const struct trib_comm *comm, int operation, bool cause)
{
    if (comm->closed)
        return explain(comm, operation, TRIB_ERR_CLOSED, "the communicator has been closed");
    if (tri_abort_live(comm->state))
        return TRIB_OK;
    const trib_status status = tri_abort_status(comm->state);
    return explain(comm, operation, tri_is_mistake(status) && !cause ? TRIB_ERR_ABORTED : status,
                   tri_detail());
}

trib_status tri_comm_usable(const struct trib_comm *comm, int operation)
{
    return usable(comm, operation, false);
}

struct tri_comm_label tri_comm_label(const struct trib_comm *comm)
{
    struct tri_comm_label label;
    const bool named = comm->config.name[0] != '\0';
    (void)snprintf(label.text, sizeof label.text, named ? "%016" PRIx64 " \"%s\"" : "%016" PRIx64,
                   comm->identity, comm->config.name);
    return label;
}

trib_status tri_comm_status(struct trib_comm *comm)
{
    if (!comm->closed && comm->backend->transport->poll != NULL)
        comm->backend->transport->poll(comm->transport);
    if (!comm->closed && comm->insides != NULL)
        (void)tri_abort_ask(comm->state); /* and its parts */
    return usable(comm, TRI_NO_OPERATION, true);
}

void tri_comm_counters(trib_counters *out, struct trib_comm *comm)
{
    out->reserved = 0;
    out->calls = comm->calls;
    out->bytes = comm->bytes;
    out->backend_calls = comm->backend_calls;
    out->workspace_bytes = comm->workspace.held;
    out->lists_queued = comm->lists_queued;
    const struct tri_list_counts lists = tri_workspace_lists(&comm->workspace);
    const struct tri_list_counts captured = tri_captures_lists(comm->captures);
    out->lists_committed = (uint64_t)lists.committed + captured.committed;
    out->lists_refused = (uint64_t)lists.refused + captured.refused;
    const struct tri_transport_ops *ops = comm->backend->transport;
    out->staged_calls = ops->staged == NULL ? 0 : ops->staged(comm->transport);
}

void tri_comm_set_call_timeout(struct trib_comm *comm, uint32_t timeout_ms, bool timed)
{
    comm->call_timeout_ms = timeout_ms == 0 ? TRI_CALL_TIMEOUT_MS : timeout_ms;
    comm->timed = timed;
}

void tri_comm_count_peers(const struct trib_comm *comm)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    if (ops->peer_bytes == NULL || !tri_abort_register(comm->state))
        return; /* after an abort the backend frees what it would count */
    tri_owner_peers(comm->owner, ops->peer_bytes(comm->transport));
    tri_abort_unregister(comm->state);
}

trib_status tri_comm_reserve(struct trib_comm *comm, size_t bytes)
{
    return tri_workspace_reserve(&comm->workspace, comm->owner, bytes);
}

void *tri_comm_scratch(struct trib_comm *comm, size_t bytes)
{
    if (bytes > comm->scratch_bytes) {
        void *scratch = malloc(bytes + bytes / 2);
        if (scratch == NULL)
            return NULL;
        free(comm->scratch);
        comm->scratch = scratch;
        comm->scratch_bytes = bytes + bytes / 2;
    }
    return comm->scratch;
}
