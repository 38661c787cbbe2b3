/* A training step: gradients get ready, buckets are queued in their order, the step ends. */
#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/batch.h"
#include "csrc/core/match.h"
#include "csrc/core/room.h"
#include "csrc/core/validate.h"
#include "csrc/reducer/on_stream.h"
#include "csrc/reducer/states.h"

/* `stream` goes on when `other` has come to here. One event serves all: a wait is for its newest
 * record. */
static trib_status wait_for(const struct trib_reducer *reducer, trib_stream other,
                            trib_stream stream)
{
    const struct tri_device_ops *ops = reducer->backend->device;
    if (stream == other)
        return TRIB_OK;
    TRI_TRY(ops->event_record(reducer->device, reducer->event, other));
    return ops->stream_wait_event(reducer->device, reducer->event, stream);
}

/* `stream` waits for every other one on which a gradient of bucket `b` was made; for one that comes
 * in turns with others more than once. */
static trib_status wait_for_gradients(const struct trib_reducer *reducer, size_t b,
                                      trib_stream stream)
{
    const struct tri_gradient_bucket *bucket = &reducer->layout.buckets[b];
    const struct tri_readiness *before = NULL;
    for (size_t i = bucket->first; i < bucket->first + bucket->n; i++) {
        const struct tri_readiness *of = &reducer->readiness[reducer->layout.owners[i]];
        if (!of->ready || (before != NULL && before->stream == of->stream))
            continue;
        if (tri_capture_of(reducer->comm, of->stream) != reducer->capture)
            return tri_fail_call(reducer->comm, TRI_REDUCER_READY, TRIB_ERR_INVALID_USAGE,
                                 "a capture of the stream of gradient %zu began or ended inside of "
                                 "the step: begin and end it outside",
                                 reducer->layout.owners[i]);
        TRI_TRY(wait_for(reducer, of->stream, stream));
        before = of;
    }
    return TRIB_OK;
}

/* A state compares its calls by itself, and counts them. */
static trib_status queue_sparse(struct trib_reducer *reducer, size_t b, const bool *absent,
                                trib_stream stream)
{
    TRI_TRY(tri_reducer_run_bucket(reducer, b, absent, stream));
    return tri_reducer_states_run(reducer, b, stream);
}

static trib_status match_bucket(const struct trib_reducer *reducer, size_t b, trib_stream stream)
{
    const struct tri_gradient_bucket *bucket = &reducer->layout.buckets[b];
    const struct tri_call call = {.count = bucket->count, .dtype = bucket->dtype};
    const struct tri_signature signature = tri_signature(TRI_REDUCER_READY, &call, b);
    return (reducer->comm->flags & TRIB_MATCH) == 0 ? TRIB_OK
                                                    : tri_match(reducer->comm, &signature, stream);
}

/* `absent`: see tri_reducer_run_bucket. */
static trib_status queue_bucket(struct trib_reducer *reducer, size_t b, const bool *absent,
                                trib_stream stream)
{
    struct trib_comm *comm = reducer->comm;
    const struct tri_gradient_bucket *bucket = &reducer->layout.buckets[b];
    TRI_TRY(tri_comm_usable(comm, TRI_REDUCER_READY));
    TRI_TRY(wait_for_gradients(reducer, b, stream));
    if (reducer->states != NULL)
        return queue_sparse(reducer, b, absent, stream);
    TRI_TRY(match_bucket(reducer, b, stream));
    TRI_TRY(tri_match_done(comm, tri_reducer_run_bucket(reducer, b, absent, stream)));
    comm->calls++;
    comm->backend_calls++;
    comm->bytes += bucket->count * trib_dtype_size(bucket->dtype);
    return TRIB_OK;
}

/* Keep the first failure for the finish. The other ranks wait for this one, unless it has closed:
 * then it makes no calls, as all know. */
static void note(struct trib_reducer *reducer, trib_status status)
{
    if (status == TRIB_OK || reducer->failed != TRIB_OK)
        return;
    reducer->failed = status;
    reducer->detail = tri_detail_copy();
    if (!reducer->comm->closed)
        (void)tri_abort_raise(reducer->comm->state, status, reducer->detail.text);
}

