/* The calls that a communicator is about to issue. */
#include "csrc/core/batch.h"

#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/types.h"
#include "csrc/core/issue.h"
#include "csrc/core/match.h"
#include "csrc/core/room.h"
#include "csrc/core/validate.h"

enum { SCRATCH_ALIGN = 256 };

static trib_status make_copies(const struct trib_comm *comm)
{
    const struct tri_batch *batch = &comm->batch;
    for (size_t i = 0; i < batch->ncopies; i++) {
        const struct tri_copy *copy = &batch->copies[i];
        TRI_TRY(comm->backend->device->copy(comm->device, copy->to, copy->from, copy->bytes,
                                            batch->stream));
    }
    return TRIB_OK;
}

trib_status tri_batch_prepare(struct trib_comm *comm)
{
    const struct tri_batch *batch = &comm->batch;
    if (!batch->uses_workspace)
        return TRIB_OK;
    TRI_TRY(tri_room_wait(comm, batch->capture, batch->stream));
    const trib_status status = make_copies(comm);
    return status == TRIB_OK ? TRIB_OK : tri_batch_mark(comm, status);
}

trib_status tri_batch_mark(struct trib_comm *comm, trib_status status)
{
    const struct tri_batch *batch = &comm->batch;
    if (!batch->uses_workspace)
        return status;
    const trib_status end = tri_room_mark(comm, batch->capture, batch->stream);
    return status != TRIB_OK ? status : end;
}

static trib_status queue_batch(struct trib_comm *comm)
{
    const struct tri_batch *batch = &comm->batch;
    TRI_TRY(tri_batch_prepare(comm));
    return tri_batch_mark(comm, tri_issue(comm, &batch->record, batch->calls, batch->n));
}

/* The first call of this kind with the rank itself, from calls[i] on; n: none. */
static size_t to_self(const struct trib_comm *comm, enum tri_kind kind, size_t i)
{
    const struct tri_batch *batch = &comm->batch;
    while (i < batch->n && (batch->calls[i].kind != kind || batch->calls[i].peer != comm->rank))
        i++;
    return i;
}

/* A send of this rank to itself has its receive in the same batch, in the same order: no other rank
 * could end the wait. */
static trib_status check_self(const struct trib_comm *comm)
{
    const struct tri_batch *batch = &comm->batch;
    size_t send = to_self(comm, TRI_SEND, 0), recv = to_self(comm, TRI_RECV, 0), pairs = 0;
    while (send < batch->n && recv < batch->n) {
        const struct tri_call *sent = &batch->calls[send], *wanted = &batch->calls[recv];
        if (sent->count != wanted->count || sent->dtype != wanted->dtype)
            return tri_fail_call(comm, TRI_BATCH, TRIB_ERR_MISMATCH,
                                 "message %zu of this rank to itself is %zu elements of %s, and "
                                 "its receive takes %zu of %s: give both the same count and type",
                                 pairs, sent->count, trib_dtype_name(sent->dtype), wanted->count,
                                 trib_dtype_name(wanted->dtype));
        send = to_self(comm, TRI_SEND, send + 1);
        recv = to_self(comm, TRI_RECV, recv + 1);
        pairs++;
    }
    if (send == batch->n && recv == batch->n)
        return TRIB_OK;
    return tri_fail_call(comm, TRI_BATCH, TRIB_ERR_INVALID_USAGE,
                         "message %zu of this rank to itself has no %s and would wait for ever: "
                         "put each send to itself and its receive into the same batch",
                         pairs, send == batch->n ? "send" : "receive");
}

static void empty(struct tri_batch *batch)
{
    batch->n = 0;
    batch->ncopies = 0;
    batch->scratch = 0;
    batch->members = 0;
    batch->bytes = 0;
    batch->uses_workspace = false;
    batch->capture = 0;
}

trib_status tri_batch_settle(struct trib_comm *comm, trib_status status)
{
    struct tri_batch *batch = &comm->batch;
    if (status == TRIB_OK) {
        comm->backend_calls += batch->n != 0;
        comm->calls += batch->members;
        comm->bytes += batch->bytes;
    }
    empty(batch);
    return tri_match_done(comm, status);
}

