/* Waiting for a stream, with a deadline, until the communicator ends.
 *
 * It polls an event instead of waiting on the device, where an abort ends the wait only if nothing
 * else holds the stream. */
#include "csrc/core/wait.h"

#include "csrc/base/clock.h"
#include "csrc/core/issue.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote.h"
#include "csrc/core/report.h"
#include "csrc/core/validate.h"
#include "csrc/core/watchdog.h"

enum { SHORTEST_NAP_NS = 10000, LONGEST_NAP_NS = 1000000, SHARE = 16 };

static trib_status check(const struct trib_comm *comm, trib_stream stream)
{
    const struct tri_device_ops *device = comm->backend->device;
    TRI_TRY(tri_comm_usable(comm, TRI_WAIT));
    TRI_TRY(tri_check_stream(comm, TRI_WAIT, stream));
    if (device->capturing == NULL || !device->capturing(comm->device, stream))
        return TRIB_OK;
    return tri_fail_call(comm, TRI_WAIT, TRIB_ERR_INVALID_USAGE,
                         "`stream` is being captured into a CUDA graph, and runs nothing: wait "
                         "after a launch of the graph");
}

/* Record where the wait ends. The watchdog gets to know the end of all calls before. */
static trib_status record(struct trib_comm *comm, trib_stream stream)
{
    const struct tri_backend *backend = comm->backend;
    if (comm->waited == NULL)
        TRI_TRY(backend->device->event_create(comm->device, &comm->waited));
    TRI_TRY(tri_issue_register(comm));
    const trib_status status = backend->device->event_record(comm->device, comm->waited, stream);
    if (status == TRIB_OK && comm->recorder != NULL && backend->transport->mark != NULL)
        backend->transport->mark(comm->transport, tri_recorder_entered(comm->recorder), stream,
                                 TRI_MARK_NOW);
    const trib_status after = tri_issue_unregister(comm);
    return status != TRIB_OK ? status : after;
}

struct asked {
    const struct trib_comm *comm;
    uint64_t waited_ns;
    struct tri_report report;
};

/* Ask the ranks in other processes about the oldest call. */
static void ask(const struct tri_recorder *list, void *context)
{
    const struct asked *asked = context;
    struct tri_recorded call;
    (void)list;
    if (tri_report_pending(asked->comm, &call) && call.all_ranks)
        tri_remote_ask(asked->comm->remote, call.collective);
}

static void describe(const struct tri_recorder *list, void *context)
{
    struct asked *asked = context;
    tri_report_wait(&asked->report, list, asked->comm, asked->waited_ns);
}

static trib_status late(const struct trib_comm *comm, uint64_t waited_ns, uint32_t timeout_ms)
{
    struct asked asked = {.comm = comm, .waited_ns = waited_ns, .report = {""}};
    if (comm->recorder != NULL && comm->remote != NULL) {
        tri_watchdog_visit(ask, &asked);
        while (!tri_remote_answered(comm->remote)) /* 50 ms at most */
            tri_nap_ns(LONGEST_NAP_NS);
    }
    if (comm->recorder != NULL)
        tri_watchdog_visit(describe, &asked);
    return tri_fail_call(comm, TRI_WAIT, TRIB_ERR_TIMEOUT,
                         "`stream` has not reached this point after %u ms%s%s; the communicator is "
                         "as before: wait again, or abort it",
                         (unsigned)timeout_ms, asked.report.sentence[0] == '\0' ? "" : ": ",
                         asked.report.sentence);
}

trib_status tri_comm_wait(struct trib_comm *comm, trib_stream stream, uint32_t timeout_ms)
{
    const uint64_t begin = tri_now_ns();
    const uint64_t end = timeout_ms == TRIB_NO_TIMEOUT ? UINT64_MAX : tri_deadline_ns(timeout_ms);
    TRI_TRY(check(comm, stream));
    TRI_TRY(record(comm, stream));
    while (tri_abort_live(comm->state)) {
        bool passed = false;
        TRI_TRY(comm->backend->device->event_query(comm->device, comm->waited, &passed));
        const uint64_t now = tri_now_ns();
        if (passed)
            return tri_comm_status(comm);
        if (now >= end)
            return late(comm, now - begin, timeout_ms);
        /* In proportion to the time waited: a wait is late by a sixteenth at most. */
        uint64_t nap = (now - begin) / SHARE;
        nap = nap < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : nap > LONGEST_NAP_NS ? LONGEST_NAP_NS : nap;
        tri_nap_ns(nap < end - now ? nap : end - now);
    }
    return tri_comm_usable(comm, TRI_WAIT);
}
