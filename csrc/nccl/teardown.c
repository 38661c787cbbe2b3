/* The end of local ranks. Freeing them takes half a second and waits for all other work on the
 * devices, so a background job (background.c) does it.
 *
 * Ranks that closed in good order are destroyed. Aborted ranks get their abort flags raised once the
 * ranks in other processes have stopped, too (tri_abort_may_interrupt): a kernel of NCCL's that ends early
 * hands on what lies in its buffers, and a peer that it reaches ends as if all were well. They are freed when
 * no call is in flight. */
#include "csrc/nccl/teardown.h"

#include <stddef.h>
#include <stdio.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/stopped.h"
#include "csrc/nccl/proxies.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/symmetric.h"

enum { WARN_AFTER_MS = 10000, PATIENCE_MS = 50 };

static struct tri_nccl_local *local_of(struct tri_nccl_job *job)
{
    return (struct tri_nccl_local *)((char *)job - offsetof(struct tri_nccl_local, job));
}

/* Abort one rank that has not been aborted yet. NULL: there is none. */
static struct tri_transport *abort_next(struct tri_nccl_local *local, ncclResult_t *out)
{
    pthread_mutex_lock(&local->lock);
    struct tri_transport *rank = local->ranks;
    while (rank != NULL && (rank->comm == NULL || rank->aborted))
        rank = rank->next;
    if (rank != NULL) {
        rank->aborted = true;
        *out = ncclCommAbort(rank->comm);
    }
    pthread_mutex_unlock(&local->lock);
    return rank;
}

static void abort_ranks(struct tri_nccl_local *local)
{
    const struct tri_transport *rank;
    ncclResult_t result = ncclSuccess;
    while ((rank = abort_next(local, &result)) != NULL)
        if (result != ncclSuccess)
            tri_log(TRIB_LOG_ERROR, "aborting rank %d on device %d: NCCL returned \"%s\"",
                    (int)rank->rank, (int)rank->device, ncclGetErrorString(result));
}

/* The caller's communicator stays as it is. A call that waits inside NCCL returns when the caller
 * aborts that; until then the job is parked, and holds up no other. */
static bool prepare_adopted(const struct tri_nccl_local *local)
{
    const uint32_t in_flight = tri_abort_in_flight(local->state);
    if (in_flight != 0 && tri_now_ns() < local->warn_at_ns)
        return false;
    if (in_flight != 0)
        tri_log(TRIB_LOG_WARN,
                "%u calls of an adopted communicator are inside NCCL %d ms after the abort; they "
                "return when its owner calls ncclCommAbort",
                (unsigned)in_flight, PATIENCE_MS);
    return true;
}

static uint32_t calls_inside(const struct tri_nccl_job *job)
{
    const size_t at = offsetof(struct tri_nccl_local, job);
    const struct tri_nccl_local *local =
        (const struct tri_nccl_local *)(const void *)((const char *)job - at);
    return tri_abort_in_flight(local->state);
}

/* A rank that is still opening may publish its handle only now. It stays registered until then, so
 * if no call was in flight before a round, that round has aborted every rank. */
static bool prepare_abort(struct tri_nccl_local *local)
{
    const uint32_t in_flight = tri_abort_in_flight(local->state);
    abort_ranks(local);
    if (in_flight != 0 && !local->warned && tri_now_ns() > local->warn_at_ns) {
        local->warned = true;
        tri_log(TRIB_LOG_WARN,
                "%u calls are still inside NCCL %d s after the abort; the communicator is "
                "freed when they return",
                (unsigned)in_flight, WARN_AFTER_MS / 1000);
    }
    return in_flight == 0;
}

/* The split that makes these ranks waits inside the parent, which only its owner can end: park, so
 * that aborts of other communicators neither wait for this one nor share its group, and the next
 * communicator is made at once. settle_child aborts a rank that publishes its handle after that. */
static bool prepare_child(struct tri_nccl_local *local)
{
    const uint32_t in_flight = tri_abort_in_flight(local->state);
    abort_ranks(local);
    return in_flight == 0 || tri_now_ns() >= local->warn_at_ns;
}

