/* Bootstrap of a communicator: by id, or of all ranks of a group at once.
 *
 * A blocking ncclCommInitRankConfig offers no way to give up, so it runs on its own thread and the
 * caller waits with the deadline. Each handle is published after NCCL has created it and before
 * ncclGroupEnd, which connects the ranks, so that an abort reaches a rank that waits for others. */
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/config.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/join.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/task.h"
#include "csrc/nccl/teardown.h"

_Static_assert(sizeof(ncclUniqueId) == sizeof(trib_id), "an id holds exactly an ncclUniqueId");

struct slot {
    struct tri_transport *transport;
    ncclComm_t comm; /* written by NCCL, again when the group ends */
};

struct bootstrap {
    struct tri_nccl_task task;
    struct tri_nccl_local *local; /* a reference */
    ncclUniqueId id;
    int32_t n;
    struct slot slots[]; /* the ranks of this call */
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

/* Make every device current once, before NCCL knows of any rank: ranks that it knows would wait for
 * those whose device is unusable. With the kernels loaded here, where there is a deadline, none is
 * loaded by a launch, which would wait for whatever runs on the device. */
static trib_status try_devices(const struct bootstrap *bootstrap,
                               struct tri_nccl_device_guard *guard)
{
    for (int32_t i = 0; i < bootstrap->n; i++) {
        TRI_TRY(tri_nccl_switch_device(guard, bootstrap->slots[i].transport->device));
        tri_nccl_load_kernels(bootstrap->slots[i].transport->device);
    }
    return TRIB_OK;
}

/* Inside an open group, with the rank's device current. */
static ncclResult_t init_rank(struct slot *slot, const ncclUniqueId *id)
{
    const struct tri_transport *transport = slot->transport;
    ncclConfig_t config = tri_nccl_config(&transport->config);
    return ncclCommInitRankConfig(&slot->comm, transport->size, *id, transport->rank, &config);
}

/* Create the handles of all ranks of this call in one NCCL group. Always ends the group. */
static trib_status init_ranks(struct bootstrap *bootstrap, struct tri_nccl_device_guard *guard)
{
    const struct tri_transport *at = bootstrap->slots[0].transport;
    trib_status moved = TRIB_OK;
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "open", at->rank, at->device);
    for (int32_t i = 0; i < bootstrap->n && result == ncclSuccess && moved == TRIB_OK; i++) {
        at = bootstrap->slots[i].transport;
        moved = tri_nccl_switch_device(guard, at->device);
        if (moved == TRIB_OK)
            result = init_rank(&bootstrap->slots[i], &bootstrap->id);
    }
    for (int32_t i = 0; i < bootstrap->n; i++)
        tri_nccl_publish(bootstrap->slots[i].transport, bootstrap->slots[i].comm);
    ncclResult_t end = ncclGroupEnd();
    if (moved != TRIB_OK)
        return moved;
    if (result == ncclSuccess)
        result = end;
    return result == ncclSuccess ? TRIB_OK : tri_nccl_fail(result, "open", at->rank, at->device);
}

static trib_status do_bootstrap(struct bootstrap *bootstrap)
{
    struct tri_nccl_device_guard guard;
    const struct tri_transport *first = bootstrap->slots[0].transport;
    TRI_TRY(tri_nccl_push_device(&guard, first->device));
    trib_status status = try_devices(bootstrap, &guard);
    if (status == TRIB_OK && first->size > 1) /* a single rank needs no NCCL: single.c */
        status = init_ranks(bootstrap, &guard);
    tri_nccl_pop_device(&guard);
    if (status != TRIB_OK)
        return status;
    for (int32_t i = 0; i < bootstrap->n; i++)
        TRI_TRY(tri_nccl_alloc_resources(bootstrap->slots[i].transport));
    return tri_nccl_push_meet(first, bootstrap->n);
}

static trib_status run_bootstrap(struct tri_nccl_task *task)
{
    struct bootstrap *bootstrap = (struct bootstrap *)task;
    if (!tri_abort_register(bootstrap->local->state))
        return tri_abort_status(bootstrap->local->state);
    trib_status status = do_bootstrap(bootstrap);
    tri_abort_unregister(bootstrap->local->state);
    return status;
}

static void free_bootstrap(struct tri_nccl_task *task)
{
    tri_nccl_release(((struct bootstrap *)task)->local);
    free(task);
}

