/* The deadline of calls that wait for every rank. */
#include "csrc/core/deadline.h"

#include "csrc/base/clock.h"
#include "csrc/core/operation.h"
#include "csrc/core/wait.h"

static uint64_t late(void *context)
{
    const struct tri_deadline *deadline = context;
    const struct trib_comm *comm = deadline->comm;
    const trib_status status = tri_fail(
        TRIB_ERR_TIMEOUT,
        "a rank has not joined, or earlier work kept a stream busy: rank %d has waited for "
        "all ranks in trib_%s for %u ms, the timeout_ms of the communicator's options",
        comm->rank, tri_operations[deadline->operation].name, comm->timeout_ms);
    (void)tri_abort_raise(comm->state, status, tri_detail());
    return 0;
}

trib_status tri_deadline_begin(struct tri_deadline *deadline, struct trib_comm *comm, int operation)
{
    *deadline = (struct tri_deadline){
        .comm = comm,
        .operation = operation,
        .watch = {.look = late,
                  .context = deadline,
                  .deadline_ns = tri_deadline_ns(comm->timeout_ms)},
    };
    const trib_status status = tri_watch_begin(&deadline->watch);
    if (status != TRIB_OK)
        (void)tri_abort_raise(comm->state, status, tri_detail());
    return status;
}

void tri_deadline_end(struct tri_deadline *deadline)
{
    tri_watch_end(&deadline->watch);
}

trib_status tri_deadline_wait(const struct trib_comm *comm, int operation,
                              const struct tri_workspace *workspace)
{
    const uint64_t begin = tri_now_ns();
    bool passed = !workspace->used;
    while (!passed && tri_abort_live(comm->state)) {
        TRI_TRY(workspace->ops->event_query(workspace->device, workspace->event, &passed));
        if (!passed)
            tri_wait_nap(begin, UINT64_MAX);
    }
    return tri_comm_usable(comm, operation);
}