/* Not before other processes have stopped, too; the owner of an adopted communicator, who aborts it, is told so by
 * trib_abort_state. */
static bool prepare(struct tri_nccl_job *job)
{
    struct tri_nccl_local *local = local_of(job);
    if (!tri_abort_may_interrupt(local->state))
        return false;
    tri_abort_release_streams(local->state); /* those that have refused a call */
    if (local->key.adopted != 0)
        return prepare_adopted(local);
    return local->key.parent_adopted != 0 ? prepare_child(local) : prepare_abort(local);
}

static uint32_t live_graphs(const struct tri_nccl_job *job)
{
    const size_t at = offsetof(struct tri_nccl_local, job);
    const struct tri_nccl_local *local =
        (const struct tri_nccl_local *)(const void *)((const char *)job - at);
    return tri_nccl_graphs_live(local->graphs);
}

static uint32_t settle_abort(struct tri_nccl_job *job)
{
    return tri_nccl_stop_proxies(local_of(job));
}

static uint32_t settle_child(struct tri_nccl_job *job)
{
    abort_ranks(local_of(job));
    return settle_abort(job);
}

static uint32_t settle_destroy(struct tri_nccl_job *job)
{
    return tri_nccl_stopped_proxies(local_of(job));
}

static void finish_abort(struct tri_nccl_job *job)
{
    struct tri_nccl_local *local = local_of(job);
    tri_nccl_push_free(local);
    tri_nccl_free_resources(local);
    (void)tri_nccl_advance(local, TRI_NCCL_ABORTING, TRI_NCCL_GONE);
    tri_abort_reclaimed(local->state);
    tri_nccl_release(local);
}

/* One after the other: only the last one frees, for all. Local ranks must not, and do not, wait for
 * each other in here. */
static void finish_destroy(struct tri_nccl_job *job)
{
    struct tri_nccl_local *local = local_of(job);
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next) {
        const bool ours = rank->comm != NULL && local->key.adopted == 0;
        const ncclResult_t result = ours ? ncclCommDestroy(rank->comm) : ncclSuccess;
        if (result != ncclSuccess)
            tri_log(TRIB_LOG_ERROR, "destroying rank %d on device %d: NCCL returned \"%s\"",
                    (int)rank->rank, (int)rank->device, ncclGetErrorString(result));
    }
    tri_nccl_push_free(local);
    tri_nccl_free_resources(local);
    (void)tri_nccl_advance(local, TRI_NCCL_DESTROYING, TRI_NCCL_GONE);
    tri_abort_reclaimed(local->state);
    tri_nccl_release(local);
}

/* Post with a reference of its own. The stage ensures that this happens once. */
static void post_job(struct tri_nccl_local *local)
{
    tri_nccl_retain(local);
    local->job.device = local->ranks->device;
    tri_nccl_post_job(&local->job);
}

void tri_nccl_destroy_async(struct tri_nccl_local *local)
{
    local->job.settle = settle_destroy;
    local->job.finish = finish_destroy;
    post_job(local);
}

/* Returns false from DESTROYING on: ncclCommDestroy owns the handles, and no work is queued any more. */
static bool post_abort(struct tri_nccl_local *local)
{
    if (!tri_nccl_advance(local, TRI_NCCL_OPEN, TRI_NCCL_ABORTING) &&
        !tri_nccl_advance(local, TRI_NCCL_CLOSING, TRI_NCCL_ABORTING))
        return false;
    const bool adopted = local->key.adopted != 0, child = local->key.parent_adopted != 0;
    local->warn_at_ns = tri_deadline_ns(adopted || child ? PATIENCE_MS : WARN_AFTER_MS);
    local->job.prepare = prepare;
    if (adopted || child)
        local->job.calls = calls_inside;
    if (!adopted)
        local->job.graphs = live_graphs;
    local->job.alone = !adopted && tri_nccl_is_unabortable(local);
    local->job.settle = child ? settle_child : settle_abort;
    local->job.finish = finish_abort;
    post_job(local);
    return true;
}