static struct bootstrap *new_bootstrap(struct tri_transport **ranks, int32_t n)
{
    struct bootstrap *bootstrap =
        calloc(1, sizeof *bootstrap + (size_t)n * sizeof bootstrap->slots[0]);
    if (bootstrap == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for opening %d ranks", (int)n);
        return NULL;
    }
    bootstrap->task.run = run_bootstrap;
    bootstrap->task.free = free_bootstrap;
    bootstrap->local = ranks[0]->local;
    bootstrap->n = n;
    for (int32_t i = 0; i < n; i++)
        bootstrap->slots[i].transport = ranks[i];
    return bootstrap;
}

/* Connect the `n` ranks with the others of `id`. A failure aborts the local ranks. */
static trib_status start_bootstrap(struct tri_transport **ranks, int32_t n, const ncclUniqueId *id,
                                   uint32_t timeout_ms, uint64_t deadline_ns)
{
    struct tri_nccl_local *local = ranks[0]->local;
    struct bootstrap *bootstrap = new_bootstrap(ranks, n);
    if (bootstrap == NULL)
        return tri_nccl_raise_abort(local, TRIB_ERR_OUT_OF_MEMORY);
    bootstrap->id = *id;
    tri_nccl_retain(local);
    bool timed_out = false;
    trib_status status = tri_nccl_task_run(&bootstrap->task, NULL, deadline_ns, &timed_out);
    if (timed_out)
        status = tri_fail(
            TRIB_ERR_TIMEOUT,
            "open: rank %d of %d on device %d waited %u ms for the other ranks; start "
            "all ranks, with the same id and the same size, and check that they reach "
            "each other over the network (NCCL_SOCKET_IFNAME, NCCL_DEBUG=INFO)",
            (int)ranks[0]->rank, (int)ranks[0]->size, (int)ranks[0]->device, (unsigned)timeout_ms);
    /* After a success all ranks have joined; after a failure none may join any more. */
    tri_nccl_end_joining(local);
    return status == TRIB_OK ? TRIB_OK : tri_nccl_raise_abort(local, status);
}

trib_status tri_nccl_open(struct tri_transport **out, const trib_id *id, int32_t rank, int32_t size,
                          int32_t device, const struct tri_config *config, uint32_t timeout_ms)
{
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    struct tri_nccl_key key;
    ncclUniqueId nccl_id;
    memset(&key, 0, sizeof key);
    key.id = *id;
    memcpy(&nccl_id, id, sizeof nccl_id);
    TRI_TRY(tri_nccl_config_check(config, "open"));
    TRI_TRY(tri_nccl_join(out, &key, rank, size, device, deadline));
    if (config != NULL)
        tri_nccl_configure(*out, config);
    trib_status status = start_bootstrap(out, 1, &nccl_id, timeout_ms, deadline);
    if (status != TRIB_OK) {
        tri_nccl_release((*out)->local);
        *out = NULL;
    }
    return status;
}

static trib_status join_all(struct tri_transport **out, const int32_t *devices, int32_t size,
                            const struct tri_config *config, uint64_t deadline_ns)
{
    TRI_TRY(tri_nccl_join(&out[0], NULL, 0, size, devices[0], deadline_ns));
    for (int32_t i = 1; i < size; i++)
        TRI_TRY(tri_nccl_join_same(&out[i], out[0], i, devices[i]));
    for (int32_t i = 0; i < size && config != NULL; i++)
        tri_nccl_configure(out[i], config);
    return TRIB_OK;
}

trib_status tri_nccl_open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                                const struct tri_config *config, uint32_t timeout_ms)
{
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    trib_id id;
    ncclUniqueId nccl_id;
    memset(&id, 0, sizeof id);
    memset(out, 0, (size_t)size * sizeof *out);
    TRI_TRY(tri_nccl_config_check(config, "open"));
    trib_status status = size > 1 ? tri_nccl_id_create(&id) : TRIB_OK;
    memcpy(&nccl_id, &id, sizeof nccl_id);
    if (status == TRIB_OK) {
        status = join_all(out, devices, size, config, deadline);
        if (status == TRIB_OK)
            status = start_bootstrap(out, size, &nccl_id, timeout_ms, deadline);
        else if (out[0] != NULL)
            status = tri_nccl_raise_abort(out[0]->local, status);
    }
    for (int32_t i = 0; i < size && status != TRIB_OK; i++) {
        if (out[i] != NULL)
            tri_nccl_release(out[i]->local);
        out[i] = NULL;
    }
    return status;
}
