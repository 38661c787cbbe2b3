/* The abort word of a communicator. */
#include "csrc/nccl/word.h"

#include <stdlib.h>

#include "csrc/nccl/device.h"
#include "csrc/nccl/shared.h"
#include "csrc/nccl/task.h"

struct paging {
    struct tri_nccl_task task;
    int32_t device;
};

static trib_status run(struct tri_nccl_task *task)
{
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter(&scope, ((struct paging *)task)->device);
    if (status != TRIB_OK)
        return status;
    status = tri_nccl_add_shared();
    tri_nccl_leave(&scope);
    return status;
}

static void drop(struct tri_nccl_task *task)
{
    free(task);
}

/* More cells. If they come too late they are there for others. */
static trib_status add(int32_t device, uint64_t deadline_ns)
{
    bool late = false;
    struct paging *paging = calloc(1, sizeof *paging);
    if (paging == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for a communicator");
    paging->task.run = run;
    paging->task.free = drop;
    paging->device = device;
    const trib_status status = tri_nccl_task_run(&paging->task, deadline_ns, &late);
    return !late ? status
                 : tri_fail(TRIB_ERR_TIMEOUT,
                            "open: CUDA gave no pinned memory for a communicator on device %d by "
                            "the deadline: it waits for work that does not end on some device of "
                            "this process",
                            (int)device);
}

trib_status tri_nccl_word_create(void **out, int32_t device, uint64_t deadline_ns)
{
    while (!tri_nccl_try_shared(out)) {
        const trib_status status = add(device, deadline_ns);
        if (status != TRIB_OK)
            return status;
    }
    return TRIB_OK;
}
