/* The deadline of calls that wait for every rank. */
#include "csrc/core/deadline.h"

#include <stdio.h>

#include "csrc/base/clock.h"
#include "csrc/core/operation.h"
#include "csrc/core/wait.h"
#include "csrc/core/watchdog.h"

/* What of the deadline is known without a recorder. */
static void describe(char out[TRI_DETAIL_SIZE], const struct tri_deadline *deadline)
{
    const struct trib_comm *comm = deadline->comm;
    (void)snprintf(out, TRI_DETAIL_SIZE,
                   "a rank has not joined, or earlier work kept a stream busy: rank %d has waited "
                   "for all ranks in trib_%s for %u ms, the timeout_ms of the communicator's "
                   "options",
                   comm->rank, tri_operations[deadline->operation].name, comm->timeout_ms);
}

/* What the sentence says that follows: in which call the rank waits. That may be the exchange
 * itself, which is recorded under the name of the operation. */
static void introduce(char out[TRI_DETAIL_SIZE], const struct tri_deadline *deadline)
{
    const struct trib_comm *comm = deadline->comm;
    (void)snprintf(out, TRI_DETAIL_SIZE,
                   "in trib_%s the ranks exchange a few bytes first, and %u ms, the timeout_ms of "
                   "the communicator's options, were not enough: ",
                   tri_operations[deadline->operation].name, comm->timeout_ms);
}

static uint64_t late(void *context)
{
    struct tri_deadline *deadline = context;
    struct trib_comm *comm = deadline->comm;
    char why[TRI_DETAIL_SIZE], otherwise[TRI_DETAIL_SIZE];
    introduce(why, deadline);
    describe(otherwise, deadline);
    if (comm->recorder != NULL)
        return tri_watchdog_blocked(comm, why, otherwise, deadline->due_ns);
    if (tri_abort_raise(comm->state, TRIB_ERR_TIMEOUT, otherwise) &&
        comm->backend->transport->diagnose != NULL)
        comm->backend->transport->diagnose(comm->transport);
    return 0;
}

trib_status tri_deadline_begin(struct tri_deadline *deadline, struct trib_comm *comm, int operation)
{
    *deadline = (struct tri_deadline){
        .comm = comm, .operation = operation, .due_ns = tri_deadline_ns(comm->timeout_ms)};
    deadline->watch =
        (struct tri_watch){.look = late, .context = deadline, .deadline_ns = deadline->due_ns};
    const trib_status status = tri_watch_begin(&deadline->watch);
    if (status != TRIB_OK)
        (void)tri_abort_raise(comm->state, status, tri_detail());
    if (status == TRIB_OK) {
        deadline->call_timeout_ms = comm->call_timeout_ms;
        comm->call_timeout_ms = TRIB_NO_TIMEOUT;
    }
    return status;
}

void tri_deadline_end(struct tri_deadline *deadline)
{
    tri_watch_end(&deadline->watch);
    deadline->comm->call_timeout_ms = deadline->call_timeout_ms;
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
