/* What is wrong when a call does not end, in a sentence. */
#include "csrc/core/report.h"

#include <inttypes.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "csrc/base/types.h"
#include "csrc/core/operation.h"
#include "csrc/core/standing.h"

/* "call 17, trib_allreduce of 1024 f32, sum" */
static void add_call(struct tri_text *text, const struct tri_recorded *call)
{
    const struct tri_operation *operation = &tri_operations[call->operation];
    tri_text_add(text, "call %" PRIu64 ", trib_%s of %" PRIu64, call->number, operation->name,
                 call->count);
    if (call->dtype != 0)
        tri_text_add(text, " %s", trib_dtype_name(call->dtype));
    if (call->op != 0)
        tri_text_add(text, ", %s", trib_op_name(call->op));
    if (call->peer >= 0 && operation->partner != NULL)
        tri_text_add(text, ", %s %d", operation->partner, (int)call->peer);
    if (call->algorithm != NULL)
        tri_text_add(text, ", %s", call->algorithm);
}

/* The counts of the vectored operations differ between ranks. */
static bool same_call(const struct tri_recorded *a, const struct tri_recorded *b)
{
    const bool vectored = a->operation == TRI_ALLGATHERV || a->operation == TRI_ALLTOALLV;
    return a->operation == b->operation && (vectored || a->count == b->count) &&
           a->dtype == b->dtype && a->op == b->op && a->peer == b->peer &&
           a->algorithm == b->algorithm;
}

/* Why `other` keeps the waiting rank waiting; returns false if its record does not say. */
static bool add_reason(struct tri_text *text, const struct tri_recorder *other,
                       const struct tri_recorded *waiting)
{
    struct tri_recorded call;
    const int rank = (int)other->comm->rank;
    if (tri_recorder_find(other, waiting->collective, &call)) {
        if (same_call(&call, waiting))
            return false;
        tri_text_add(text, "; rank %d makes another call: ", rank);
        add_call(text, &call);
        return true;
    }
    if (!tri_recorder_newest(other, &call)) {
        tri_text_add(text, "; rank %d has made no call", rank);
        return true;
    }
    if (call.collective >= waiting->collective) /* it is long past */
        return false;
    tri_text_add(text, "; rank %d has not made it: its newest is ", rank);
    add_call(text, &call);
    return true;
}

/* Is `other` another rank of this process in the communicator of `recorder`? */
static bool is_peer(const struct tri_recorder *other, const struct tri_recorder *recorder)
{
    return other != recorder && other->comm->state == recorder->comm->state;
}

static bool has_not_made(const struct tri_recorder *other, const struct tri_recorded *call)
{
    struct tri_recorded newest;
    return !tri_recorder_newest(other, &newest) || newest.collective < call->collective;
}

bool tri_report_is_alone(const struct tri_recorder *list, const struct tri_recorder *recorder,
                         const struct tri_recorded *call)
{
    for (const struct tri_recorder *other = list; call->all_ranks && other != NULL;
         other = other->next)
        if (is_peer(other, recorder) && has_not_made(other, call))
            return true;
    return false;
}

int32_t tri_report_missing(int32_t *out, int32_t capacity, const struct tri_recorder *list,
                           const struct trib_comm *comm, const struct tri_recorded *call)
{
    int32_t n = 0;
    for (const struct tri_recorder *other = list; call->all_ranks && other != NULL;
         other = other->next) {
        if (!is_peer(other, comm->recorder) || !has_not_made(other, call))
            continue;
        int32_t at = n < capacity ? n : capacity; /* insert in order */
        for (; at > 0 && out[at - 1] > other->comm->rank; at--)
            if (at < capacity)
                out[at] = out[at - 1];
        if (at < capacity)
            out[at] = other->comm->rank;
        n++;
    }
    return n;
}

