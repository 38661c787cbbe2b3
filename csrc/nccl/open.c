/* Ranks meet: by id, or all ranks of a group at once.
 *
 * A blocking ncclCommInitRankConfig cannot be told to give up, so it runs on a thread of its own
 * and the caller waits with the deadline. Each handle is published after NCCL has made it and
 * before the group end that does the meeting, so that the clique's abort reaches a rank that waits
 * for others. */
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/clique.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/task.h"

_Static_assert(sizeof(ncclUniqueId) == sizeof(trib_id), "an id holds exactly an ncclUniqueId");

struct seat {
    struct tri_transport *transport;
    ncclComm_t comm; /* written by NCCL, also when the meeting ends */
};

struct meeting {
    struct tri_nccl_task task;
    struct tri_nccl_clique *clique; /* a reference */
    ncclUniqueId id;
    int32_t n;
    struct seat seats[]; /* the ranks of this call */
};

trib_status tri_nccl_id_create(trib_id *out)
{
    ncclUniqueId id;
    ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "creating an id", -1, -1);
    memcpy(out, &id, sizeof id);
    return TRIB_OK;
}

/* Every device, once, before NCCL knows of any rank: those that it knows of would wait for the ones
 * whose device cannot be used. */
static trib_status try_devices(const struct meeting *meeting, struct tri_nccl_scope *scope)
{
    trib_status status = TRIB_OK;
    for (int32_t i = 0; i < meeting->n && status == TRIB_OK; i++)
        status = tri_nccl_move(scope, meeting->seats[i].transport->device);
    return status;
}

/* All ranks of this call, in one NCCL group that is always closed. */
static trib_status join_nccl(struct meeting *meeting, struct tri_nccl_scope *scope)
{
    const struct tri_transport *at = meeting->seats[0].transport;
    trib_status moved = try_devices(meeting, scope);
    if (moved != TRIB_OK)
        return moved;
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "open", at->rank, at->device);
    for (int32_t i = 0; i < meeting->n && result == ncclSuccess && moved == TRIB_OK; i++) {
        struct seat *seat = &meeting->seats[i];
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        at = seat->transport;
        moved = tri_nccl_move(scope, at->device);
        if (moved == TRIB_OK)
            result = ncclCommInitRankConfig(&seat->comm, at->size, meeting->id, at->rank, &config);
    }
    for (int32_t i = 0; i < meeting->n; i++)
        tri_nccl_publish(meeting->seats[i].transport, meeting->seats[i].comm);
    ncclResult_t end = ncclGroupEnd();
    if (moved != TRIB_OK)
        return moved;
    if (result == ncclSuccess)
        result = end;
    return result == ncclSuccess ? TRIB_OK : tri_nccl_fail(result, "open", at->rank, at->device);
}

static trib_status meet(struct meeting *meeting)
{
    struct tri_nccl_scope scope;
    const struct tri_transport *first = meeting->seats[0].transport;
    trib_status status = tri_nccl_enter(&scope, first->device);
    if (status != TRIB_OK)
        return status;
    if (first->size > 1) /* one rank alone needs no NCCL: solo.c */
        status = join_nccl(meeting, &scope);
    tri_nccl_leave(&scope);
    for (int32_t i = 0; i < meeting->n && status == TRIB_OK; i++)
        status = tri_nccl_equip(meeting->seats[i].transport);
    return status;
}

static trib_status run(struct tri_nccl_task *task)
{
    struct meeting *meeting = (struct meeting *)task;
    if (!tri_abort_register(meeting->clique->state))
        return tri_abort_status(meeting->clique->state);
    trib_status status = meet(meeting);
    tri_abort_unregister(meeting->clique->state);
    return status;
}

static void drop(struct tri_nccl_task *task)
{
    tri_nccl_release(((struct meeting *)task)->clique);
    free(task);
}

