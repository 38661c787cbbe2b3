/* Waiting for streams, with a deadline, until the communicator ends. A wait of 0 ms only asks, and
 * makes the end of the calls known: it takes one mark at most, and no event of its own.
 *
 * It polls events instead of waiting on the device, where an abort ends the wait only if nothing
 * else holds the stream. */
#include "csrc/core/wait.h"

#include "csrc/base/clock.h"
#include "csrc/core/issue.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote_ask.h"
#include "csrc/core/report.h"
#include "csrc/core/standing.h"
#include "csrc/core/validate.h"
#include "csrc/core/watchdog.h"

enum {
    SHORTEST_NAP_NS = 10000,
    LONGEST_NAP_NS = 1000000,
    MS = 1000000,
    SHARE = 16,
    ASK_NS = 100000000,   /* between two questions for errors: the watchdog may sleep */
    WORTH_NS = 100000000, /* a wait that is worth a question to other processes, */
    AGAIN_NS = 1000000000 /* once per second */
};

/* TRI_WAIT or TRI_GROUP_WAIT, and its arguments. */
struct waiting {
    const struct tri_issuing *ranks;
    int operation;
    uint32_t timeout_ms;
    uint64_t begin_ns, end_ns;
};

static trib_stream stream_of(const struct waiting *waiting, size_t rank)
{
    return waiting->ranks->streams == NULL ? NULL : waiting->ranks->streams[rank];
}

static trib_status check(const struct trib_comm *comm, int operation, trib_stream stream)
{
    const struct tri_device_ops *device = comm->backend->device;
    TRI_TRY(tri_comm_usable(comm, operation));
    TRI_TRY(tri_check_stream(comm, operation, stream));
    if (device->capturing == NULL || !device->capturing(comm->device, stream))
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_USAGE,
                         "`stream` is being captured into a CUDA graph, and runs nothing: wait "
                         "after a launch of the graph");
}

/* The stream's newest call, if the watchdog will not notice its end; 0: it will. The end of another
 * stream tells nothing of a call. */
static uint64_t unmarked(const struct trib_comm *comm, trib_stream stream)
{
    if (comm->recorder == NULL || comm->backend->transport->mark == NULL)
        return 0;
    return tri_recorder_unmarked(comm->recorder, (uint64_t)(uintptr_t)stream);
}

static void mark(struct trib_comm *comm, uint64_t number, trib_stream stream)
{
    if (number != 0 &&
        comm->backend->transport->mark(comm->transport, number, stream, TRI_MARK_NOW))
        tri_recorder_marked(comm->recorder, number);
}

/* Does the wait repeat one that was late, and whose point the stream has not reached? */
static bool repeats(const struct trib_comm *comm, trib_stream stream)
{
    bool passed = true;
    return comm->waited_ns != 0 && comm->waited_stream == stream &&
           comm->backend->device->event_query(comm->device, comm->waited, &passed) == TRIB_OK &&
           !passed;
}

static trib_status record_event(struct trib_comm *comm, trib_stream stream)
{
    if (!repeats(comm, stream))
        comm->waited_ns = 0;
    comm->waited_stream = stream;
    return comm->backend->device->event_record(comm->device, comm->waited, stream);
}

/* Record where the wait ends. The watchdog gets to know the end of all calls before. */
static trib_status record(struct trib_comm *comm, const struct waiting *waiting, trib_stream stream)
{
    const bool waits = waiting->timeout_ms != 0;
    const uint64_t number = unmarked(comm, stream);
    if (!waits && number == 0)
        return TRIB_OK;
    if (waits && comm->waited == NULL)
        TRI_TRY(comm->backend->device->event_create(comm->device, &comm->waited));
    TRI_TRY(tri_issue_register(comm));
    const trib_status status = waits ? record_event(comm, stream) : TRIB_OK;
    if (status == TRIB_OK)
        mark(comm, number, stream);
    const trib_status after = tri_issue_unregister(comm);
    return status != TRIB_OK ? status : after;
}

struct asked {
    const struct trib_comm *comm;
    uint64_t waited_ns;
    struct tri_report report;
};

/* Ask the ranks in other processes about the oldest call, unless they have been asked within a
 * second. */