/* How many buckets are queued as they become complete. The last one is left to the finish, on whose
 * stream nothing lies between the last gradient and its reduction; but see end_on. */
static size_t early(const struct trib_reducer *reducer)
{
    const size_t n = reducer->layout.nbuckets;
    return n > 0 && reducer->capture == 0 ? n - 1 : n;
}

/* Queue the buckets that are complete, unless another thread does; that one then also queues those
 * that have become complete meanwhile. The lock is held, but while a bucket is queued. */
static void queue_complete(struct trib_reducer *reducer)
{
    while (!reducer->queuing && reducer->next < early(reducer) &&
           reducer->missing[reducer->next] == 0) {
        const size_t b = reducer->next;
        reducer->queuing = true;
        tri_unlock(&reducer->lock);
        if (reducer->failed == TRIB_OK)
            note(reducer, queue_bucket(reducer, b, NULL, reducer->stream));
        tri_lock(&reducer->lock);
        reducer->queuing = false;
        reducer->next++;
    }
}

static trib_status fail_mixed(const struct trib_reducer *reducer, int operation)
{
    return tri_fail_call(reducer->comm, operation, TRIB_ERR_INVALID_USAGE,
                         "this call and the first one of the step are not in the same capture: a "
                         "CUDA graph captures all calls of a step, or none; if the step's capture "
                         "has ended, destroy the reducer and create another");
}

/* Can the step, or what there is of it, be captured? */
static trib_status check_captured(const struct trib_reducer *reducer, int operation)
{
    const struct trib_comm *comm = reducer->comm;
    if ((comm->flags & TRIB_MATCH) != 0)
        return tri_fail_captured(comm, operation);
    if (reducer->learning)
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "`stream` is being captured, and the first step with "
                             "TRIB_REDUCER_LEARN_ORDER waits for all ranks: make it before the "
                             "capture");
    return tri_reducer_states_check_captured(reducer, operation);
}

/* Can a call whose stream is in `capture` begin a step? */
static trib_status check_begin(const struct trib_reducer *reducer, int operation, uint64_t capture)
{
    const uint64_t busy = tri_capture_of(reducer->comm, reducer->stream);
    if (busy != 0 && busy != capture)
        return tri_fail_call(reducer->comm, operation, TRIB_ERR_INVALID_USAGE,
                             "a CUDA graph is capturing an earlier step: end that capture first");
    return capture == 0 ? TRIB_OK : check_captured(reducer, operation);
}

static trib_status check_ready(const struct trib_reducer *reducer, size_t i, trib_stream stream)
{
    const struct trib_comm *comm = reducer->comm;
    if (i >= reducer->n)
        return tri_fail_call(comm, TRI_REDUCER_READY, TRIB_ERR_INVALID_ARGUMENT,
                             "`i` is %zu; the reducer has %zu gradients", i, reducer->n);
    if (comm->batch.open)
        return tri_fail_call(comm, TRI_REDUCER_READY, TRIB_ERR_INVALID_USAGE,
                             "a batch is open: call trib_batch_end first");
    return stream == __atomic_load_n(&reducer->known, __ATOMIC_RELAXED)
               ? TRIB_OK
               : tri_check_stream(comm, TRI_REDUCER_READY, stream);
}

/* The step takes gradient `i`. Streams of the step live until its finish, so this one, which was
 * checked, stays what it is; the stream of a call that is refused need not. */
static void take(struct trib_reducer *reducer, size_t i, trib_stream stream)
{
    const struct tri_gradient *gradient = &reducer->layout.gradients[i];
    reducer->readiness[i] = (struct tri_readiness){.stream = stream, .ready = true};
    __atomic_store_n(&reducer->known, stream, __ATOMIC_RELAXED);
    if (reducer->learning)
        reducer->order[reducer->nordered++] = i;
    if (gradient->bucket != TRI_NO_BUCKET)
        reducer->missing[gradient->bucket]--;
    queue_complete(reducer);
}

enum answer { TAKEN, NO_STEP, MIXED, TWICE };

