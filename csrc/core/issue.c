/* Handing work to the backend. */
#include "csrc/core/issue.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/core/operation.h"
#include "csrc/core/trace.h"
#include "csrc/core/watchdog.h"

struct tri_recorded tri_recorded_of(int operation, const struct tri_call *call)
{
    const struct tri_operation *traits = &tri_operations[operation];
    return (struct tri_recorded){.count = call->count,
                                 .operation = operation,
                                 .dtype = call->dtype,
                                 .op = traits->reduces ? call->op : 0,
                                 .peer = traits->partner != NULL ? call->peer : -1,
                                 .all_ranks = tri_is_collective(operation)};
}

trib_status tri_issue_register(struct trib_comm *comm)
{
    if (!tri_abort_register(comm->state))
        return tri_comm_usable(comm, TRI_NO_OPERATION);
    if (comm->recorder != NULL)
        tri_watchdog_wake();
    return TRIB_OK;
}

trib_status tri_issue_unregister(struct trib_comm *comm)
{
    tri_abort_unregister(comm->state);
    return tri_abort_live(comm->state) ? TRIB_OK : tri_comm_usable(comm, TRI_NO_OPERATION);
}

static trib_stream stream_of(const struct tri_issuing *issuing, size_t i)
{
    return issuing->streams == NULL ? NULL : issuing->streams[i];
}

static void enter(const struct tri_issuing *issuing, size_t i, const struct tri_recorded *record)
{
    const struct trib_comm *comm = issuing->comms[i];
    if (comm->recorder != NULL)
        tri_recorder_enter(comm->recorder, record, stream_of(issuing, i), comm->call_timeout_ms,
                           comm->timed);
}

static void mark(const struct tri_issuing *issuing, size_t i, enum tri_mark when)
{
    const struct trib_comm *comm = issuing->comms[i];
    const struct tri_transport_ops *ops = comm->backend->transport;
    if (comm->recorder == NULL || !tri_recorder_marks(comm->recorder) || ops->mark == NULL)
        return;
    const uint64_t number = tri_recorder_entered(comm->recorder);
    if (!ops->mark(comm->transport, number, stream_of(issuing, i), when))
        tri_recorder_unmark(comm->recorder);
    else if (when == TRI_MARK_AFTER)
        tri_recorder_marked(comm->recorder, number);
}

static void leave(const struct tri_issuing *issuing, size_t i, bool issued)
{
    const struct trib_comm *comm = issuing->comms[i];
    if (comm->recorder != NULL)
        tri_recorder_leave(comm->recorder, issued);
}

trib_status tri_issue_begin(const struct tri_issuing *issuing, const struct tri_recorded *record)
{
    tri_trace_push(issuing->comms[0], record);
    for (size_t i = 0; i < issuing->n; i++)
        enter(issuing, i, record);
    const trib_status status = tri_issue_register(issuing->comms[0]);
    for (size_t i = 0; i < issuing->n; i++)
        if (status == TRIB_OK)
            mark(issuing, i, TRI_MARK_BEFORE);
        else
            leave(issuing, i, false);
    if (status != TRIB_OK)
        tri_trace_pop();
    return status;
}

trib_status tri_issue_end(const struct tri_issuing *issuing, trib_status status)
{
    for (size_t i = 0; i < issuing->n; i++) {
        if (status == TRIB_OK)
            mark(issuing, i, TRI_MARK_AFTER);
        leave(issuing, i, status == TRIB_OK);
    }
    tri_trace_pop();
    if (status == TRIB_OK)
        return tri_issue_unregister(issuing->comms[0]);
    const struct tri_detail_copy detail = tri_detail_copy();
    (void)tri_issue_unregister(issuing->comms[0]);
    return tri_fail(status, "%s", detail.text);
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

trib_status tri_issue(struct trib_comm *comm, const struct tri_recorded *record,
                      const struct tri_call *calls, size_t n)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    const struct tri_issuing issuing = {&comm, &calls[0].stream, 1};
    TRI_TRY(tri_issue_begin(&issuing, record));
    return tri_issue_end(&issuing,
                         ops->submit == NULL ? ops->collective(calls, n) : submit(comm, calls, n));
}