/* Issue the recorded calls as one. */
static trib_status flush(struct trib_comm *comm)
{
    return tri_batch_settle(comm, comm->batch.n == 0 ? TRIB_OK : queue_batch(comm));
}

trib_status tri_batch_begin(struct trib_comm *comm)
{
    struct tri_batch *batch = &comm->batch;
    TRI_TRY(tri_comm_usable(comm, TRI_BATCH_BEGIN));
    if (batch->open)
        return tri_batch_fail(comm, tri_fail(TRIB_ERR_INVALID_USAGE,
                                             "trib_batch_begin on rank %d: a batch is open, and "
                                             "batches do not nest: call trib_batch_end first",
                                             comm->rank));
    batch->open = true;
    batch->status = TRIB_OK;
    batch->collectives = 0;
    batch->signature = 0;
    return TRIB_OK;
}

/* Scratch of a graph does not outlive it, and no graph may use the workspace. */
static trib_status check_capture(const struct trib_comm *comm, uint64_t capture)
{
    const struct tri_batch *batch = &comm->batch;
    if (!batch->uses_workspace || capture == batch->capture)
        return TRIB_OK;
    return tri_fail_call(comm, TRI_BATCH, TRIB_ERR_INVALID_USAGE,
                         "a capture of `stream` began or ended inside of the batch: begin and end "
                         "it outside");
}

trib_status tri_batch_close(struct trib_comm *comm)
{
    struct tri_batch *batch = &comm->batch;
    const bool open = batch->open;
    batch->open = false;
    TRI_TRY(tri_comm_usable(comm, TRI_BATCH));
    if (!open)
        return tri_fail(TRIB_ERR_INVALID_USAGE,
                        "trib_batch_end on rank %d: no batch is open: call trib_batch_begin first",
                        comm->rank);
    if (batch->status != TRIB_OK)
        return tri_fail(batch->status, "%s", batch->detail);
    TRI_TRY(check_self(comm));
    return batch->uses_workspace ? check_capture(comm, tri_capture_of(comm, batch->stream))
                                 : TRIB_OK;
}

bool tri_batch_matches(const struct trib_comm *comm)
{
    return (comm->flags & TRIB_MATCH) != 0 && comm->batch.collectives != 0;
}

trib_status tri_batch_match(struct trib_comm *comm)
{
    const struct tri_batch *batch = &comm->batch;
    const struct tri_signature signature = {
        .operation = TRI_BATCH, .count = batch->collectives, .digest = batch->signature};
    return tri_batch_matches(comm) ? tri_match(comm, &signature, batch->stream) : TRIB_OK;
}

trib_status tri_batch_end(struct trib_comm *comm)
{
    trib_status status = tri_batch_close(comm);
    if (status == TRIB_OK)
        status = tri_batch_match(comm);
    if (status == TRIB_OK)
        return flush(comm);
    empty(&comm->batch);
    return status;
}

void tri_batch_drop(struct trib_comm *comm)
{
    comm->batch.open = false;
    empty(&comm->batch);
}

/* The check that only a batch of several calls needs. */
static trib_status join(struct trib_comm *comm, int operation, const struct tri_call *call)
{
    const struct tri_batch *batch = &comm->batch;
    if (batch->members == 0 || call->stream == batch->stream)
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_USAGE,
                         "`stream` (%p) is not the stream that this batch began with (%p): use the "
                         "same stream for all calls of a batch",
                         call->stream, batch->stream);
}

static trib_status match_call(struct trib_comm *comm, int operation, const struct tri_call *call,
                              uint64_t digest)
{
    struct tri_batch *batch = &comm->batch;
    const struct tri_signature signature = tri_signature(operation, call, digest);
    if (!batch->open)
        return tri_match(comm, &signature, call->stream);
    TRI_TRY(tri_check_not_captured(comm, operation, call->stream));
    batch->collectives++;
    batch->signature = tri_digest(batch->signature, &signature, sizeof signature);
    return TRIB_OK;
}

