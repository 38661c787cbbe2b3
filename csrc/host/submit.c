/* A rank's submissions, which run one after the other whatever their streams, and close. */
#include <string.h>

#include "csrc/base/abort.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/host/leave.h"
#include "csrc/host/local.h"
#include "csrc/host/ops.h"
#include "csrc/host/stream.h"

struct submission {
    struct tri_transport *self;
    uint64_t ticket; /* the number of earlier submissions of this rank */
    void (*function)(void *);
    _Alignas(16) unsigned char argument[];
};

/* Take this submission's turn, if it is its turn. After an abort submissions run in any order, but
 * still one at a time. */
static bool take_turn(void *context)
{
    const struct submission *submission = context;
    struct tri_transport *self = submission->self;
    if (atomic_load(&self->completed) != submission->ticket && tri_host_local_live(self->local))
        return false;
    bool idle = false;
    return atomic_compare_exchange_strong(&self->running, &idle, true);
}

static void run_submission(void *item)
{
    struct submission *submission = item;
    struct tri_transport *self = submission->self;
    struct tri_host_local *local = self->local;
    (void)tri_eventcount_wait(&self->eventcount, take_turn, submission, 0);
    submission->function(submission->argument);
    atomic_store(&self->running, false);
    atomic_fetch_add(&self->completed, 1);
    tri_eventcount_notify(&self->eventcount);
    tri_eventcount_notify(&local->closing);
    tri_host_leave_check(self);
    tri_host_local_release(local);
}

void tri_host_progress(struct tri_transport *self, struct tri_progress *out)
{
    out->ended = atomic_load(&self->completed);
    out->started = out->ended + atomic_load(&self->running);
    out->marked = UINT64_MAX;
    out->bound = out->ended + 1;
}

trib_status tri_host_submit(struct tri_transport *self, void (*function)(void *argument),
                            const void *argument, size_t bytes, trib_stream stream)
{
    struct tri_queue *queue = NULL;
    TRI_TRY(tri_stream_find(&queue, self->device, stream, "submit"));
    struct submission *submission = tri_queue_item(queue, sizeof *submission + bytes);
    if (submission == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no %zu bytes to queue a call", bytes);
    submission->self = self;
    submission->ticket = self->submitted++;
    submission->function = function;
    memcpy(submission->argument, argument, bytes);
    tri_host_local_retain(self->local);
    tri_queue_push(queue, submission, run_submission);
    return TRIB_OK;
}

static bool idle_or_aborted(void *context)
{
    const struct tri_host_local *local = context;
    int32_t rank;
    return tri_host_local_pending(local, &rank) == 0 || !tri_host_local_live(local);
}

/* All submissions have run, or an abort has ended them. One that came while this close waited
 * (`was_live`) is its result; a mistake that caused it is not this caller's. To close what was
 * aborted before is no failure; but after TRIB_ERR_CLOSED, a rank that left, a call did not run,
 * and the caller may learn it only here. */
static trib_status close_status(const struct tri_host_local *local, bool was_live)
{
    if (tri_host_local_live(local))
        return TRIB_OK;
    const trib_status status = tri_abort_status(local->abort);
    if (status == TRIB_ERR_CLOSED)
        return status;
    if (!was_live)
        return TRIB_OK;
    return status < TRIB_ERR_ABORTED ? tri_fail(TRIB_ERR_ABORTED, "%s", tri_detail()) : status;
}

trib_status tri_host_close(struct tri_transport *self, uint32_t timeout_ms)
{
    struct tri_host_local *local = self->local;
    const bool was_live = tri_host_local_live(local);
    atomic_store(&self->closed, true);
    tri_host_leave_check(self);
    if (atomic_fetch_add(&local->closed, 1) + 1 != local->size)
        return TRIB_OK;
    if (tri_eventcount_wait(&local->closing, idle_or_aborted, local, tri_deadline_ns(timeout_ms)))
        return close_status(local, was_live);
    int32_t rank = 0;
    const uint64_t n = tri_host_local_pending(local, &rank);
    const trib_status status = tri_fail(
        TRIB_ERR_TIMEOUT,
        "close: after %u ms %llu queued calls have not run, the first of them on rank %d; the "
        "communicator is aborted. Wait for the streams before the close, or pass a longer timeout",
        (unsigned)timeout_ms, (unsigned long long)n, (int)rank);
    (void)tri_abort_raise(local->abort, status, tri_detail());
    return status;
}