/* `begins`: a step may begin with it. */
static enum answer offer(struct trib_reducer *reducer, size_t i, trib_stream stream,
                         uint64_t capture, bool begins)
{
    enum answer answer = TAKEN;
    tri_lock(&reducer->lock);
    if (!reducer->open && begins) {
        reducer->open = true;
        reducer->capture = capture; /* later a thread that queues a bucket reads it */
    }
    if (!reducer->open)
        answer = NO_STEP;
    else if (reducer->capture != capture)
        answer = MIXED;
    else if (reducer->readiness[i].ready)
        answer = TWICE;
    else
        take(reducer, i, stream);
    tri_unlock(&reducer->lock);
    return answer;
}

/* One lock, and one question to the driver: has a capture of the stream begun or ended? */
trib_status tri_reducer_ready(struct trib_reducer *reducer, size_t i, trib_stream stream)
{
    TRI_TRY(check_ready(reducer, i, stream));
    const uint64_t capture = tri_capture_of(reducer->comm, stream);
    enum answer answer = offer(reducer, i, stream, capture, false);
    if (answer == NO_STEP) {
        TRI_TRY(check_begin(reducer, TRI_REDUCER_READY, capture));
        answer = offer(reducer, i, stream, capture, true);
    }
    if (answer == MIXED)
        return fail_mixed(reducer, TRI_REDUCER_READY);
    return answer == TAKEN
               ? TRIB_OK
               : tri_fail_call(reducer->comm, TRI_REDUCER_READY, TRIB_ERR_INVALID_USAGE,
                               "gradient %zu is ready already in this step: each is ready once "
                               "between two calls of trib_reducer_finish",
                               i);
}

/* -------------------------------------------------------------------------------------- the end */

bool tri_reducer_rejoin(struct trib_reducer *reducer)
{
    if (reducer->apart)
        reducer->apart = reducer->memory.lost ||
                         tri_workspace_wait(&reducer->memory, reducer->stream) != TRIB_OK;
    return !reducer->apart;
}

/* The stream on which the step ends: that of the finish, which needs no hop to another one and back.
 * In a capture the reducer's own, which shows which graph has the step. If the one cannot wait for the
 * other, the own one again, with what was queued there before. */
static trib_stream end_on(struct trib_reducer *reducer, trib_stream stream)
{
    if (reducer->capture == 0 && reducer->failed == TRIB_OK) {
        const trib_status status = wait_for(reducer, reducer->stream, stream);
        if (status == TRIB_OK)
            return stream;
        note(reducer, status);
    }
    note(reducer, wait_for(reducer, stream, reducer->stream));
    return reducer->stream;
}