/* The communicators are over: some of their ranks have a call that others never will have. */
static trib_status raise_all(struct trib_comm *const *comms, size_t n, trib_status status)
{
    const struct tri_detail_copy detail = tri_detail_copy();
    for (size_t i = 0; i < n; i++)
        (void)tri_abort_raise(comms[i]->state, status, detail.text);
    return tri_fail(status, "%s", detail.text);
}

static trib_status submit_batches(struct trib_comm *const *comms, size_t n)
{
    trib_status status = TRIB_OK;
    bool queued = false;
    for (size_t i = 0; i < n && status == TRIB_OK; i++) {
        const struct tri_batch *batch = &comms[i]->batch;
        if (batch->n == 0)
            continue;
        status = submit(comms[i], batch->calls, batch->n);
        queued |= status == TRIB_OK;
    }
    return status != TRIB_OK && queued ? raise_all(comms, n, status) : status;
}

/* The calls of all communicators of several ranks, in scratch memory of the first; NULL if that is
 * short. */
static struct tri_call *collect(struct trib_comm *const *comms, size_t n, size_t *out_count)
{
    size_t count = 0, room = 1;
    for (size_t i = 0; i < n; i++)
        room += comms[i]->batch.n;
    struct tri_call *calls = tri_comm_scratch(comms[0], room * sizeof *calls);
    for (size_t i = 0; i < n && calls != NULL; i++) {
        const struct tri_batch *batch = &comms[i]->batch;
        if (comms[i]->size == 1 || batch->n == 0)
            continue;
        memcpy(&calls[count], batch->calls, batch->n * sizeof *calls);
        count += batch->n;
    }
    *out_count = count;
    return calls;
}

/* Several ranks on a stream-ordered backend: one call of it. A rank that is alone waits for
 * nobody. */
static trib_status queue_batches(struct trib_comm *const *comms, size_t n)
{
    const struct tri_transport_ops *ops = comms[0]->backend->transport;
    size_t count = 0;
    const struct tri_call *calls = collect(comms, n, &count);
    if (calls == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to end %zu batches as one", n);
    TRI_TRY(ops->collective(calls, count));
    trib_status status = TRIB_OK;
    for (size_t i = 0; i < n && status == TRIB_OK; i++)
        if (comms[i]->size == 1)
            status = ops->collective(comms[i]->batch.calls, comms[i]->batch.n);
    return status == TRIB_OK ? TRIB_OK : raise_all(comms, n, status);
}

static struct tri_issuing issuing_batch(struct trib_comm *const *comm)
{
    return (struct tri_issuing){comm, &(*comm)->batch.stream, 1};
}

trib_status tri_issue_batches(struct trib_comm *const *comms, size_t n)
{
    trib_status status = TRIB_OK;
    size_t begun = 0;
    while (begun < n && status == TRIB_OK) {
        const struct tri_issuing issuing = issuing_batch(&comms[begun]);
        if (comms[begun]->batch.n != 0)
            status = tri_issue_begin(&issuing, &comms[begun]->batch.record);
        begun += status == TRIB_OK;
    }
    if (status == TRIB_OK && begun != 0)
        status = comms[0]->backend->transport->submit == NULL ? queue_batches(comms, n)
                                                              : submit_batches(comms, n);
    while (begun-- > 0) {
        const struct tri_issuing issuing = issuing_batch(&comms[begun]);
        if (comms[begun]->batch.n != 0)
            status = tri_issue_end(&issuing, status);
    }
    return status;
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

trib_status tri_issue_group(const struct tri_issuing *issuing, int operation,
                            const struct tri_call *calls)
{
    const struct tri_transport_ops *ops = issuing->comms[0]->backend->transport;
    const struct tri_recorded record = tri_recorded_of(operation, &calls[0]);
    TRI_TRY(tri_issue_begin(issuing, &record));
    return tri_issue_end(issuing, ops->submit == NULL
                                      ? ops->collective(calls, issuing->n)
                                      : submit_each(issuing->comms, calls, issuing->n));
}

trib_status tri_issue_run(struct trib_comm *comm, const struct tri_recorded *record,
                          void (*function)(void *argument), void *argument, size_t bytes,
                          trib_stream stream)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    const struct tri_issuing issuing = {&comm, &stream, 1};
    trib_status status = TRIB_OK;
    TRI_TRY(tri_issue_begin(&issuing, record));
    if (ops->submit == NULL)
        function(argument);
    else
        status = ops->submit(comm->transport, function, argument, bytes, stream);
    return tri_issue_end(&issuing, status);
}