/* Nobody's record says why. */
static void add_no_reason(struct tri_text *text, int32_t here, int32_t size)
{
    if (here == size)
        tri_text_add(
            text, "; every rank has made it: the stream of one has not reached it, or a device or "
                  "a connection has failed");
    else
        tri_text_add(
            text,
            "; the %d ranks of this process have made it, and %d are in other processes or have "
            "closed",
            (int)here, (int)(size - here));
}

void tri_report_timeout(struct tri_report *out, const struct tri_recorder *list,
                        const struct trib_comm *comm, const struct tri_recorded *call,
                        uint64_t waited_ns)
{
    struct tri_text text = {.data = out->sentence, .room = sizeof out->sentence};
    int32_t here = 1, reasons = 0;
    out->sentence[0] = '\0';
    tri_text_add(&text, "rank %d (device %d) has waited for %.1f s in ", (int)comm->rank,
                 (int)comm->device, (double)waited_ns / 1e9);
    add_call(&text, call);
    for (const struct tri_recorder *other = list; other != NULL; other = other->next) {
        if (!is_peer(other, comm->recorder))
            continue;
        here++;
        if (call->all_ranks)
            reasons += add_reason(&text, other, call);
    }
    if (reasons == 0)
        add_no_reason(&text, here, comm->size);
}

void tri_report_wait(struct tri_report *out, const struct tri_recorder *list,
                     const struct trib_comm *comm, uint64_t waited_ns)
{
    struct tri_progress progress;
    struct tri_recorded call;
    out->sentence[0] = '\0';
    tri_standing_read(comm->recorder, &progress);
    if (tri_recorder_read(comm->recorder, progress.ended + 1, &call))
        tri_report_timeout(out, list, comm, &call, waited_ns);
}

static const char *const standings[] = {[TRI_ENTERED] = "has not returned",
                                        [TRI_QUEUED] = "has not ended",
                                        [TRI_STARTED] = "has started, and not ended",
                                        [TRI_DONE] = "has ended",
                                        [TRI_UNKNOWN] = "may have ended"};

/* Where the rank stands: its oldest call that has not ended, or its newest. */
static void log_rank(const struct tri_recorder *recorder, int32_t level, uint64_t now)
{
    char line[TRI_DETAIL_SIZE] = "";
    struct tri_text text = {.data = line, .room = sizeof line};
    struct tri_progress progress;
    struct tri_recorded call;
    const struct trib_comm *comm = recorder->comm;
    tri_standing_read(recorder, &progress);
    const uint64_t entered = atomic_load(&recorder->entered);
    const bool ended = progress.ended >= entered;
    tri_text_add(&text, "rank %d of %d (device %d of %s): ", (int)comm->rank, (int)comm->size,
                 (int)comm->device, comm->backend->name);
    if (tri_recorder_read(recorder, ended ? entered : progress.ended + 1, &call)) {
        add_call(&text, &call);
        tri_text_add(&text, ", made %.1f s ago, %s", (double)(now - call.entered_ns) / 1e9,
                     standings[tri_standing_of(recorder, &call, &progress)]);
        if (entered > call.number)
            tri_text_add(&text, "; %" PRIu64 " more behind it", entered - call.number);
    } else {
        tri_text_add(&text, "has made no call");
    }
    tri_log(level, "%s", line);
}

void tri_report_ranks(const struct tri_recorder *list, const struct trib_comm *comm)
{
    const uint64_t now = tri_now_ns();
    const char *why = "";
    const trib_status status = tri_abort_why(comm->state, &why);
    const bool wanted = status == TRIB_ERR_ABORTED || status == TRIB_ERR_CLOSED;
    const int32_t level = wanted ? TRIB_LOG_WARN : TRIB_LOG_ERROR;
    tri_log(level, "communicator %016" PRIx64 " of %d ranks has ended, %s: %s", comm->identity,
            (int)comm->size, trib_status_name(status), why);
    for (const struct tri_recorder *recorder = list; recorder != NULL; recorder = recorder->next)
        if (recorder->comm->state == comm->state)
            log_rank(recorder, level, now);
}
