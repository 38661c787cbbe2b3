/* Ranks of one process find each other: creating ranks, and the abort state that they share. */
#include "csrc/nccl/join.h"

#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/line.h"
#include "csrc/base/status.h"
#include "csrc/nccl/abort_flag.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/poll.h"
#include "csrc/nccl/quiesce.h"
#include "csrc/nccl/teardown.h"

/* The abort flag lives until the last reference to the abort state: a kernel queued before the
 * communicator was destroyed may still read it, and must find the value of its communicator there.
 * The workspace of that kernel keeps a reference until it has ended. */
static trib_status create_state(struct tri_nccl_local *local, int32_t device, uint64_t deadline_ns)
{
    void *abort_flag = NULL;
    TRI_TRY(tri_nccl_abort_flag_create(&abort_flag, device, deadline_ns));
    local->state = tri_abort_create(abort_flag, tri_nccl_abort_async, local);
    if (local->state == NULL || pthread_mutex_init(&local->lock, NULL) != 0) {
        tri_abort_release(local->state);
        tri_nccl_free_pinned(abort_flag);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for an abort state");
    }
    tri_abort_set_poll(local->state, tri_nccl_poll_errors);
    tri_abort_set_ending(local->state, &tri_nccl_ending);
    tri_abort_own_flag(local->state, tri_nccl_free_pinned);
    local->abort_flag = abort_flag;
    return TRIB_OK;
}

/* Create local ranks without any rank, which no other thread knows. */
static trib_status create(struct tri_nccl_local **out, int32_t device, uint64_t deadline_ns)
{
    struct tri_nccl_local *local = calloc(1, sizeof *local);
    if (local == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for a communicator");
    tri_nccl_wait_at_exit(-1);
    local->graphs = tri_nccl_graphs_create();
    trib_status status =
        local->graphs == NULL ? TRIB_ERR_OUT_OF_MEMORY : tri_nccl_background_retain();
    if (status == TRIB_OK) {
        status = create_state(local, device, deadline_ns);
        if (status != TRIB_OK)
            tri_nccl_background_release();
    }
    if (status == TRIB_OK) {
        *out = local;
        return TRIB_OK;
    }
    tri_nccl_graphs_release(local->graphs);
    free(local);
    return status;
}

static struct tri_transport *new_transport(int32_t rank, int32_t size, int32_t device)
{
    struct tri_transport *transport = tri_line_calloc(sizeof *transport);
    if (transport == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for rank %d", (int)rank);
        return NULL;
    }
    transport->rank = rank;
    transport->size = size;
    transport->device = device;
    return transport;
}

/* Wait at most half of the remaining time. */
static void await_jobs(uint64_t deadline_ns)
{
    const uint64_t now = tri_now_ns();
    if (now < deadline_ns)
        tri_nccl_await_jobs(now + (deadline_ns - now) / 2);
}

trib_status tri_nccl_join(struct tri_transport **out, const struct tri_nccl_key *key, int32_t rank,
                          int32_t size, int32_t device, uint64_t deadline_ns)
{
    *out = NULL;
    struct tri_transport *transport = new_transport(rank, size, device);
    if (transport == NULL)
        return TRIB_ERR_OUT_OF_MEMORY;
    /* Created before the registry is locked, whether needed or not: a destroy takes that lock too,
     * and must not wait. */
    struct tri_nccl_local *made = NULL;
    await_jobs(deadline_ns);
    trib_status status = create(&made, device, deadline_ns);
    if (status == TRIB_OK) {
        bool used = false;
        status = tri_nccl_add_rank_by_key(made, key, transport, &used);
        if (!used)
            tri_nccl_free_local(made);
    }
    if (status == TRIB_OK)
        *out = transport;
    else
        free(transport);
    return status;
}

trib_status tri_nccl_join_same(struct tri_transport **out, struct tri_transport *first,
                               int32_t rank, int32_t device)
{
    *out = NULL;
    struct tri_transport *transport = new_transport(rank, first->size, device);
    if (transport == NULL)
        return TRIB_ERR_OUT_OF_MEMORY;
    trib_status status = tri_nccl_add_rank(first->local, transport);
    if (status == TRIB_OK)
        *out = transport;
    else
        free(transport);
    return status;
}
