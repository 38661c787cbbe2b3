/* The abort flag of a communicator: the word that its kernels read. */
#include "csrc/nccl/abort_flag.h"

#include <stdlib.h>

#include "csrc/nccl/device.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/task.h"

struct growth {
    struct tri_nccl_task task;
    int32_t device;
};

static trib_status run_growth(struct tri_nccl_task *task)
{
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device(&guard, ((struct growth *)task)->device));
    const trib_status status = tri_nccl_grow_pinned();
    tri_nccl_pop_device(&guard);
    return status;
}

static void free_growth(struct tri_nccl_task *task)
{
    free(task);
}

/* Allocate more cells. Cells that arrive after the deadline serve later requests. */
static trib_status grow(int32_t device, uint64_t deadline_ns)
{
    bool timed_out = false;
    struct growth *growth = calloc(1, sizeof *growth);
    if (growth == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for a communicator");
    growth->task.run = run_growth;
    growth->task.free = free_growth;
    growth->device = device;
    const trib_status status = tri_nccl_task_run(&growth->task, NULL, deadline_ns, &timed_out);
    return !timed_out
               ? status
               : tri_fail(
                     TRIB_ERR_TIMEOUT,
                     "open: CUDA allocated no pinned memory for a communicator on device %d by "
                     "the deadline: it waits for work that does not end on some device of "
                     "this process",
                     (int)device);
}

trib_status tri_nccl_abort_flag_create(void **out, int32_t device, uint64_t deadline_ns)
{
    while (!tri_nccl_try_alloc_pinned(out)) {
        TRI_TRY(grow(device, deadline_ns));
    }
    return TRIB_OK;
}
