/* What lies in symmetric memory, and where the ranks have theirs. */
#include "csrc/core/reach.h"

#include "csrc/core/operation.h"

static const struct tri_symmetric *find(const struct trib_comm *comm, const void *data,
                                        size_t bytes)
{
    const struct tri_symmetric_ops *ops = comm->backend->transport->symmetric;
    return ops == NULL ? NULL : tri_symmetric_find(*ops->list(comm->transport), data, bytes);
}

trib_status tri_symmetric_query(void **out, struct trib_comm *comm, const void *data, size_t bytes,
                                int32_t rank)
{
    if (rank < 0 || rank >= comm->size)
        return tri_fail_call(comm, TRI_SYMMETRIC_QUERY, TRIB_ERR_INVALID_ARGUMENT,
                             "`rank` is %d; expected 0 to %d", (int)rank, (int)comm->size - 1);
    const struct tri_symmetric *memory = find(comm, data, bytes);
    *out = memory == NULL ? NULL : tri_symmetric_of(memory, data, rank);
    return TRIB_OK;
}

static trib_status check_buffer(const struct trib_comm *comm, int operation,
                                const struct tri_call *call, const char *name, const void *data,
                                bool blocks)
{
    const size_t bytes =
        call->count * trib_dtype_size(call->dtype) * (blocks ? (size_t)comm->size : 1);
    if (find(comm, data, bytes) != NULL)
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                         "`%s` [%p, +%zu bytes) is not symmetric memory of this communicator, as "
                         "variant %s wants: allocate it with trib_symmetric_alloc, or copy "
                         "it with trib_symmetric_import and pass what that returns",
                         name, data, bytes, trib_variant_name(call->variant));
}

/* Does the library of the backend look where the buffers lie, in which all ranks must then be alike? */
static bool has_windows(const struct trib_comm *comm)
{
    return (comm->flags & TRIB_WINDOWS) != 0 && comm->backend->transport->open_window != NULL;
}

trib_status tri_symmetric_check(struct trib_comm *comm, int operation, const struct tri_call *call)
{
    const struct tri_operation *traits = &tri_operations[operation];
    const bool sends = traits->send == TRI_EVERYWHERE || call->peer == comm->rank;
    const bool both = operation == TRI_ALLREDUCE_WITH || has_windows(comm);
    const bool same =
        sends && call->recv == call->send && traits->send_blocks == traits->recv_blocks;
    if (sends)
        TRI_TRY(check_buffer(comm, operation, call, "send", call->send, traits->send_blocks));
    return !both || same
               ? TRIB_OK
               : check_buffer(comm, operation, call, "recv", call->recv, traits->recv_blocks);
}
