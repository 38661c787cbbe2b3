/* New communicators out of an old one. */
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/clique.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/leave.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/task.h"

struct split {
    struct tri_nccl_task task;
    struct tri_transport *parent; /* with a reference to its clique */
    struct tri_transport *child;  /* with a reference to its clique; NULL: no colour */
    int32_t color;
    int32_t key;
    ncclComm_t comm; /* written by NCCL */
};

/* Fill in who we are in the new communicator. A rank alone goes on without NCCL. */
static ncclResult_t introduce(struct split *split)
{
    int rank = 0;
    int size = 0;
    ncclResult_t result = ncclCommUserRank(split->comm, &rank);
    if (result == ncclSuccess)
        result = ncclCommCount(split->comm, &size);
    if (result != ncclSuccess)
        return result;
    split->child->rank = rank;
    split->child->size = size;
    if (size == 1)
        return ncclCommDestroy(split->comm);
    tri_nccl_publish(split->child, split->comm);
    return ncclSuccess;
}

/* Inside the gates of parent and child. */
static trib_status split_nccl(struct split *split)
{
    struct tri_nccl_scope scope;
    const struct tri_transport *parent = split->parent;
    trib_status status = tri_nccl_enter(&scope, parent->device);
    if (status != TRIB_OK)
        return status;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.splitShare = 0; /* the child shares nothing: aborting one leaves the other alone */
    const int color = split->child == NULL ? NCCL_SPLIT_NOCOLOR : split->color;
    ncclResult_t result = ncclCommSplit(parent->comm, color, split->key, &split->comm, &config);
    if (result == ncclSuccess && split->child != NULL)
        result = introduce(split);
    tri_nccl_leave(&scope);
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "split", parent->rank, parent->device);
    return split->child == NULL ? TRIB_OK : tri_nccl_equip(split->child);
}

static trib_status run(struct tri_nccl_task *task)
{
    struct split *split = (struct split *)task;
    struct trib_abort *old = split->parent->clique->state;
    struct trib_abort *new = split->child == NULL ? NULL : split->child->clique->state;
    if (!tri_abort_register(old))
        return tri_abort_status(old);
    trib_status status;
    if (new != NULL && !tri_abort_register(new)) {
        status = tri_abort_status(new);
    } else {
        status = split_nccl(split);
        if (new != NULL)
            tri_abort_unregister(new);
    }
    tri_abort_unregister(old);
    return status;
}

static void drop(struct tri_nccl_task *task)
{
    struct split *split = (struct split *)task;
    if (split->child != NULL)
        tri_nccl_release(split->child->clique);
    tri_nccl_release(split->parent->clique);
    free(split);
}

/* On failure parent and child are stopped: ranks that did not split together cannot go on together.
 * Stopping the parent is also what makes NCCL give up a split that waits for a rank. */
static trib_status divide(struct tri_transport *parent, struct tri_transport *child, int32_t color,
                          int32_t key, uint32_t timeout_ms, uint64_t deadline_ns)
{
    struct split *split = calloc(1, sizeof *split);
    if (split == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for a split");
        return tri_nccl_stop(parent->clique, TRIB_ERR_OUT_OF_MEMORY);
    }
    split->task.run = run;
    split->task.free = drop;
    split->parent = parent;
    split->child = child;
    split->color = color;
    split->key = key;
    tri_nccl_retain(parent->clique);
    if (child != NULL)
        tri_nccl_retain(child->clique);
    bool late = false;
    trib_status status = tri_nccl_task_run(&split->task, deadline_ns, &late);
    if (late)
        status = tri_fail(TRIB_ERR_TIMEOUT,
                          "split: rank %d of %d on device %d waited %u ms for the other ranks; a "
                          "split is a call of all ranks, also of those without a color",
                          (int)parent->rank, (int)parent->size, (int)parent->device,
                          (unsigned)timeout_ms);
    return status == TRIB_OK ? TRIB_OK : tri_nccl_stop(parent->clique, status);
}

trib_status tri_nccl_split(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                           int32_t key, uint32_t timeout_ms)
{
    struct tri_nccl_key name;
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    const uint32_t sequence = parent->splits++;
    *out = NULL;
    if (parent->size == 1)
        return color == TRIB_NO_COLOR
                   ? TRIB_OK
                   : tri_nccl_open_group(out, &parent->device, 1, timeout_ms); /* alone again */
    trib_status status = tri_nccl_note_split(parent);
    if (status != TRIB_OK)
        return status;
    if (color == TRIB_NO_COLOR)
        return divide(parent, NULL, color, key, timeout_ms, deadline);
    memset(&name, 0, sizeof name);
    name.parent = parent->clique->serial;
    name.sequence = sequence;
    name.color = color;
    status = tri_nccl_join(out, &name, -1, 0, parent->device, deadline);
    if (status != TRIB_OK)
        return status;
    struct tri_nccl_clique *clique = (*out)->clique;
    status = divide(parent, *out, color, key, timeout_ms, deadline);
    tri_nccl_settle(clique);
    if (status != TRIB_OK) {
        (void)tri_nccl_stop(clique, status);
        tri_nccl_release(clique);
        *out = NULL;
    }
    return status;
}
