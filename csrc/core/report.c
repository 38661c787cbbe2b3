/* What is wrong when a call does not end, in a sentence. */
#include "csrc/core/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "csrc/base/types.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote_ask.h"
#include "csrc/core/standing.h"

/* "call 17, trib_allreduce of 1024 f32, sum"; "call 18, trib_barrier" */
static void add_call(struct tri_text *text, const struct tri_call_copy *copy)
{
    const struct tri_recorded *call = &copy->record;
    const struct tri_operation *operation = &tri_operations[call->operation];
    tri_text_add(text, "call %" PRIu64 ", trib_%s", call->number, operation->name);
    if (call->count != 0 || call->dtype != 0)
        tri_text_add(text, " of %" PRIu64, call->count);
    if (call->dtype != 0)
        tri_text_add(text, " %s", trib_dtype_name(call->dtype));
    if (call->op != 0)
        tri_text_add(text, ", %s", trib_op_name(call->op));
    if (call->peer >= 0 && operation->partner != NULL)
        tri_text_add(text, ", %s %d", operation->partner, (int)call->peer);
    if (copy->algorithm[0] != '\0')
        tri_text_add(text, ", %s", copy->algorithm);
}

/* The counts of the vectored operations differ between ranks. */
static bool same_call(const struct tri_call_copy *one, const struct tri_call_copy *other)
{
    const struct tri_recorded *a = &one->record, *b = &other->record;
    const bool vectored = a->operation == TRI_ALLGATHERV || a->operation == TRI_ALLTOALLV;
    return a->operation == b->operation && (vectored || a->count == b->count) &&
           a->dtype == b->dtype && a->op == b->op && a->peer == b->peer &&
           strcmp(one->algorithm, other->algorithm) == 0;
}

/* -------------------------------------------------------------------------------- the other ranks
 */

/* What is known of another rank, about a call that may wait for it. */
struct other {
    struct tri_remote_rank remote;          /* in another process */
    char who[sizeof(struct tri_peer_text)]; /* "rank 3", "rank 3 (process 4711 on a)" */
    bool known;                             /* the two below are */
    struct tri_call_copy newest, same; /* its newest call; its call of the same collective number */
};

/* The recorder of a rank of this process; NULL: it is elsewhere, has closed or is not recorded. */
static const struct tri_recorder *find_here(const struct tri_recorder *list,
                                            const struct trib_comm *comm, int32_t rank)
{
    const struct tri_recorder *other = list;
    while (other != NULL && (other->comm->state != comm->state || other->comm->rank != rank))
        other = other->next;
    return other;
}

static void look_here(struct other *out, const struct tri_recorder *recorder, uint64_t collective)
{
    const uint64_t now = tri_now_ns();
    struct tri_recorded call;
    (void)snprintf(out->who, sizeof out->who, "rank %d", (int)recorder->comm->rank);
    out->known = true;
    if (tri_recorder_newest(recorder, &call))
        tri_call_copy_set(&out->newest, &call, now);
    if (tri_recorder_find(recorder, collective, &call))
        tri_call_copy_set(&out->same, &call, now);
}

/* Returns false if it is of this process, or has not been asked. */
static bool look_elsewhere(struct other *out, struct tri_remote *remote, int32_t rank,
                           uint64_t collective)
{
    const bool asked = tri_remote_asked_ns(remote, collective) != 0;
    tri_remote_look(remote, rank, &out->remote);
    (void)snprintf(out->who, sizeof out->who, "%s", out->remote.who.text);
    out->known = out->remote.answered && out->remote.said.recorded;
    out->newest = out->remote.said.newest;
    out->same = out->remote.said.asked;
    return out->remote.state != TRI_REMOTE_HERE &&
           (asked || out->remote.state != TRI_REMOTE_PRESENT);
}

/* Returns false if nothing is known of the rank. */
static bool look(struct other *out, const struct tri_recorder *list, const struct trib_comm *comm,
                 int32_t rank, uint64_t collective)
{
    const struct tri_recorder *recorder = find_here(list, comm, rank);
    *out = (struct other){.known = false};
    if (recorder == NULL)
        return comm->remote != NULL && look_elsewhere(out, comm->remote, rank, collective);
    look_here(out, recorder, collective);
    return true;
}

static bool has_not_made(const struct tri_recorder *other, const struct tri_recorded *call)
{
    struct tri_recorded newest;
    return !tri_recorder_newest(other, &newest) || newest.collective < call->collective;
}

/* Is the call known to wait in vain for `rank`? */
static bool is_missing(const struct tri_recorder *list, const struct trib_comm *comm, int32_t rank,
                       const struct tri_recorded *call)
{
    const struct tri_recorder *here = find_here(list, comm, rank);
    if (here != NULL)
        return has_not_made(here, call);
    return comm->remote != NULL && tri_remote_lacks(comm->remote, rank, call->collective);
}

static bool is_message(const struct tri_recorded *call)
{
    return call->operation == TRI_SEND || call->operation == TRI_RECV;
}

bool tri_report_asks(const struct tri_recorded *call)
{
    return call->all_ranks || is_message(call);
}

int32_t tri_report_missing(int32_t *out, int32_t capacity, const struct tri_recorder *list,
                           const struct trib_comm *comm, const struct tri_recorded *call)
{
    int32_t n = 0;
    for (int32_t rank = 0; call->all_ranks && rank < comm->size; rank++) {
        if (rank == comm->rank || !is_missing(list, comm, rank, call))
            continue;
        if (n < capacity)
            out[n] = rank;
        n++;
    }
    return n;
}