static void ask(const struct tri_recorder *list, void *context)
{
    const struct asked *asked = context;
    struct tri_remote *remote = asked->comm->remote;
    struct tri_recorded call;
    struct tri_progress progress;
    (void)list;
    tri_standing_read(asked->comm->recorder, &progress);
    if (tri_report_pending(&call, asked->comm->recorder, &progress) && tri_report_asks(&call) &&
        tri_now_ns() > tri_remote_asked_ns(remote, call.collective) + AGAIN_NS)
        tri_remote_ask(remote, call.collective);
}

static void describe(const struct tri_recorder *list, void *context)
{
    struct asked *asked = context;
    tri_report_wait(&asked->report, list, asked->comm, asked->waited_ns);
}

/* Waits that repeat each other are late together. */
static trib_status late(struct trib_comm *comm, const struct waiting *waiting)
{
    if (comm->waited_ns == 0)
        comm->waited_ns = waiting->begin_ns;
    const uint64_t waited_ns = waiting->end_ns - comm->waited_ns;
    struct asked asked = {.comm = comm, .waited_ns = waited_ns, .report = {""}};
    if (comm->recorder != NULL && comm->remote != NULL && waited_ns >= WORTH_NS) {
        tri_watchdog_visit(ask, &asked);
        while (!tri_remote_answered(comm->remote)) /* 50 ms at most */
            tri_nap_ns(LONGEST_NAP_NS);
    }
    if (comm->recorder != NULL)
        tri_watchdog_visit(describe, &asked);
    return tri_fail_call(comm, waiting->operation, TRIB_ERR_TIMEOUT,
                         "`stream` has not reached this point after %u ms%s%s; the communicator is "
                         "as before: wait again, or abort it",
                         (unsigned)(waited_ns / MS), asked.report.sentence[0] == '\0' ? "" : ": ",
                         asked.report.sentence);
}

void tri_wait_nap(uint64_t begin_ns, uint64_t end_ns)
{
    const uint64_t now = tri_now_ns();
    uint64_t nap = (now - begin_ns) / SHARE;
    nap = nap < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : nap > LONGEST_NAP_NS ? LONGEST_NAP_NS : nap;
    if (now < end_ns)
        tri_nap_ns(nap < end_ns - now ? nap : end_ns - now);
}

/* Wait for the event that `record` has recorded. */
static trib_status await(struct trib_comm *comm, const struct waiting *waiting)
{
    uint64_t ask_ns = waiting->begin_ns + ASK_NS;
    while (tri_abort_live(comm->state)) {
        bool passed = false;
        TRI_TRY(comm->backend->device->event_query(comm->device, comm->waited, &passed));
        if (passed)
            return tri_comm_status(comm);
        const uint64_t now = tri_now_ns();
        if (now >= waiting->end_ns)
            return late(comm, waiting);
        if (now >= ask_ns) {
            (void)tri_abort_ask(comm->state);
            ask_ns = now + ASK_NS;
        }
        tri_wait_nap(waiting->begin_ns, waiting->end_ns);
    }
    return tri_comm_usable(comm, waiting->operation);
}

/* Nobody is late yet, so the detail names no call. */
static trib_status ask_stream(struct trib_comm *comm, int operation, trib_stream stream)
{
    bool passed = false;
    TRI_TRY(comm->backend->device->stream_query(comm->device, stream, &passed));
    if (passed || !tri_abort_live(comm->state))
        return passed ? tri_comm_status(comm) : tri_comm_usable(comm, operation);
    return tri_fail_call(comm, operation, TRIB_ERR_TIMEOUT,
                         "`stream` has not reached this point, and `timeout_ms` is 0; the "
                         "communicator is as before: wait again, or abort it");
}

trib_status tri_wait(const struct tri_issuing *ranks, int operation, uint32_t timeout_ms)
{
    const uint64_t begin = tri_now_ns();
    const uint64_t end =
        timeout_ms == TRIB_NO_TIMEOUT ? UINT64_MAX : begin + timeout_ms * (uint64_t)MS;
    const struct waiting waiting = {ranks, operation, timeout_ms, begin, end};
    for (size_t i = 0; i < ranks->n; i++)
        TRI_TRY(check(ranks->comms[i], operation, stream_of(&waiting, i)));
    for (size_t i = 0; i < ranks->n; i++)
        TRI_TRY(record(ranks->comms[i], &waiting, stream_of(&waiting, i)));
    for (size_t i = 0; i < ranks->n; i++)
        TRI_TRY(timeout_ms == 0 ? ask_stream(ranks->comms[i], operation, stream_of(&waiting, i))
                                : await(ranks->comms[i], &waiting));
    return TRIB_OK;
}
