/* New transports: by id, as a group, and by a split. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/host/id.h"
#include "csrc/host/local.h"
#include "csrc/host/ops.h"
#include "csrc/host/rendezvous.h"

/* --------------------------------------------------------------------------------------- by id */

struct bootstrap {
    struct bootstrap *next;
    trib_id id;
    struct tri_rendezvous rendezvous;
};

static struct bootstrap *bootstraps; /* those that ranks can join */

/* The bootstrap of the id; a new one for the id's first rank. NULL when memory is short. */
static struct bootstrap *find_bootstrap(const trib_id *id, int32_t size)
{
    for (struct bootstrap *bootstrap = bootstraps; bootstrap != NULL; bootstrap = bootstrap->next)
        if (memcmp(&bootstrap->id, id, sizeof *id) == 0)
            return bootstrap;
    struct bootstrap *bootstrap = calloc(1, sizeof *bootstrap);
    if (bootstrap == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "comm_create: no memory for the rendezvous");
        return NULL;
    }
    bootstrap->id = *id;
    bootstrap->rendezvous.size = size;
    bootstrap->next = bootstraps;
    bootstraps = bootstrap;
    return bootstrap;
}

/* Later ranks do not find it. Does nothing the second time. */
static void unlist(struct bootstrap *bootstrap)
{
    for (struct bootstrap **at = &bootstraps; *at != NULL; at = &(*at)->next)
        if (*at == bootstrap) {
            *at = bootstrap->next;
            return;
        }
}

static trib_status check_slot(const struct tri_rendezvous *rendezvous, int32_t rank, int32_t size,
                              int32_t device)
{
    if (rendezvous->size != size)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "comm_create: rank %d passes size %d, earlier ranks passed %d", (int)rank,
                        (int)size, (int)rendezvous->size);
    if (rendezvous->slots[rank].taken)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "comm_create: rank %d has joined already; every rank of an id joins once",
                        (int)rank);
    for (int32_t other = 0; other < size; other++)
        if (rendezvous->slots[other].taken && rendezvous->slots[other].device == device)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "comm_create: rank %d passes device %d, which rank %d uses; give every "
                            "rank its own device",
                            (int)rank, (int)device, (int)other);
    return TRIB_OK;
}

/* Join the bootstrap of the id. The last rank uses the id up. Locked. */
static trib_status join(struct bootstrap **out, const trib_id *id, int32_t rank, int32_t size,
                        int32_t device)
{
    TRI_TRY(tri_host_id_check(id));
    struct bootstrap *bootstrap = find_bootstrap(id, size);
    if (bootstrap == NULL)
        return TRIB_ERR_OUT_OF_MEMORY;
    TRI_TRY(check_slot(&bootstrap->rendezvous, rank, size, device));
    tri_rendezvous_join(&bootstrap->rendezvous, rank, 0, rank, device);
    if (bootstrap->rendezvous.waiting == 0) {
        unlist(bootstrap);
        tri_host_id_consume(id);
    }
    *out = bootstrap;
    return TRIB_OK;
}

/* Wait for the other ranks. The last one to finish frees the bootstrap. */
static trib_status wait_and_finish(struct tri_transport **out, struct bootstrap *bootstrap,
                                   int32_t rank, uint32_t timeout_ms)
{
    const struct tri_participant self = {.rendezvous = &bootstrap->rendezvous,
                                         .rank = rank,
                                         .operation = "comm_create",
                                         .timeout_ms = timeout_ms};
    tri_rendezvous_wait(&self);
    tri_rendezvous_lock();
    const trib_status status = tri_rendezvous_finish(out, &self);
    const bool last = bootstrap->rendezvous.taken == 0;
    if (last)
        unlist(bootstrap);
    tri_rendezvous_unlock();
    if (last)
        free(bootstrap);
    return status;
}

static trib_status check_size(int32_t size)
{
    if (size <= TRI_HOST_MAX_RANKS)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_UNSUPPORTED, "the host backend supports at most %d ranks, not %d",
                    TRI_HOST_MAX_RANKS, (int)size);
}

trib_status tri_host_open(struct tri_transport **out, const trib_id *id, int32_t rank, int32_t size,
                          int32_t device, const struct tri_config *config, uint32_t timeout_ms)
{
    (void)config;
    struct bootstrap *bootstrap = NULL;
    *out = NULL;
    TRI_TRY(check_size(size));
    tri_rendezvous_lock();
    const trib_status status = join(&bootstrap, id, rank, size, device);
    tri_rendezvous_unlock();
    return status != TRIB_OK ? status : wait_and_finish(out, bootstrap, rank, timeout_ms);
}

/* ------------------------------------------------------------------------------------- a group */

trib_status tri_host_open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                                const struct tri_config *config, uint32_t timeout_ms)
{
    (void)config;
    (void)timeout_ms; /* one thread opens all ranks */
    TRI_TRY(check_size(size));
    struct tri_host_local *local = tri_host_local_create(devices, size);
    if (local == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "group_create: no memory for %d ranks", (int)size);
    for (int32_t rank = 0; rank < size; rank++)
        out[rank] = &local->ranks[rank];
    return TRIB_OK;
}

/* ------------------------------------------------------------------------------------- a split */

trib_status tri_host_split(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                           int32_t key, const struct tri_config *config, uint32_t timeout_ms)
{
    (void)config;
    struct tri_host_local *local = parent->local;
    const struct tri_participant self = {.rendezvous = &local->split,
                                         .rank = parent->rank,
                                         .parent = parent,
                                         .operation = "comm_split",
                                         .timeout_ms = timeout_ms};
    *out = NULL;
    if (!tri_host_local_live(local))
        return tri_abort_status(local->abort);
    tri_rendezvous_lock();
    tri_rendezvous_join(&local->split, parent->rank, color, key, parent->device);
    tri_rendezvous_unlock();
    tri_rendezvous_wait(&self);
    tri_rendezvous_lock();
    const trib_status status = tri_rendezvous_finish(out, &self);
    tri_rendezvous_unlock();
    return status;
}