static trib_status queue_rest(struct trib_reducer *reducer, size_t b, trib_stream stream)
{
    const struct tri_gradient_bucket *bucket = &reducer->layout.buckets[b];
    bool *absent = calloc(bucket->n, sizeof *absent);
    if (absent == NULL)
        return tri_fail_call(reducer->comm, TRI_REDUCER_FINISH, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to queue a bucket");
    for (size_t i = 0; i < bucket->n; i++)
        absent[i] = !reducer->readiness[reducer->layout.owners[bucket->first + i]].ready;
    const trib_status status =
        queue_bucket(reducer, b, reducer->missing[b] == 0 ? NULL : absent, stream);
    free(absent);
    return status;
}

static void begin_next(struct trib_reducer *reducer)
{
    memset(reducer->readiness, 0, reducer->n * sizeof *reducer->readiness);
    for (size_t b = 0; b < reducer->layout.nbuckets; b++)
        reducer->missing[b] = reducer->layout.buckets[b].n;
    reducer->next = 0;
    reducer->nordered = 0;
    reducer->open = false;
    reducer->known = NULL;
    reducer->failed = TRIB_OK;
}

static trib_status check_finish(struct trib_reducer *reducer, trib_stream stream)
{
    const struct trib_comm *comm = reducer->comm;
    if (comm->batch.open)
        return tri_fail_call(comm, TRI_REDUCER_FINISH, TRIB_ERR_INVALID_USAGE,
                             "a batch is open: call trib_batch_end first");
    TRI_TRY(tri_check_stream(comm, TRI_REDUCER_FINISH, stream));
    const uint64_t capture = tri_capture_of(comm, stream);
    if (reducer->open)
        return reducer->capture == capture ? TRIB_OK : fail_mixed(reducer, TRI_REDUCER_FINISH);
    TRI_TRY(check_begin(reducer, TRI_REDUCER_FINISH, capture));
    reducer->capture = capture;
    return TRIB_OK;
}

/* Mark the memory of a step that has ended on `end`. */
static void mark_end(struct trib_reducer *reducer, trib_stream end)
{
    uint64_t deadline_ns = 0;
    note(reducer, tri_reducer_states_mark(reducer, end, &deadline_ns));
    note(reducer, tri_workspace_mark_by(&reducer->memory, reducer->comm->state, end, &deadline_ns));
}

/* Make `stream` go on when the step, which has ended on `end`, has run, and the reducer's own stream
 * too, by another event if need be. In a capture the graph orders what it holds, and the events of the
 * memory have no meaning: replays are not tracked. */
static void let_wait(struct trib_reducer *reducer, trib_stream end, trib_stream stream)
{
    if (reducer->capture != 0) {
        tri_abort_keep_flag(reducer->comm->state); /* the last replay is unknown */
        note(reducer, wait_for(reducer, end, stream));
        return;
    }
    mark_end(reducer, end);
    const trib_status status =
        tri_workspace_wait(&reducer->memory, end == stream ? reducer->stream : stream);
    note(reducer, status);
    if (status != TRIB_OK || reducer->memory.lost)
        reducer->apart = wait_for(reducer, end, reducer->stream) != TRIB_OK;
}

/* The step ends whatever has failed; its memory is marked, and `stream` waits for it, as far as that
 * works. */
static void queue_end(struct trib_reducer *reducer, trib_stream stream)
{
    struct trib_comm *comm = reducer->comm;
    const trib_stream end = end_on(reducer, stream);
    for (; reducer->next < reducer->layout.nbuckets; reducer->next++)
        if (reducer->failed == TRIB_OK)
            note(reducer, queue_rest(reducer, reducer->next, end));
    note(reducer,
         comm->closed ? tri_reducer_take_back(reducer, end) : tri_reducer_run_end(reducer, end));
    let_wait(reducer, end, stream);
}

/* Behind a step whose end nothing can wait for nothing is queued: its communicator is over. */
trib_status tri_reducer_finish(struct trib_reducer *reducer, trib_stream stream)
{
    struct trib_comm *comm = reducer->comm;
    const trib_status mistake = check_finish(reducer, stream);
    if (mistake != TRIB_OK)
        return tri_batch_fail(comm, mistake);
    const bool joined = tri_reducer_rejoin(reducer);
    note(reducer, comm->closed || !joined ? tri_comm_usable(comm, TRI_REDUCER_FINISH) : TRIB_OK);
    if (joined)
        queue_end(reducer, stream);
    if (reducer->learning && reducer->failed == TRIB_OK)
        note(reducer, tri_reducer_learn(reducer));
    const trib_status failed = reducer->failed;
    const struct tri_detail_copy why = reducer->detail;
    begin_next(reducer);
    return failed == TRIB_OK ? TRIB_OK : tri_fail(failed, "%s", why.text);
}

/* ---------------------------------------------------------------------------------------- status */

trib_status tri_reducer_status(const struct trib_reducer *reducer)
{
    TRI_TRY(tri_comm_status(reducer->comm));
    switch (__atomic_load_n(&reducer->counts->newest, __ATOMIC_ACQUIRE)) {
    case TRI_COMMIT_WEIGHTS:
        return tri_fail_call(reducer->comm, TRI_REDUCER_STATUS, TRIB_ERR_NON_FINITE,
                             "in the last step a rank's weight was negative or not finite, or they "
                             "summed to 0 or to more than an f32 holds; no gradient was written");
    case TRI_COMMIT_CALL:
        return tri_fail_call(reducer->comm, TRI_REDUCER_STATUS, TRIB_ERR_NON_FINITE,
                             "in the last step a gradient or a residual of a rank, or a sum of "
                             "them, was not finite; no rank applied the step, and no residual has "
                             "changed: lower the loss scale, and go on with the next step");
    default:
        return TRIB_OK;
    }
}
