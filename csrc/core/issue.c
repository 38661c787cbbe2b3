/* Handing work to a backend. */
#include "csrc/core/issue.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/core/operation.h"

trib_status tri_issue_enter(struct trib_comm *comm)
{
    return tri_abort_enter(comm->state) ? TRIB_OK : tri_comm_usable(comm, TRI_NO_OPERATION);
}

trib_status tri_issue_leave(struct trib_comm *comm)
{
    tri_abort_leave(comm->state);
    return tri_abort_live(comm->state) ? TRIB_OK : tri_comm_usable(comm, TRI_NO_OPERATION);
}

/* What a running backend's stream is given: calls and who does them. A collective that fails has
 * raised the state, where the caller finds it. */
struct delivery {
    const struct tri_transport_ops *ops;
    size_t n;
    struct tri_call calls[];
};

enum { FEW_CALLS = 4 };

static void open_delivery(void *argument)
{
    const struct delivery *delivery = argument;
    (void)delivery->ops->collective(delivery->calls, delivery->n);
}

static trib_status submit(struct trib_comm *comm, const struct tri_call *calls, size_t n)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    const size_t bytes = sizeof(struct delivery) + n * sizeof *calls;
    union {
        struct delivery delivery;
        unsigned char room[sizeof(struct delivery) + FEW_CALLS * sizeof *calls];
    } few;
    struct delivery *delivery = n <= FEW_CALLS ? &few.delivery : malloc(bytes);
    if (delivery == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to queue %zu calls", n);
    delivery->ops = ops;
    delivery->n = n;
    memcpy(delivery->calls, calls, n * sizeof *calls);
    const trib_status status =
        ops->submit(comm->transport, open_delivery, delivery, bytes, calls[0].stream);
    if (delivery != &few.delivery)
        free(delivery);
    return status;
}

trib_status tri_issue(struct trib_comm *comm, const struct tri_call *calls, size_t n)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    trib_status status = tri_issue_enter(comm);
    if (status != TRIB_OK)
        return status;
    status = ops->submit == NULL ? ops->collective(calls, n) : submit(comm, calls, n);
    const trib_status after = tri_issue_leave(comm);
    return status != TRIB_OK ? status : after;
}

trib_status tri_issue_group(struct trib_comm *const *comms, const struct tri_call *calls, size_t n)
{
    const struct tri_transport_ops *ops = comms[0]->backend->transport;
    trib_status status = tri_issue_enter(comms[0]);
    if (status != TRIB_OK)
        return status;
    if (ops->submit == NULL) {
        status = ops->collective(calls, n);
    } else {
        size_t i = 0;
        while (i < n && status == TRIB_OK) {
            status = submit(comms[i], &calls[i], 1);
            i += status == TRIB_OK;
        }
        if (status != TRIB_OK && i > 0) /* some ranks have it and others never will */
            (void)tri_abort_raise(comms[0]->state, status, tri_detail());
    }
    const trib_status after = tri_issue_leave(comms[0]);
    return status != TRIB_OK ? status : after;
}

trib_status tri_issue_run(struct trib_comm *comm, void (*function)(void *argument), void *argument,
                          size_t bytes, trib_stream stream)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    trib_status status = tri_issue_enter(comm);
    if (status != TRIB_OK)
        return status;
    if (ops->submit == NULL)
        function(argument);
    else
        status = ops->submit(comm->transport, function, argument, bytes, stream);
    const trib_status after = tri_issue_leave(comm);
    return status != TRIB_OK ? status : after;
}