/* Where no job will, this releases the streams: nothing of this communicator is queued behind what they refuse. (Of an
 * adopted one there may be; trib_allreduce_list says what may happen.) */
void tri_nccl_abort_async(void *context)
{
    struct tri_nccl_local *local = context;
    if (!post_abort(local))
        __atomic_store_n(local->abort_flag, TRI_STOPPED, __ATOMIC_SEQ_CST);
}

static enum tri_nccl_stage stage_of(struct tri_nccl_local *local)
{
    pthread_mutex_lock(&local->lock);
    const enum tri_nccl_stage stage = local->stage;
    pthread_mutex_unlock(&local->lock);
    return stage;
}

/* From DESTROYING on, all queued work has run, or is the caller's. Nobody knows when that of an
 * aborted one is over, if no abort ends it. Before ABORTING the job has not been posted. */
static bool interrupted(void *context, char *text, size_t bytes)
{
    struct tri_nccl_local *local = context;
    const enum tri_nccl_stage stage = stage_of(local);
    if (stage == TRI_NCCL_DESTROYING || stage == TRI_NCCL_GONE)
        return true;
    if (stage != TRI_NCCL_ABORTING || atomic_load(&local->job.prepared_ns) == 0)
        return false;
    if (!tri_nccl_is_unabortable(local))
        return true;
    if (local->key.adopted == 0)
        (void)snprintf(text, bytes, "calls on windows, which no abort ends, or their graphs");
    return false;
}

/* Takes no lock that a thread inside NCCL or CUDA could hold, so it works while the job hangs
 * there. */
static bool parked(void *context, char *text, size_t bytes)
{
    const struct tri_nccl_local *local = context;
    const uint64_t prepared = atomic_load(&local->job.prepared_ns);
    const uint64_t freeing = atomic_load(&local->job.freeing_ns);
    const uint32_t graphs = freeing == 0 ? tri_nccl_graphs_live(local->graphs) : 0;
    const uint64_t since = freeing != 0 ? freeing : prepared;
    const uint64_t ns = since == 0 ? 0 : tri_now_ns() - since;
    const double s = (double)ns / 1e9;
    if (graphs > 0)
        (void)snprintf(text, bytes, "%u live CUDA graph%s that captured its calls, for %.1f s",
                       (unsigned)graphs, graphs == 1 ? "" : "s", s);
    else if (ns >= (uint64_t)TRI_PARKED_AFTER_MS * 1000000u)
        (void)snprintf(text, bytes, "%s, for %.1f s",
                       freeing == 0 ? "the freeing of other communicators"
                                    : "earlier work on a device of its ranks",
                       s);
    return graphs > 0 || ns >= (uint64_t)TRI_PARKED_AFTER_MS * 1000000u;
}

const struct tri_abort_ending tri_nccl_ending = {.interrupted = interrupted, .parked = parked};

static void finish_last(struct tri_nccl_job *job)
{
    struct tri_nccl_local *local = local_of(job);
    tri_nccl_symmetric_end(local);
    tri_nccl_free_local(local);
}

/* Freeing it may wait for the devices. */
static void free_symmetric_later(struct tri_nccl_local *local)
{
    local->job.prepare = NULL;
    local->job.settle = NULL;
    local->job.finish = finish_last;
    local->job.graphs = NULL;
    local->job.calls = NULL;
    local->job.alone = false;
    local->job.device = local->ranks->device;
    tri_nccl_post_job(&local->job);
}

/* Keep the last reference while an abort may still be running: detach waits for its hook, which
 * adds a reference if it posts a job. If the hook has not run by then it never will, and this call
 * does its work. */
void tri_nccl_release(struct tri_nccl_local *local)
{
    if (!tri_nccl_drop_reference(local, false))
        return;
    tri_abort_detach(local->state);
    (void)post_abort(local);
    if (!tri_nccl_drop_reference(local, true))
        return;
    if (tri_nccl_has_symmetric(local))
        free_symmetric_later(local);
    else
        tri_nccl_free_local(local);
}
