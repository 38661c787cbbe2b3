/* Closing in good order: the last local rank to close finalizes and destroys all of them. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/leave.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/task.h"
#include "csrc/nccl/teardown.h"
#include "csrc/nccl/windows.h"

enum { GRAPHS_NS = 1000000 };

struct closing {
    struct tri_nccl_task task;
    struct tri_nccl_local *local; /* a reference */
};

/* Wait until all queued work has run on every local rank, and on the other processes as far as NCCL
 * requires. This only waits for streams. Queueing another operation instead would not do: its
 * kernel might have to wait for a kernel of another communicator, whose peer waits for us. */
static trib_status finalize(struct tri_nccl_local *local)
{
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device(&guard, local->ranks->device));
    ncclResult_t result = ncclGroupStart();
    if (result == ncclSuccess) {
        for (struct tri_transport *rank = local->ranks; result == ncclSuccess && rank != NULL;
             rank = rank->next)
            result = ncclCommFinalize(rank->comm);
        const ncclResult_t end = ncclGroupEnd();
        result = result != ncclSuccess ? result : end;
    }
    tri_nccl_pop_device(&guard);
    if (result == ncclSuccess)
        return TRIB_OK;
    return tri_nccl_fail(result, "close", local->ranks->rank, local->ranks->device);
}

/* Wait until `stream` is done, or an abort. */
static trib_status wait_quietly(const struct tri_nccl_local *local, cudaStream_t stream,
                                int32_t device)
{
    for (long pause_us = 10; tri_abort_live(local->state);
         pause_us = pause_us < 1000 ? pause_us * 2 : 1000) {
        bool done = false;
        trib_status status = tri_nccl_stream_query(device, stream, &done);
        if (status != TRIB_OK || done)
            return status;
        const struct timespec pause = {0, pause_us * 1000};
        (void)nanosleep(&pause, NULL);
    }
    return tri_abort_status(local->state);
}

/* Wait until the newest call of a rank has ended that NCCL does not know of. */
static trib_status finish_rank(const struct tri_nccl_local *local, const struct tri_transport *rank)
{
    if (!rank->order.queued)
        return TRIB_OK;
    trib_status status = tri_nccl_stream_wait_event(rank->device, rank->order.event, rank->stream);
    return status == TRIB_OK ? wait_quietly(local, rank->stream, rank->device) : status;
}

/* Copies of a communicator of one rank, and what push served. */
static trib_status finish_others(const struct tri_nccl_local *local)
{
    for (const struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        TRI_TRY(finish_rank(local, rank));
    return TRIB_OK;
}

/* NCCL would wait for live graphs too, but an abort would not end that wait. No more calls are
 * captured. */
static void await_graphs(const struct tri_nccl_local *local)
{
    while (tri_nccl_graphs_live(local->graphs) > 0 && tri_abort_live(local->state))
        tri_nap_ns(GRAPHS_NS);
}

/* Registered with the abort state: an abort that arrives now raises NCCL's flags, which end the
 * wait, and frees only when nothing here uses NCCL or the streams any more. Windows end while NCCL's proxies run,
 * which finalizing ends; for that NCCL clears a few bytes on each device, and waits. */
static trib_status finish_work(struct tri_nccl_local *local)
{
    await_graphs(local);
    if (!tri_abort_register(local->state))
        return tri_abort_status(local->state);
    trib_status status = finish_others(local);
    if (status == TRIB_OK && local->ranks->size > 1) {
        tri_nccl_close_windows(local);
        status = finalize(local);
    }
    tri_abort_unregister(local->state);
    return status;
}

static trib_status run_closing(struct tri_nccl_task *task)
{
    struct tri_nccl_local *local = ((struct closing *)task)->local;
    trib_status status = finish_work(local);
    if (status != TRIB_OK)
        return tri_nccl_raise_abort(local, status); /* a background job releases it */
    if (!tri_nccl_advance(local, TRI_NCCL_CLOSING, TRI_NCCL_DESTROYING))
        return tri_abort_status(local->state);
    tri_nccl_destroy_async(local);
    return TRIB_OK;
}

static void free_closing(struct tri_nccl_task *task)
{
    tri_nccl_release(((struct closing *)task)->local);
    free(task);
}

static trib_status fail_late(const struct tri_nccl_local *local, uint32_t timeout_ms)
{
    const uint32_t graphs = tri_nccl_graphs_live(local->graphs);
    if (graphs > 0)
        return tri_fail(TRIB_ERR_TIMEOUT,
                        "close: after %u ms, CUDA graphs that captured calls of the communicator "
                        "of %d ranks were alive (%u); it was aborted, and is freed when they are "
                        "destroyed. Destroy them before the close",
                        (unsigned)timeout_ms, (int)local->ranks->size, (unsigned)graphs);
    return tri_fail(TRIB_ERR_TIMEOUT,
                    "close: after %u ms, work queued on the communicator of %d ranks had not run "
                    "on all of them, or not every process had closed it; it was aborted, and is "
                    "freed in the background. The usual reason: a rank never made a call",
                    (unsigned)timeout_ms, (int)local->ranks->size);
}

/* Close the local ranks, all of which have closed. */
static trib_status close_local(struct tri_nccl_local *local, uint32_t timeout_ms)
{
    bool timed_out = false;
    if (local->key.adopted != 0) { /* NCCL's part goes on */
        if (tri_nccl_advance(local, TRI_NCCL_CLOSING, TRI_NCCL_DESTROYING))
            tri_nccl_destroy_async(local);
        return tri_abort_status(local->state);
    }
    struct closing *closing = calloc(1, sizeof *closing);
    if (closing == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for closing");
        return tri_nccl_raise_abort(local, TRIB_ERR_OUT_OF_MEMORY);
    }
    tri_nccl_retain(local);
    closing->local = local;
    closing->task.run = run_closing;
    closing->task.free = free_closing;
    trib_status status =
        tri_nccl_task_run(&closing->task, local->state, tri_deadline_ns(timeout_ms), &timed_out);
    if (timed_out)
        status = fail_late(local, timeout_ms);
    return status == TRIB_OK ? TRIB_OK : tri_nccl_raise_abort(local, status);
}

/* A rank that leaves with unmatched calls aborts the local ranks, and every rank that closes
 * afterwards gets that error: its queued work may not have run. */
static trib_status status_after_mismatch(struct tri_nccl_local *local)
{
    if (tri_abort_live(local->state))
        return TRIB_OK;
    const trib_status status = tri_abort_status(local->state);
    return status == TRIB_ERR_CLOSED ? status : TRIB_OK;
}

trib_status tri_nccl_close(struct tri_transport *transport, uint32_t timeout_ms)
{
    struct tri_nccl_local *local = transport->local;
    pthread_mutex_lock(&local->lock);
    const bool open = local->stage == TRI_NCCL_OPEN;
    const bool matched = !open || tri_nccl_mark_left(transport);
    const bool last = ++local->closed == local->joined && open && matched;
    if (last)
        local->stage = TRI_NCCL_CLOSING;
    pthread_mutex_unlock(&local->lock);
    if (!matched) {
        (void)tri_abort_raise_lost(local->state, TRIB_ERR_CLOSED, tri_detail(), &transport->rank,
                                   1);
        return tri_abort_status(local->state);
    }
    return last ? close_local(local, timeout_ms) : status_after_mismatch(local);
}
