/* The end of a clique in good order: the last rank of the process to close does it for all. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/clique.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/leave.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/task.h"

struct farewell {
    struct tri_nccl_task task;
    struct tri_nccl_clique *clique; /* a reference */
};

/* Wait until everything that was queued has run, on every local rank, and with the other processes
 * as NCCL sees fit. It only waits for streams. Another operation queued behind would not do: its
 * kernel might have to wait for one of another communicator, whose partner waits for us. */
static trib_status finalize(struct tri_nccl_clique *clique)
{
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter(&scope, clique->ranks->device);
    if (status != TRIB_OK)
        return status;
    ncclResult_t result = ncclGroupStart();
    if (result == ncclSuccess) {
        for (struct tri_transport *rank = clique->ranks; result == ncclSuccess && rank != NULL;
             rank = rank->next)
            result = ncclCommFinalize(rank->comm);
        const ncclResult_t end = ncclGroupEnd();
        result = result != ncclSuccess ? result : end;
    }
    tri_nccl_leave(&scope);
    if (result == ncclSuccess)
        return TRIB_OK;
    return tri_nccl_fail(result, "close", clique->ranks->rank, clique->ranks->device);
}

/* Until `stream` is done, or the clique stopped. */
static trib_status wait_quietly(const struct tri_nccl_clique *clique, cudaStream_t stream,
                                int32_t device)
{
    for (long pause_us = 10; tri_abort_live(clique->state);
         pause_us = pause_us < 1000 ? pause_us * 2 : 1000) {
        bool done = false;
        trib_status status = tri_nccl_stream_query(device, stream, &done);
        if (status != TRIB_OK || done)
            return status;
        const struct timespec pause = {0, pause_us * 1000};
        (void)nanosleep(&pause, NULL);
    }
    return tri_abort_status(clique->state);
}

/* A communicator of one rank: let its newest copy end. */
static trib_status finish_copy(struct tri_nccl_clique *clique)
{
    const struct tri_transport *rank = clique->ranks;
    if (!rank->queued)
        return TRIB_OK;
    trib_status status = tri_nccl_stream_wait_event(rank->device, rank->event, rank->stream);
    return status == TRIB_OK ? wait_quietly(clique, rank->stream, rank->device) : status;
}

/* Inside the gate: an abort that comes now raises NCCL's flags, which end the waiting, and frees
 * when nothing here uses NCCL or the streams any more. */
static trib_status finish_work(struct tri_nccl_clique *clique)
{
    if (!tri_abort_register(clique->state))
        return tri_abort_status(clique->state);
    trib_status status = clique->ranks->size == 1 ? finish_copy(clique) : finalize(clique);
    tri_abort_unregister(clique->state);
    return status;
}

static trib_status run(struct tri_nccl_task *task)
{
    struct tri_nccl_clique *clique = ((struct farewell *)task)->clique;
    trib_status status = finish_work(clique);
    if (status != TRIB_OK)
        return tri_nccl_stop(clique, status); /* the reaper's now */
    if (!tri_nccl_advance(clique, TRI_NCCL_CLOSING, TRI_NCCL_DESTROYING))
        return tri_abort_status(clique->state);
    tri_nccl_retire(clique);
    return TRIB_OK;
}

static void drop(struct tri_nccl_task *task)
{
    tri_nccl_release(((struct farewell *)task)->clique);
    free(task);
}

/* The last rank has closed. */
static trib_status close_clique(struct tri_nccl_clique *clique, uint32_t timeout_ms)
{
    bool late = false;
    struct farewell *farewell = calloc(1, sizeof *farewell);
    if (farewell == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for closing");
        return tri_nccl_stop(clique, TRIB_ERR_OUT_OF_MEMORY);
    }
    tri_nccl_retain(clique);
    farewell->clique = clique;
    farewell->task.run = run;
    farewell->task.free = drop;
    trib_status status = tri_nccl_task_run(&farewell->task, tri_deadline_ns(timeout_ms), &late);
    if (late)
        status =
            tri_fail(TRIB_ERR_TIMEOUT,
                     "close: what was queued on the communicator of %d ranks had not run on all "
                     "of them, or not all processes had closed it, after %u ms; it was "
                     "aborted, and is given back in the background. Ranks that never made a "
                     "call, and CUDA graphs that captured one and are still alive, are the "
                     "usual reasons",
                     (int)clique->ranks->size, (unsigned)timeout_ms);
    return status == TRIB_OK ? TRIB_OK : tri_nccl_stop(clique, status);
}

/* Whoever leaves uneven stops the clique, and every rank that closes afterwards hears of it: what it
 * has queued may not have run. */
static trib_status uneven(struct tri_nccl_clique *clique)
{
    if (tri_abort_live(clique->state))
        return TRIB_OK;
    const trib_status status = tri_abort_status(clique->state);
    return status == TRIB_ERR_CLOSED ? status : TRIB_OK;
}

trib_status tri_nccl_close(struct tri_transport *transport, uint32_t timeout_ms)
{
    struct tri_nccl_clique *clique = transport->clique;
    pthread_mutex_lock(&clique->lock);
    const bool open = clique->stage == TRI_NCCL_OPEN;
    const bool even = !open || tri_nccl_leave_even(transport);
    const bool last = ++clique->closed == clique->joined && open && even;
    if (last)
        clique->stage = TRI_NCCL_CLOSING;
    pthread_mutex_unlock(&clique->lock);
    if (!even)
        return tri_nccl_stop(clique, TRIB_ERR_CLOSED);
    return last ? close_clique(clique, timeout_ms) : uneven(clique);
}
