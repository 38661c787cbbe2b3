/* The end of local ranks. Freeing them takes half a second and waits for all other work on the
 * devices, so a background job (background.c) does it.
 *
 * Ranks that closed in good order are destroyed. Aborted ranks get their abort flags raised at
 * once, and are freed when no call is in flight. */
#include "csrc/nccl/teardown.h"

#include <stddef.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"

enum { WARN_AFTER_MS = 10000 };

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

/* A rank that is still opening may publish its handle only now. It stays registered until then, so
 * if no call was in flight before a round, that round has aborted every rank. */
static bool prepare_abort(struct tri_nccl_job *job)
{
    struct tri_nccl_local *local = local_of(job);
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

static void finish_abort(struct tri_nccl_job *job)
{
    struct tri_nccl_local *local = local_of(job);
    tri_nccl_free_resources(local);
    (void)tri_nccl_advance(local, TRI_NCCL_ABORTING, TRI_NCCL_GONE);
    tri_nccl_release(local);
}

/* One after the other: only the last one frees, for all. Local ranks must not, and do not, wait for
 * each other in here. */
static void finish_destroy(struct tri_nccl_job *job)
{
    struct tri_nccl_local *local = local_of(job);
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next) {
        ncclResult_t result = rank->comm == NULL ? ncclSuccess : ncclCommDestroy(rank->comm);
        if (result != ncclSuccess)
            tri_log(TRIB_LOG_ERROR, "destroying rank %d on device %d: NCCL returned \"%s\"",
                    (int)rank->rank, (int)rank->device, ncclGetErrorString(result));
    }
    tri_nccl_free_resources(local);
    (void)tri_nccl_advance(local, TRI_NCCL_DESTROYING, TRI_NCCL_GONE);
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
    local->job.finish = finish_destroy;
    post_job(local);
}

void tri_nccl_abort_async(void *context)
{
    struct tri_nccl_local *local = context;
    /* From DESTROYING on, ncclCommDestroy owns the handles, and no work is queued any more. */
    if (!tri_nccl_advance(local, TRI_NCCL_OPEN, TRI_NCCL_ABORTING) &&
        !tri_nccl_advance(local, TRI_NCCL_CLOSING, TRI_NCCL_ABORTING))
        return;
    local->warn_at_ns = tri_deadline_ns(WARN_AFTER_MS);
    local->job.prepare = prepare_abort;
    local->job.finish = finish_abort;
    post_job(local);
}

/* Keep the last reference while an abort may still be running: detach waits for its hook, which
 * adds a reference if it posts a job. If the hook has not run by then it never will, and this call
 * does its work. */
void tri_nccl_release(struct tri_nccl_local *local)
{
    if (!tri_nccl_drop_reference(local, false))
        return;
    tri_abort_detach(local->state);
    tri_nccl_abort_async(local);
    if (tri_nccl_drop_reference(local, true))
        tri_nccl_free_local(local);
}
