/* Handing work to the backend. */
#include "csrc/core/issue.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/core/operation.h"

trib_status tri_issue_register(struct trib_comm *comm)
{
    return tri_abort_register(comm->state) ? TRIB_OK : tri_comm_usable(comm, TRI_NO_OPERATION);
}

trib_status tri_issue_unregister(struct trib_comm *comm)
{
    tri_abort_unregister(comm->state);
    return tri_abort_live(comm->state) ? TRIB_OK : tri_comm_usable(comm, TRI_NO_OPERATION);
}

/* The calls that a host-executed backend runs on its stream. A collective that fails has raised the
 * state, where the caller finds it. */
struct submission {
    const struct tri_transport_ops *ops;
    size_t n;
    struct tri_call calls[];
};

enum { FEW_CALLS = 4 };

static void run_submission(void *argument)
{
    const struct submission *submission = argument;
    (void)submission->ops->collective(submission->calls, submission->n);
}

static trib_status submit(struct trib_comm *comm, const struct tri_call *calls, size_t n)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    const size_t bytes = sizeof(struct submission) + n * sizeof *calls;
    union {
        struct submission submission;
        unsigned char room[sizeof(struct submission) + FEW_CALLS * sizeof *calls];
    } few;
    struct submission *submission = n <= FEW_CALLS ? &few.submission : malloc(bytes);
    if (submission == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to queue %zu calls", n);
    submission->ops = ops;
    submission->n = n;
    memcpy(submission->calls, calls, n * sizeof *calls);
    const trib_status status =
        ops->submit(comm->transport, run_submission, submission, bytes, calls[0].stream);
    if (submission != &few.submission)
        free(submission);
    return status;
}

trib_status tri_issue(struct trib_comm *comm, const struct tri_call *calls, size_t n)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    TRI_TRY(tri_issue_register(comm));
    trib_status status = ops->submit == NULL ? ops->collective(calls, n) : submit(comm, calls, n);
    const trib_status after = tri_issue_unregister(comm);
    return status != TRIB_OK ? status : after;
}

/* Every rank's call by itself. */
static trib_status submit_each(struct trib_comm *const *comms, const struct tri_call *calls,
                               size_t n)
{
    trib_status status = TRIB_OK;
    size_t i = 0;
    while (i < n && status == TRIB_OK) {
        status = submit(comms[i], &calls[i], 1);
        i += status == TRIB_OK;
    }
    if (status != TRIB_OK && i > 0) /* some ranks have it and others never will */
        (void)tri_abort_raise(comms[0]->state, status, tri_detail());
    return status;
}

trib_status tri_issue_group(struct trib_comm *const *comms, const struct tri_call *calls, size_t n)
{
    const struct tri_transport_ops *ops = comms[0]->backend->transport;
    TRI_TRY(tri_issue_register(comms[0]));
    const trib_status status =
        ops->submit == NULL ? ops->collective(calls, n) : submit_each(comms, calls, n);
    const trib_status after = tri_issue_unregister(comms[0]);
    return status != TRIB_OK ? status : after;
}

trib_status tri_issue_run(struct trib_comm *comm, void (*function)(void *argument), void *argument,
                          size_t bytes, trib_stream stream)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    trib_status status = TRIB_OK;
    TRI_TRY(tri_issue_register(comm));
    if (ops->submit == NULL)
        function(argument);
    else
        status = ops->submit(comm->transport, function, argument, bytes, stream);
    const trib_status after = tri_issue_unregister(comm);
    return status != TRIB_OK ? status : after;
}
