/* Giving back what a clique holds, on a thread of its own: freeing takes half a second, and waits
 * for whatever else runs on the devices, which nobody should have to wait for.
 *
 * A clique that was closed in good order is destroyed. One that was stopped is aborted: flags up at
 * once, memory back when nobody is inside.
 *
 * ncclCommAbort is not safe against calls that are inside NCCL on the same communicator. But within
 * an open group it only raises the flags that make those calls and the kernels come back, and it
 * frees when the group ends. So: open a group, abort every local rank, wait until the gate says
 * that no call is inside, end the group. A thread of its own does it, because a group belongs to
 * its thread, and because the end may wait: for work queued before on the user's streams, and for
 * every CUDA graph that captured the communicator to be destroyed. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/nccl/clique.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/task.h"

static void sleep_us(long us)
{
    const struct timespec pause = {0, us * 1000};
    (void)nanosleep(&pause, NULL);
}

static void raise_flags(struct tri_nccl_clique *clique)
{
    pthread_mutex_lock(&clique->lock);
    for (struct tri_transport *rank = clique->ranks; rank != NULL; rank = rank->next) {
        if (rank->comm == NULL || rank->flagged)
            continue;
        rank->flagged = true;
        ncclResult_t result = ncclCommAbort(rank->comm);
        if (result != ncclSuccess)
            tri_log(TRIB_LOG_ERROR, "aborting rank %d on device %d: NCCL returned \"%s\"",
                    (int)rank->rank, (int)rank->device, ncclGetErrorString(result));
    }
    pthread_mutex_unlock(&clique->lock);
}

/* Calls inside come back within milliseconds. A rank that is just being opened may show its handle
 * only now; it is inside the gate until then, so when the gate was empty before a round, that round
 * was the last that could find one. */
static void drain(struct tri_nccl_clique *clique)
{
    const uint64_t patience = tri_deadline_ns(10000);
    bool warned = false;
    for (long pause_us = 50;; pause_us = warned ? 100000 : pause_us < 1000 ? pause_us * 2 : 1000) {
        bool empty = tri_abort_inside(clique->state) == 0;
        raise_flags(clique);
        if (empty)
            return;
        if (!warned && tri_now_ns() > patience) {
            warned = true;
            tri_log(TRIB_LOG_WARN,
                    "%u calls have not come back from NCCL 10 s after the abort; what the "
                    "communicator holds is given back when they do",
                    (unsigned)tri_abort_inside(clique->state));
        }
        sleep_us(pause_us);
    }
}

static void reap(void *argument)
{
    struct tri_nccl_clique *clique = argument;
    struct tri_nccl_scope scope;
    /* NCCL restores the current device around its work: let it be one that the clique uses. */
    bool entered = tri_nccl_enter(&scope, clique->ranks->device) == TRIB_OK;
    ncclResult_t result = ncclGroupStart();
    drain(clique);
    if (result == ncclSuccess)
        result = ncclGroupEnd();
    if (result != ncclSuccess)
        tri_log(TRIB_LOG_ERROR, "giving back an aborted communicator: NCCL returned \"%s\"",
                ncclGetErrorString(result));
    if (entered)
        tri_nccl_leave(&scope);
    tri_nccl_strip(clique);
    (void)tri_nccl_advance(clique, TRI_NCCL_ABORTING, TRI_NCCL_GONE);
    tri_nccl_release(clique);
}

/* One after the other: only the last one frees, for all. Several ranks of one process must not wait
 * for each other in here, and do not. */
static void destroy_all(void *argument)
{
    struct tri_nccl_clique *clique = argument;
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
    tri_nccl_strip(clique);
    (void)tri_nccl_advance(clique, TRI_NCCL_DESTROYING, TRI_NCCL_GONE);
    tri_nccl_release(clique);
}

/* A thread that gives `clique` back, with a reference of its own. Without one the reference stays:
 * what the thread would free is leaked. */
static bool start(void (*function)(void *clique), struct tri_nccl_clique *clique)
{
    tri_nccl_retain(clique);
    return tri_nccl_background(function, clique);
}

void tri_nccl_retire(struct tri_nccl_clique *clique)
{
    if (!start(destroy_all, clique))
        tri_log(TRIB_LOG_ERROR, "no thread to destroy a communicator: it is leaked");
}

void tri_nccl_on_abort(void *context)
{
    struct tri_nccl_clique *clique = context;
    /* From DESTROYING on the handles belong to ncclCommDestroy, and nothing is queued any more. */
    if (!tri_nccl_advance(clique, TRI_NCCL_OPEN, TRI_NCCL_ABORTING) &&
        !tri_nccl_advance(clique, TRI_NCCL_CLOSING, TRI_NCCL_ABORTING))
        return;
    if (!start(reap, clique))
        tri_log(TRIB_LOG_ERROR,
                "no thread to abort a communicator: it is leaked, and its streams hang");
}