int32_t tri_report_silent(int32_t *out, int32_t capacity, const struct trib_comm *comm,
                          const struct tri_recorded *call)
{
    int32_t n = 0;
    for (int32_t rank = 0; call->all_ranks && comm->remote != NULL && rank < comm->size; rank++) {
        if (!tri_remote_is_silent(comm->remote, rank, call->collective))
            continue;
        if (n < capacity)
            out[n] = rank;
        n++;
    }
    return n;
}

/* ----------------------------------------------------------------------------------------- reasons
 */

/* Why `other` keeps the waiting rank waiting; returns false if nothing says so. */
static bool add_reason(struct tri_text *text, const struct other *other,
                       const struct tri_call_copy *waiting)
{
    const uint64_t collective = waiting->record.collective;
    if (other->remote.state == TRI_REMOTE_DEAD) {
        tri_text_add(text, "; %s", other->remote.death);
    } else if (!other->known) {
        if (other->remote.answered) /* it is not recorded */
            return false;
        tri_text_add(text, "; %s does not answer", other->who);
    } else if (other->same.known) {
        if (same_call(&other->same, waiting))
            return false;
        tri_text_add(text, "; %s makes another call: ", other->who);
        add_call(text, &other->same);
    } else if (!other->newest.known) {
        tri_text_add(text, "; %s has made no call", other->who);
    } else if (other->newest.record.collective >= collective) { /* it is long past */
        return false;
    } else {
        tri_text_add(text,
                     other->remote.state == TRI_REMOTE_LEFT
                         ? "; %s has closed after "
                         : "; %s has not made it: its newest is ",
                     other->who);
        add_call(text, &other->newest);
    }
    return true;
}

/* Nobody's record says why. */
static void add_no_reason(struct tri_text *text, int32_t asked, int32_t size)
{
    if (asked == size)
        tri_text_add(
            text, "; every rank has made it: the stream of one has not reached it, or a device or "
                  "a connection has failed");
    else
        tri_text_add(text,
                     "; %d of %d ranks have made it, and nothing is known of those in other "
                     "processes, or they "
                     "have closed",
                     (int)asked, (int)size);
}

/* A call that all ranks make. */
static void add_reasons(struct tri_text *text, const struct tri_recorder *list,
                        const struct trib_comm *comm, const struct tri_call_copy *waiting)
{
    int32_t asked = 1, reasons = 0;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        struct other other;
        if (rank == comm->rank || !look(&other, list, comm, rank, waiting->record.collective))
            continue;
        asked++;
        reasons += add_reason(text, &other, waiting);
    }
    if (reasons == 0)
        add_no_reason(text, asked, comm->size);
}

/* A send or receive. Whether its partner has made the matching call is not known. */
static void add_partner(struct tri_text *text, const struct tri_recorder *list,
                        const struct trib_comm *comm, const struct tri_recorded *call)
{
    struct other other;
    if (!look(&other, list, comm, call->peer, call->collective)) {
        tri_text_add(text, "; it waits for rank %d", (int)call->peer);
        return;
    }
    tri_text_add(text, "; it waits for %s", other.who);
    if (other.remote.state == TRI_REMOTE_DEAD) {
        tri_text_add(text, "; %s", other.remote.death);
    } else if (!other.known) {
        if (!other.remote.answered)
            tri_text_add(text, ", which does not answer");
    } else if (!other.newest.known) {
        tri_text_add(text, ", which has made no call");
    } else {
        tri_text_add(text, other.remote.state == TRI_REMOTE_LEFT ? ", which has closed after "
                                                                 : ", whose newest is ");
        add_call(text, &other.newest);
    }
}

void tri_report_timeout(struct tri_report *out, const struct tri_recorder *list,
                        const struct trib_comm *comm, const struct tri_recorded *call,
                        uint64_t waited_ns)
{
    struct tri_text text = {.data = out->sentence, .room = sizeof out->sentence};
    struct tri_call_copy waiting;
    out->sentence[0] = '\0';
    tri_call_copy_set(&waiting, call, tri_now_ns());
    tri_text_add(&text, "rank %d (device %d) has waited for %.1f s in ", (int)comm->rank,
                 (int)comm->device, (double)waited_ns / 1e9);
    add_call(&text, &waiting);
    if (call->all_ranks)
        add_reasons(&text, list, comm, &waiting);
    else if (is_message(call))
        add_partner(&text, list, comm, call);
    else if (call->operation == TRI_BATCH)
        tri_text_add(&text, "; it waits for the partners of its sends and receives");
}

bool tri_report_pending(struct tri_recorded *out, const struct tri_recorder *recorder,
                        const struct tri_progress *progress)
{
    const uint64_t first = progress->ended + 1;
    return tri_recorder_from(recorder, progress->bound > first ? progress->bound : first, out);
}

void tri_report_wait(struct tri_report *out, const struct tri_recorder *list,
                     const struct trib_comm *comm, uint64_t waited_ns)
{
    struct tri_recorded call;
    struct tri_progress progress;
    out->sentence[0] = '\0';
    tri_standing_read(comm->recorder, &progress);
    if (tri_report_pending(&call, comm->recorder, &progress))
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
    if (tri_recorder_from(recorder, ended ? entered : progress.ended + 1, &call)) {
        struct tri_call_copy copy;
        tri_call_copy_set(&copy, &call, now);
        add_call(&text, &copy);
        tri_text_add(&text, ", made %.1f s ago, %s", (double)tri_recorded_age(&call, now) / 1e9,
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
    tri_log(level, "communicator %s of %d ranks has ended, %s: %s", tri_comm_label(comm).text,
            (int)comm->size, trib_status_name(status), why);
    for (const struct tri_recorder *recorder = list; recorder != NULL; recorder = recorder->next)
        if (recorder->comm->state == comm->state)
            log_rank(recorder, level, now);
}
