/* The end of a clique in good order: the last rank of the process to close does it for all. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/nccl/clique.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/task.h"

struct farewell {
    struct tri_nccl_task task;
    struct tri_nccl_clique *clique; /* a reference */
};

/* NCCL runs the operations of a communicator in the order of their calls, whichever streams they name.
 * So once one more operation is done on every local rank, all before it are. If collectives were
 * made, all ranks everywhere made them, and all take part in an allreduce of one element, which is done
 * when their last work is. If only sends and receives were, the other processes may have made
 * none: each rank sends to itself. */
static trib_status say_goodbye(struct tri_nccl_clique *clique, unsigned used)
{
    const bool together = (used & TRI_NCCL_USED_COLLECTIVE) != 0;
    struct tri_call *calls = calloc(2 * (size_t)clique->joined, sizeof *calls);
    size_t n = 0;
    if (calls == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for closing");
    for (struct tri_transport *rank = clique->ranks; rank != NULL; rank = rank->next) {
        struct tri_call call = {
            .kind = together ? TRI_ALLREDUCE : TRI_SEND,
            .transport = rank,
            .send = &rank->scratch[0],
            .recv = &rank->scratch[together ? 0 : 1],
            .count = 1,
            .dtype = TRIB_U32,
            .op = TRIB_SUM,
            .peer = rank->rank,
            .stream = rank->stream,
        };
        calls[n++] = call;
        if (!together) {
            call.kind = TRI_RECV;
            calls[n++] = call;
        }
    }
    trib_status status = tri_nccl_collective(calls, n);
    free(calls);
    return status;
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

/* Inside the gate: an abort that comes now waits until nothing here uses NCCL or the streams. */
static trib_status finish_work(struct tri_nccl_clique *clique)
{
    const unsigned used = atomic_load(&clique->used);
    if (!tri_abort_enter(clique->state))
        return tri_abort_status(clique->state);
    trib_status status = TRIB_OK;
    if (used != 0 && clique->ranks->size > 1)
        status = say_goodbye(clique, used);
    for (struct tri_transport *rank = clique->ranks; status == TRIB_OK && rank != NULL;
         rank = rank->next) {
        if (rank->queued) /* a communicator of one rank: let its newest copy end */
            status = tri_nccl_stream_wait_event(rank->device, rank->event, rank->stream);
        if (status == TRIB_OK)
            status = wait_quietly(clique, rank->stream, rank->device);
    }
    tri_abort_leave(clique->state);
    return status;
}

/* One after the other: only the last one frees, for all. Several ranks of one process must not wait
 * for each other in here, and do not. */
static void destroy_all(struct tri_nccl_clique *clique)
{
    struct tri_nccl_scope scope;
    const bool entered = tri_nccl_enter(&scope, clique->ranks->device) == TRIB_OK;
    for (struct tri_transport *rank = clique->ranks; rank != NULL; rank = rank->next) {
        ncclResult_t result = rank->comm == NULL ? ncclSuccess : ncclCommDestroy(rank->comm);
        if (result != ncclSuccess)
            tri_log(TRIB_LOG_ERROR, "destroying rank %d on device %d: NCCL returned \"%s\"",
                    (int)rank->rank, (int)rank->device, ncclGetErrorString(result));
    }
    if (entered)
        tri_nccl_leave(&scope);
}

static trib_status run(struct tri_nccl_task *task)
{
    struct tri_nccl_clique *clique = ((struct farewell *)task)->clique;
    trib_status status = finish_work(clique);
    if (status != TRIB_OK)
        return tri_nccl_stop(clique, status); /* the reaper's now */
    if (!tri_nccl_advance(clique, TRI_NCCL_CLOSING, TRI_NCCL_DESTROYING))
        return tri_abort_status(clique->state);
    destroy_all(clique);
    tri_nccl_strip(clique);
    (void)tri_nccl_advance(clique, TRI_NCCL_DESTROYING, TRI_NCCL_GONE);
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
        status = tri_fail(TRIB_ERR_TIMEOUT,
                          "close: what was queued on the communicator of %d ranks had not run on all "
                          "of them, or not all processes had closed it, after %u ms; it was "
                          "aborted, and is given back in the background. Ranks that never made a "
                          "call, and CUDA graphs that captured one and are still alive, are the "
                          "usual reasons",
                          (int)clique->ranks->size, (unsigned)timeout_ms);
    return status == TRIB_OK ? TRIB_OK : tri_nccl_stop(clique, status);
}

trib_status tri_nccl_close(struct tri_transport *transport, uint32_t timeout_ms)
{
    struct tri_nccl_clique *clique = transport->clique;
    pthread_mutex_lock(&clique->lock);
    bool last = ++clique->closed == clique->joined && clique->stage == TRI_NCCL_OPEN;
    if (last)
        clique->stage = TRI_NCCL_CLOSING;
    pthread_mutex_unlock(&clique->lock);
    return last ? close_clique(clique, timeout_ms) : TRIB_OK;
}
