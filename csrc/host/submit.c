/* A rank's submissions: one after the other, whatever their streams; and their end. */
#include <string.h>

#include "csrc/base/abort.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/host/host.h"
#include "csrc/host/leave.h"
#include "csrc/host/local.h"
#include "csrc/host/stream.h"

struct submission {
    struct tri_transport *self;
    uint64_t ticket; /* submissions of this rank that come before */
    void (*function)(void *);
    _Alignas(16) unsigned char argument[];
};

/* Is it this submission's turn? Takes the turn. After an abort they run in any order, but still one
 * at a time. */
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

trib_status tri_host_submit(struct tri_transport *self, void (*function)(void *argument),
                            const void *argument, size_t bytes, trib_stream stream)
{
    struct tri_queue *queue = NULL;
    const trib_status status = tri_stream_find(&queue, self->device, stream, "submit");
    if (status != TRIB_OK)
        return status;
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

/* Submissions that have not run. All ranks have closed, so `issued` stays. */
static uint64_t pending(const struct tri_host_local *local, int32_t *out_rank)
{
    uint64_t sum = 0;
    for (int32_t rank = 0; rank < local->size; rank++) {
        const struct tri_transport *self = &local->ranks[rank];
        const uint64_t left = self->submitted - atomic_load(&self->completed);
        if (left != 0 && sum == 0)
            *out_rank = rank;
        sum += left;
    }
    return sum;
}

static bool idle_or_aborted(void *context)
{
    const struct tri_host_local *local = context;
    int32_t rank;
    return pending(local, &rank) == 0 || !tri_host_local_live(local);
}

/* All that was queued has come to its end. A call that waited for a rank that had left has not run,
 * and perhaps this is the only place where that is told. */
static trib_status closed_well(const struct tri_host_local *local)
{
    if (tri_host_local_live(local))
        return TRIB_OK;
    const trib_status status = tri_abort_status(local->abort);
    return status == TRIB_ERR_CLOSED ? status : TRIB_OK;
}

trib_status tri_host_close(struct tri_transport *self, uint32_t timeout_ms)
{
    struct tri_host_local *local = self->local;
    atomic_store(&self->closed, true);
    tri_host_leave_check(self);
    if (atomic_fetch_add(&local->closed, 1) + 1 != local->size)
        return TRIB_OK;
    if (tri_eventcount_wait(&local->closing, idle_or_aborted, local, tri_deadline_ns(timeout_ms)))
        return closed_well(local);
    int32_t rank = 0;
    const uint64_t left = pending(local, &rank);
    const trib_status status = tri_fail(
        TRIB_ERR_TIMEOUT,
        "close: after %u ms %llu queued calls have not run, the first of them on rank %d; the "
        "communicator is aborted. Wait for the streams before closing, or give more time",
        (unsigned)timeout_ms, (unsigned long long)left, (int)rank);
    (void)tri_abort_raise(local->abort, status, tri_detail());
    return status;
}
