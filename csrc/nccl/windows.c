/* Windows: symmetric memory of callers that is registered with NCCL. */
#include "csrc/nccl/windows.h"

#include <stdlib.h>

#include "csrc/base/log.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/task.h"
#include "csrc/nccl/teardown.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)

/* So that the library loads with an older NCCL, too, in which tri_nccl_config_check allows no windows. */
#  pragma weak ncclCommWindowRegister
#  pragma weak ncclCommWindowDeregister

static ncclResult_t enter(ncclComm_t comm, const struct tri_symmetric *memory, void **out)
{
    return ncclCommWindowRegister(comm, memory->of[memory->rank].here, memory->mapped,
                                  (ncclWindow_t *)out, NCCL_WIN_COLL_SYMMETRIC);
}

static ncclResult_t leave(ncclComm_t comm, void *window)
{
    return ncclCommWindowDeregister(comm, window);
}

#else

static ncclResult_t enter(ncclComm_t comm, const struct tri_symmetric *memory, void **out)
{
    (void)comm, (void)memory, (void)out;
    return ncclInvalidUsage;
}

static ncclResult_t leave(ncclComm_t comm, void *window)
{
    (void)comm, (void)window;
    return ncclInvalidUsage;
}

#endif

struct opening {
    struct tri_nccl_task task;
    struct tri_transport *transport; /* with a reference to its local ranks, which keep */
    struct tri_symmetric *memory;    /* this, in the rank's list */
};

/* NCCL may be switched to have no windows, and newer versions then say so by success without one. */
static void log_absence(const struct opening *opening)
{
    if (opening->memory->window == NULL)
        tri_log(TRIB_LOG_INFO,
                "rank %d on device %d: NCCL makes no window of symmetric memory, and serves calls "
                "with it as any other",
                (int)opening->transport->rank, (int)opening->transport->device);
}

/* Registered with the abort state. */
static trib_status open_registered(const struct opening *opening)
{
    const struct tri_transport *transport = opening->transport;
    struct tri_nccl_visit visit;
    TRI_TRY(tri_nccl_visit_begin(&visit, transport->device));
    const ncclResult_t result = enter(transport->comm, opening->memory, &opening->memory->window);
    tri_nccl_visit_end(&visit);
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "making a window", transport->rank, transport->device);
    log_absence(opening);
    return TRIB_OK;
}

static trib_status run_opening(struct tri_nccl_task *task)
{
    const struct opening *opening = (const struct opening *)task;
    struct trib_abort *state = opening->transport->local->state;
    if (!tri_abort_register(state))
        return tri_abort_status(state);
    const trib_status status = open_registered(opening);
    tri_abort_unregister(state);
    return status;
}

static void free_opening(struct tri_nccl_task *task)
{
    struct opening *opening = (struct opening *)task;
    tri_nccl_release(opening->transport->local);
    free(opening);
}

static trib_status run_task(struct tri_transport *transport, struct tri_symmetric *memory)
{
    bool timed_out = false;
    struct opening *opening = calloc(1, sizeof *opening);
    if (opening == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for a window");
    opening->task.run = run_opening;
    opening->task.free = free_opening;
    opening->transport = transport;
    opening->memory = memory;
    tri_nccl_retain(transport->local);
    return tri_nccl_task_run(&opening->task, transport->local->state, UINT64_MAX, &timed_out);
}

trib_status tri_nccl_open_window(struct tri_transport *transport, struct tri_symmetric *memory)
{
    if (!transport->config.windows || transport->comm == NULL)
        return TRIB_OK;
    const trib_status status = run_task(transport, memory);
    return status == TRIB_OK ? TRIB_OK : tri_nccl_raise_abort(transport->local, status);
}

trib_status tri_nccl_close_window(struct tri_transport *transport, struct tri_symmetric *memory)
{
    struct tri_nccl_visit visit;
    if (memory->window == NULL)
        return TRIB_OK;
    TRI_TRY(tri_nccl_visit_begin(&visit, transport->device));
    const ncclResult_t result = leave(transport->comm, memory->window);
    tri_nccl_visit_end(&visit);
    memory->window = NULL;
    return result == ncclSuccess
               ? TRIB_OK
               : tri_nccl_fail(result, "ending a window", transport->rank, transport->device);
}

void tri_nccl_close_windows(const struct tri_nccl_local *local)
{
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        for (struct tri_symmetric *memory = rank->symmetric; memory != NULL; memory = memory->next)
            if (!rank->order.lost && tri_nccl_close_window(rank, memory) != TRIB_OK)
                tri_log(TRIB_LOG_ERROR, "closing: %s", tri_detail());
}
