/* What is wrong when a call does not end, in a sentence. */
#include "csrc/core/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "csrc/base/types.h"
#include "csrc/core/operation.h"

/* A text that grows to the end of its room. */
struct text {
    char *data;
    size_t room, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text->data + text->used, text->room - text->used, format, arguments);
    va_end(arguments);
    if (n > 0)
        text->used = text->used + (size_t)n < text->room ? text->used + (size_t)n : text->room - 1;
}

/* "call 17, trib_allreduce of 1024 f32, sum" */
static void add_call(struct text *text, const struct tri_recorded *call)
{
    const struct tri_operation *operation = &tri_operations[call->operation];
    add(text, "call %" PRIu64 ", trib_%s of %" PRIu64, call->number, operation->name, call->count);
    if (call->dtype != 0)
        add(text, " %s", trib_dtype_name(call->dtype));
    if (call->op != 0)
        add(text, ", %s", trib_op_name(call->op));
    if (call->peer >= 0 && operation->partner != NULL)
        add(text, ", %s %d", operation->partner, (int)call->peer);
    if (call->algorithm != NULL)
        add(text, ", %s", call->algorithm);
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
static bool add_reason(struct text *text, const struct tri_recorder *other,
                       const struct tri_recorded *waiting)
{
    struct tri_recorded call;
    const int rank = (int)other->comm->rank;
    if (tri_recorder_find(other, waiting->collective, &call)) {
        if (same_call(&call, waiting))
            return false;
        add(text, "; rank %d makes another call: ", rank);
        add_call(text, &call);
        return true;
    }
    if (!tri_recorder_newest(other, &call)) {
        add(text, "; rank %d has made no call", rank);
        return true;
    }
    if (call.collective >= waiting->collective) /* it is long past */
        return false;
    add(text, "; rank %d has not made it: its newest is ", rank);
    add_call(text, &call);
    return true;
}

/* Is `other` another rank of this process in the communicator of `recorder`? */
static bool is_peer(const struct tri_recorder *other, const struct tri_recorder *recorder)
{
    return other != recorder && other->comm->state == recorder->comm->state;
}

bool tri_report_is_alone(const struct tri_recorder *list, const struct tri_recorder *recorder,
                         const struct tri_recorded *call)
{
    struct tri_recorded newest;
    for (const struct tri_recorder *other = list; call->all_ranks && other != NULL;
         other = other->next)
        if (is_peer(other, recorder) &&
            (!tri_recorder_newest(other, &newest) || newest.collective < call->collective))
            return true;
    return false;
}

/* Nobody's record says why. */
static void add_no_reason(struct text *text, int32_t here, int32_t size)
{
    if (here == size)
        add(text, "; every rank has made it: the stream of one has not reached it, or a device or "
                  "a connection has failed");
    else
        add(text,
            "; the %d ranks of this process have made it, and %d are in other processes or have "
            "closed",
            (int)here, (int)(size - here));
}

void tri_report_timeout(struct tri_report *out, const struct tri_recorder *list,
                        const struct trib_comm *comm, const struct tri_recorded *call,
                        uint64_t waited_ns)
{
    struct text text = {.data = out->sentence, .room = sizeof out->sentence};
    int32_t here = 1, reasons = 0;
    out->sentence[0] = '\0';
    add(&text, "rank %d (device %d) has waited for %.1f s in ", (int)comm->rank, (int)comm->device,
        (double)waited_ns / 1e9);
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
    comm->backend->transport->progress(comm->transport, &progress);
    if (tri_recorder_read(comm->recorder, progress.ended + 1, &call))
        tri_report_timeout(out, list, comm, &call, waited_ns);
}