static struct meeting *new_meeting(struct tri_transport **ranks, int32_t n)
{
    struct meeting *meeting = calloc(1, sizeof *meeting + (size_t)n * sizeof meeting->seats[0]);
    if (meeting == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for opening %d ranks", (int)n);
        return NULL;
    }
    meeting->task.run = run;
    meeting->task.free = drop;
    meeting->clique = ranks[0]->clique;
    meeting->n = n;
    for (int32_t i = 0; i < n; i++)
        meeting->seats[i].transport = ranks[i];
    return meeting;
}

/* Let the `n` ranks meet the others of `id`. On failure the clique is stopped. */
static trib_status hold(struct tri_transport **ranks, int32_t n, const ncclUniqueId *id,
                        uint32_t timeout_ms, uint64_t deadline_ns)
{
    struct tri_nccl_clique *clique = ranks[0]->clique;
    struct meeting *meeting = new_meeting(ranks, n);
    if (meeting == NULL)
        return tri_nccl_stop(clique, TRIB_ERR_OUT_OF_MEMORY);
    meeting->id = *id;
    tri_nccl_retain(clique);
    bool late = false;
    trib_status status = tri_nccl_task_run(&meeting->task, deadline_ns, &late);
    if (late)
        status = tri_fail(
            TRIB_ERR_TIMEOUT,
            "open: rank %d of %d on device %d waited %u ms for the other ranks; start "
            "all ranks, with the same id and the same size, and check that they reach "
            "each other over the network (NCCL_SOCKET_IFNAME, NCCL_DEBUG=INFO)",
            (int)ranks[0]->rank, (int)ranks[0]->size, (int)ranks[0]->device, (unsigned)timeout_ms);
    /* If it went well for one rank, all ranks have come; otherwise none shall come any more. */
    tri_nccl_settle(clique);
    return status == TRIB_OK ? TRIB_OK : tri_nccl_stop(clique, status);
}

trib_status tri_nccl_open(struct tri_transport **out, const trib_id *id, int32_t rank, int32_t size,
                          int32_t device, uint32_t timeout_ms)
{
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    struct tri_nccl_key key;
    ncclUniqueId nccl_id;
    memset(&key, 0, sizeof key);
    key.id = *id;
    memcpy(&nccl_id, id, sizeof nccl_id);
    trib_status status = tri_nccl_join(out, &key, rank, size, device, deadline);
    if (status != TRIB_OK)
        return status;
    status = hold(out, 1, &nccl_id, timeout_ms, deadline);
    if (status != TRIB_OK) {
        tri_nccl_release((*out)->clique);
        *out = NULL;
    }
    return status;
}

static trib_status join_all(struct tri_transport **out, const int32_t *devices, int32_t size,
                            uint64_t deadline_ns)
{
    trib_status status = tri_nccl_join(&out[0], NULL, 0, size, devices[0], deadline_ns);
    for (int32_t i = 1; i < size && status == TRIB_OK; i++)
        status = tri_nccl_join_same(&out[i], out[0], i, devices[i]);
    return status;
}

trib_status tri_nccl_open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                                uint32_t timeout_ms)
{
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    trib_id id;
    ncclUniqueId nccl_id;
    memset(&id, 0, sizeof id);
    memset(out, 0, (size_t)size * sizeof *out);
    trib_status status = size > 1 ? tri_nccl_id_create(&id) : TRIB_OK;
    memcpy(&nccl_id, &id, sizeof nccl_id);
    if (status == TRIB_OK) {
        status = join_all(out, devices, size, deadline);
        if (status == TRIB_OK)
            status = hold(out, size, &nccl_id, timeout_ms, deadline);
        else if (out[0] != NULL)
            status = tri_nccl_stop(out[0]->clique, status);
    }
    for (int32_t i = 0; i < size && status != TRIB_OK; i++) {
        if (out[i] != NULL)
            tri_nccl_release(out[i]->clique);
        out[i] = NULL;
    }
    return status;
}