/* A batch of several calls is recorded as one, which all ranks make if they make any of it. */
static void record_member(struct tri_batch *batch, int operation, const struct tri_call *call)
{
    const bool all_ranks = batch->members > 0 && batch->record.all_ranks;
    batch->record = tri_recorded_of(operation, call);
    if (batch->members == 0)
        return;
    batch->record.operation = TRI_BATCH;
    batch->record.count = batch->members + 1;
    batch->record.dtype = batch->record.op = 0;
    batch->record.peer = -1;
    batch->record.all_ranks |= all_ranks;
}

trib_status tri_batch_begin_call(struct trib_comm *comm, int operation, const struct tri_call *call,
                                 uint64_t digest)
{
    const bool matches = (comm->flags & TRIB_MATCH) != 0 && tri_is_collective(operation);
    trib_status status = comm->batch.open ? join(comm, operation, call) : TRIB_OK;
    if (status == TRIB_OK && matches)
        status = match_call(comm, operation, call, digest);
    comm->batch.operation = operation;
    if (status == TRIB_OK) {
        comm->batch.stream = call->stream;
        record_member(&comm->batch, operation, call);
    }
    return status;
}

static trib_status grow(struct tri_batch *batch)
{
    const size_t capacity = 2 * batch->capacity;
    struct tri_call *calls = realloc(batch->calls, capacity * sizeof *calls);
    if (calls == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for a batch of %zu calls", capacity);
    batch->calls = calls;
    batch->capacity = capacity;
    return TRIB_OK;
}

trib_status tri_batch_record(struct trib_comm *comm, const struct tri_call *call)
{
    struct tri_batch *batch = &comm->batch;
    if (batch->n == batch->capacity)
        TRI_TRY(grow(batch));
    batch->calls[batch->n] = *call;
    batch->calls[batch->n++].transport = comm->transport;
    return TRIB_OK;
}

/* If the workspace grows here, earlier scratch of the batch stays in the old block, which lives
 * on. Of a graph each call gets a block of its own. */
trib_status tri_batch_scratch(struct trib_comm *comm, void **out, size_t bytes)
{
    struct tri_batch *batch = &comm->batch;
    const uint64_t capture = tri_capture_of(comm, batch->stream);
    const size_t size = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    TRI_TRY(check_capture(comm, capture));
    if (capture != 0) {
        struct tri_room room;
        TRI_TRY(tri_room_capture(&room, comm, batch->stream, capture, size));
        *out = room.data;
    } else {
        TRI_TRY(tri_comm_reserve(comm, batch->scratch + size));
        *out = (char *)tri_workspace_data(&comm->workspace) + batch->scratch;
        batch->scratch += size;
    }
    batch->capture = capture;
    batch->uses_workspace = true;
    return TRIB_OK;
}

static trib_status grow_copies(struct tri_batch *batch)
{
    const size_t capacity = 2 * batch->copies_capacity + 1;
    struct tri_copy *copies = realloc(batch->copies, capacity * sizeof *copies);
    if (copies == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for a batch of %zu copies", capacity);
    batch->copies = copies;
    batch->copies_capacity = capacity;
    return TRIB_OK;
}

trib_status tri_batch_stage(struct trib_comm *comm, const void **out, const void *data,
                            size_t bytes)
{
    struct tri_batch *batch = &comm->batch;
    void *to = NULL;
    if (batch->ncopies == batch->copies_capacity)
        TRI_TRY(grow_copies(batch));
    TRI_TRY(tri_batch_scratch(comm, &to, bytes));
    batch->copies[batch->ncopies++] = (struct tri_copy){.to = to, .from = data, .bytes = bytes};
    *out = to;
    return TRIB_OK;
}

trib_status tri_batch_submit(struct trib_comm *comm, trib_status status, size_t bytes)
{
    struct tri_batch *batch = &comm->batch;
    if (status != TRIB_OK)
        return tri_batch_fail(comm, status);
    batch->members++;
    batch->bytes += bytes;
    return batch->open ? TRIB_OK : flush(comm);
}

trib_status tri_batch_fail(struct trib_comm *comm, trib_status status)
{
    struct tri_batch *batch = &comm->batch;
    if (!batch->open) {
        empty(batch);
        (void)tri_match_done(comm, status);
    } else if (batch->status == TRIB_OK) {
        batch->status = status;
        (void)snprintf(batch->detail, sizeof batch->detail, "%s", tri_detail());
    }
    return status;
}
