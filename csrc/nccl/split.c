/* Splitting a communicator. */
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/config.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/join.h"
#include "csrc/nccl/leave.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/task.h"
#include "csrc/nccl/teardown.h"

struct split {
    struct tri_nccl_task task;
    struct tri_transport *parent; /* with a reference to its local ranks */
    struct tri_transport *child;  /* with a reference to its local ranks; NULL: no color */
    int32_t color;
    int32_t key;
    ncclComm_t comm; /* written by NCCL */
};

/* Store the child's rank and size. A child of one rank goes on without NCCL. */
static ncclResult_t set_rank(struct split *split)
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

/* Registered with the abort states of parent and child. */
static trib_status split_nccl(struct split *split)
{
    struct tri_nccl_device_guard guard;
    const struct tri_transport *parent = split->parent;
    TRI_TRY(tri_nccl_push_device(&guard, parent->device));
    ncclConfig_t config =
        tri_nccl_config(split->child == NULL ? &parent->config : &split->child->config);
    const int color = split->child == NULL ? NCCL_SPLIT_NOCOLOR : split->color;
    ncclResult_t result = ncclCommSplit(parent->comm, color, split->key, &split->comm, &config);
    if (result == ncclSuccess && split->child != NULL)
        result = set_rank(split);
    tri_nccl_pop_device(&guard);
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "split", parent->rank, parent->device);
    if (split->child == NULL)
        return TRIB_OK;
    TRI_TRY(tri_nccl_alloc_resources(split->child));
    return tri_nccl_push_meet(split->child, 1);
}

static trib_status run_split(struct tri_nccl_task *task)
{
    struct split *split = (struct split *)task;
    struct trib_abort *parent_state = split->parent->local->state;
    struct trib_abort *child_state = split->child == NULL ? NULL : split->child->local->state;
    if (!tri_abort_register(parent_state))
        return tri_abort_status(parent_state);
    trib_status status;
    if (child_state != NULL && !tri_abort_register(child_state)) {
        status = tri_abort_status(child_state);
    } else {
        status = split_nccl(split);
        if (child_state != NULL)
            tri_abort_unregister(child_state);
    }
    tri_abort_unregister(parent_state);
    return status;
}

static void free_split(struct tri_nccl_task *task)
{
    struct split *split = (struct split *)task;
    if (split->child != NULL)
        tri_nccl_release(split->child->local);
    tri_nccl_release(split->parent->local);
    free(split);
}

/* With references to the local ranks of parent and child. NULL, with the detail set: no memory. */
static struct split *new_split(struct tri_transport *parent, struct tri_transport *child,
                               int32_t color, int32_t key)
{
    struct split *split = calloc(1, sizeof *split);
    if (split == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for a split");
        return NULL;
    }
    split->task.run = run_split;
    split->task.free = free_split;
    split->parent = parent;
    split->child = child;
    split->color = color;
    split->key = key;
    tri_nccl_retain(parent->local);
    if (child != NULL)
        tri_nccl_retain(child->local);
    return split;
}

/* A failure aborts parent and child: ranks that did not split together cannot go on together.
 * Aborting the parent also makes NCCL give up a split that waits for a rank. */
static trib_status start_split(struct tri_transport *parent, struct tri_transport *child,
                               int32_t color, int32_t key, uint32_t timeout_ms,
                               uint64_t deadline_ns)
{
    struct split *split = new_split(parent, child, color, key);
    if (split == NULL)
        return tri_nccl_raise_abort(parent->local, TRIB_ERR_OUT_OF_MEMORY);
    bool timed_out = false;
    trib_status status =
        tri_nccl_task_run(&split->task, parent->local->state, deadline_ns, &timed_out);
    if (timed_out)
        status = tri_fail(TRIB_ERR_TIMEOUT,
                          "split: rank %d of %d on device %d waited %u ms for the other ranks; "
                          "every rank must call split, including those without a color",
                          (int)parent->rank, (int)parent->size, (int)parent->device,
                          (unsigned)timeout_ms);
    return status == TRIB_OK ? TRIB_OK : tri_nccl_raise_abort(parent->local, status);
}

/* The split of a rank that gets a child. */
static trib_status split_child(struct tri_transport **out, struct tri_transport *parent,
                               const struct tri_nccl_key *child_key, int32_t key,
                               const struct tri_config *config, uint32_t timeout_ms,
                               uint64_t deadline_ns)
{
    TRI_TRY(tri_nccl_join(out, child_key, -1, 0, parent->device, deadline_ns));
    if (config != NULL)
        tri_nccl_configure(*out, config);
    struct tri_nccl_local *local = (*out)->local;
    const trib_status status =
        start_split(parent, *out, child_key->color, key, timeout_ms, deadline_ns);
    tri_nccl_end_joining(local);
    if (status != TRIB_OK) {
        (void)tri_nccl_raise_abort(local, status);
        tri_nccl_release(local);
        *out = NULL;
    }
    return status;
}

trib_status tri_nccl_split(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                           int32_t key, const struct tri_config *config, uint32_t timeout_ms)
{
    struct tri_nccl_key child_key;
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    const uint32_t sequence = parent->splits++;
    *out = NULL;
    if (parent->size == 1)
        return color == TRIB_NO_COLOR ? TRIB_OK
                                      : tri_nccl_open_group(out, &parent->device, 1, config,
                                                            timeout_ms); /* single again */
    TRI_TRY(tri_nccl_count_split(parent));
    if (color == TRIB_NO_COLOR)
        return start_split(parent, NULL, color, key, timeout_ms, deadline);
    memset(&child_key, 0, sizeof child_key);
    child_key.parent = parent->local->serial;
    child_key.sequence = sequence;
    child_key.color = color;
    child_key.parent_adopted = parent->local->key.adopted;
    return split_child(out, parent, &child_key, key, config, timeout_ms, deadline);
}
