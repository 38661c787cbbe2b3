/* Giving back what a clique holds: freeing takes half a second, and waits for whatever else runs on
 * the devices, which nobody should have to wait for. The reaper (reaper.c) does it.
 *
 * A clique that was closed in good order is destroyed. One that was stopped is aborted: flags up at
 * once, memory back when nobody is inside. */
#include <stddef.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/nccl/clique.h"

enum { PATIENCE_MS = 10000 };

static struct tri_nccl_clique *clique_of(struct tri_nccl_errand *errand)
{
    return (struct tri_nccl_clique *)((char *)errand - offsetof(struct tri_nccl_clique, errand));
}

/* Raise the flags of one rank that has them not. NULL: there is none. */
static struct tri_transport *flag_one(struct tri_nccl_clique *clique, ncclResult_t *out)
{
    pthread_mutex_lock(&clique->lock);
    struct tri_transport *rank = clique->ranks;
    while (rank != NULL && (rank->comm == NULL || rank->flagged))
        rank = rank->next;
    if (rank != NULL) {
        rank->flagged = true;
        *out = ncclCommAbort(rank->comm);
    }
    pthread_mutex_unlock(&clique->lock);
    return rank;
}

static void raise_flags(struct tri_nccl_clique *clique)
{
    const struct tri_transport *rank;
    ncclResult_t result = ncclSuccess;
    while ((rank = flag_one(clique, &result)) != NULL)
        if (result != ncclSuccess)
            tri_log(TRIB_LOG_ERROR, "aborting rank %d on device %d: NCCL returned \"%s\"",
                    (int)rank->rank, (int)rank->device, ncclGetErrorString(result));
}

/* A rank that is just being opened may show its handle only now; it is inside the gate until then,
 * so when the gate was empty before a round, that round was the last that could find one. */
static bool abort_all(struct tri_nccl_errand *errand)
{
    struct tri_nccl_clique *clique = clique_of(errand);
    const uint32_t inside = tri_abort_in_flight(clique->state);
    raise_flags(clique);
    if (inside != 0 && !clique->warned && tri_now_ns() > clique->patience) {
        clique->warned = true;
        tri_log(TRIB_LOG_WARN,
                "%u calls have not come back from NCCL %d s after the abort; what the "
                "communicator holds is given back when they do",
                (unsigned)inside, PATIENCE_MS / 1000);
    }
    return inside == 0;
}

static void end_abort(struct tri_nccl_errand *errand)
{
    struct tri_nccl_clique *clique = clique_of(errand);
    tri_nccl_strip(clique);
    (void)tri_nccl_advance(clique, TRI_NCCL_ABORTING, TRI_NCCL_GONE);
    tri_nccl_release(clique);
}

/* One after the other: only the last one frees, for all. Several ranks of one process must not wait
 * for each other in here, and do not. */
static void destroy_all(struct tri_nccl_errand *errand)
{
    struct tri_nccl_clique *clique = clique_of(errand);
    for (struct tri_transport *rank = clique->ranks; rank != NULL; rank = rank->next) {
        ncclResult_t result = rank->comm == NULL ? ncclSuccess : ncclCommDestroy(rank->comm);
        if (result != ncclSuccess)
            tri_log(TRIB_LOG_ERROR, "destroying rank %d on device %d: NCCL returned \"%s\"",
                    (int)rank->rank, (int)rank->device, ncclGetErrorString(result));
    }
    tri_nccl_strip(clique);
    (void)tri_nccl_advance(clique, TRI_NCCL_DESTROYING, TRI_NCCL_GONE);
    tri_nccl_release(clique);
}

/* With a reference of its own. Once for each clique: its stage says so. */
static void post(struct tri_nccl_clique *clique)
{
    tri_nccl_retain(clique);
    clique->errand.device = clique->ranks->device;
    tri_nccl_post(&clique->errand);
}

void tri_nccl_retire(struct tri_nccl_clique *clique)
{
    clique->errand.finish = destroy_all;
    post(clique);
}

void tri_nccl_on_abort(void *context)
{
    struct tri_nccl_clique *clique = context;
    /* From DESTROYING on the handles belong to ncclCommDestroy, and nothing is queued any more. */
    if (!tri_nccl_advance(clique, TRI_NCCL_OPEN, TRI_NCCL_ABORTING) &&
        !tri_nccl_advance(clique, TRI_NCCL_CLOSING, TRI_NCCL_ABORTING))
        return;
    clique->patience = tri_deadline_ns(PATIENCE_MS);
    clique->errand.prepare = abort_all;
    clique->errand.finish = end_abort;
    post(clique);
}
