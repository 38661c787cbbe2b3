/* The ranks of one communicator that live in this process: membership and lifetime. */
#include "csrc/nccl/local.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/prober.h"
#include "csrc/nccl/quiesce.h"

/* Guards the list of local ranks that can still be joined, and the dropping of references, so that
 * a rank that finds an entry in the list finds it alive. Held for a walk through the list, never
 * during a call of CUDA or NCCL. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct tri_nccl_local *joinable;
static uint64_t serials;

/* The entry of `key`; NULL if there is none. The registry is locked. */
static struct tri_nccl_local *find(const struct tri_nccl_key *key)
{
    struct tri_nccl_local *local = joinable;
    while (local != NULL && memcmp(&local->key, key, sizeof *key) != 0)
        local = local->next;
    return local;
}

/* Assign a serial number; with a key, add to the list. The registry is locked. */
static void add_joinable(struct tri_nccl_local *local, const struct tri_nccl_key *key)
{
    local->serial = ++serials;
    if (key == NULL)
        return;
    local->key = *key;
    local->next = joinable;
    local->listed = true;
    joinable = local;
}

/* The registry is locked. */
static void remove_joinable(struct tri_nccl_local *local)
{
    if (!local->listed)
        return;
    struct tri_nccl_local **at = &joinable;
    while (*at != local)
        at = &(*at)->next;
    *at = local->next;
    local->listed = false;
}

/* Refuse what NCCL would answer with a hang or an unexplained error. local->lock is held. */
static trib_status compatible(const struct tri_nccl_local *local, int32_t rank, int32_t size,
                              int32_t device)
{
    for (const struct tri_transport *other = local->ranks; other != NULL; other = other->next) {
        if (rank >= 0 && other->size != size)
            return tri_fail(TRIB_ERR_MISMATCH,
                            "rank %d passed size %d, rank %d of the same id passed size %d",
                            (int)rank, (int)size, (int)other->rank, (int)other->size);
        if (rank >= 0 && other->rank == rank)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "rank %d of this id has already joined, on another thread of this "
                            "process; each rank joins once, and an id makes one communicator",
                            (int)rank);
        if (other->device == device)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "rank %d cannot use device %d: rank %d of the same communicator is on "
                            "it; NCCL needs a separate device for every rank",
                            (int)rank, (int)device, (int)other->rank);
    }
    return TRIB_OK;
}

/* The registry is locked. */
static trib_status add(struct tri_nccl_local *local, struct tri_transport *transport)
{
    pthread_mutex_lock(&local->lock);
    trib_status status =
        local->stage != TRI_NCCL_OPEN
            ? tri_abort_status(local->state) /* another rank gave up */
            : compatible(local, transport->rank, transport->size, transport->device);
    if (status == TRIB_OK) {
        transport->local = local;
        transport->next = local->ranks;
        local->ranks = transport;
        local->joined++;
        tri_nccl_retain(local);
    }
    pthread_mutex_unlock(&local->lock);
    return status;
}

trib_status tri_nccl_add_rank(struct tri_nccl_local *local, struct tri_transport *transport)
{
    pthread_mutex_lock(&registry);
    const trib_status status = add(local, transport);
    pthread_mutex_unlock(&registry);
    return status;
}

trib_status tri_nccl_add_rank_by_key(struct tri_nccl_local *made, const struct tri_nccl_key *key,
                                     struct tri_transport *transport, bool *out_used)
{
    pthread_mutex_lock(&registry);
    struct tri_nccl_local *local = key == NULL ? NULL : find(key);
    *out_used = local == NULL;
    if (*out_used) {
        local = made;
        add_joinable(local, key);
    }
    const trib_status status = add(local, transport);
    pthread_mutex_unlock(&registry);
    return status;
}

void tri_nccl_configure(struct tri_transport *transport, const struct tri_config *config)
{
    pthread_mutex_lock(&transport->local->lock);
    transport->config = *config;
    pthread_mutex_unlock(&transport->local->lock);
}

/* All ranks pass the same, but some may not have done so yet. */
bool tri_nccl_is_unabortable(struct tri_nccl_local *local)
{
    bool found = local->key.adopted != 0;
    pthread_mutex_lock(&local->lock);
    for (const struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        found = found || rank->config.unabortable;
    pthread_mutex_unlock(&local->lock);
    return found;
}

void tri_nccl_end_joining(struct tri_nccl_local *local)
{
    pthread_mutex_lock(&registry);
    remove_joinable(local);
    pthread_mutex_unlock(&registry);
}

void tri_nccl_publish(struct tri_transport *transport, ncclComm_t comm)
{
    pthread_mutex_lock(&transport->local->lock);
    transport->comm = comm;
    pthread_mutex_unlock(&transport->local->lock);
}

/* Allocate the counters for every peer. */
static trib_status alloc_counts(struct tri_transport *transport)
{
    if (transport->size == 1)
        return TRIB_OK;
    struct tri_nccl_p2p_counts *p2p = calloc((size_t)transport->size, sizeof *p2p);
    if (p2p == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for %d ranks",
                        (int)transport->size);
    pthread_mutex_lock(&transport->local->lock);
    transport->p2p = p2p;
    pthread_mutex_unlock(&transport->local->lock);
    return TRIB_OK;
}

trib_status tri_nccl_alloc_resources(struct tri_transport *transport)
{
    TRI_TRY(alloc_counts(transport));
    struct tri_nccl_device_guard guard;
    TRI_TRY(tri_nccl_push_device(&guard, transport->device));
    cudaError_t error = cudaStreamCreateWithFlags(&transport->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess && transport->size == 1)
        error = tri_nccl_order_create(&transport->order);
    tri_nccl_pop_device(&guard);
    if (error != cudaSuccess)
        return tri_nccl_cuda_fail(error, "preparing a communicator", transport->device);
    tri_nccl_wait_at_exit(transport->device);
    tri_nccl_marks_init(&transport->marks, transport->device);
    return tri_nccl_prober_add(&transport->marks);
}

void tri_nccl_free_resources(struct tri_nccl_local *local)
{
    struct tri_nccl_device_guard guard;
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next) {
        tri_nccl_prober_remove(&rank->marks);
        if (tri_nccl_push_device(&guard, rank->device) != TRIB_OK)
            continue;
        tri_nccl_marks_free(&rank->marks);
        if (rank->stream != NULL)
            (void)cudaStreamDestroy(rank->stream);
        tri_nccl_order_destroy(&rank->order);
        tri_nccl_pop_device(&guard);
        rank->stream = NULL;
    }
}

trib_status tri_nccl_raise_abort(struct tri_nccl_local *local, trib_status status)
{
    (void)tri_abort_raise(local->state, status, tri_detail());
    return tri_abort_status(local->state);
}

bool tri_nccl_advance(struct tri_nccl_local *local, enum tri_nccl_stage from,
                      enum tri_nccl_stage to)
{
    pthread_mutex_lock(&local->lock);
    bool good = local->stage == from;
    if (good)
        local->stage = to;
    pthread_mutex_unlock(&local->lock);
    return good;
}

bool tri_nccl_has_symmetric(const struct tri_nccl_local *local)
{
    bool found = false;
    for (const struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        found = found || rank->symmetric != NULL;
    return found;
}

void tri_nccl_retain(struct tri_nccl_local *local)
{
    (void)atomic_fetch_add_explicit(&local->references, 1, memory_order_relaxed);
}

void tri_nccl_free_local(struct tri_nccl_local *local)
{
    tri_abort_release(local->state);
    while (local->ranks != NULL) {
        struct tri_transport *rank = local->ranks;
        local->ranks = rank->next;
        free(rank->p2p);
        free(rank);
    }
    pthread_mutex_destroy(&local->lock);
    tri_nccl_graphs_release(local->graphs);
    tri_nccl_background_release();
    free(local);
}

bool tri_nccl_drop_reference(struct tri_nccl_local *local, bool last_too)
{
    pthread_mutex_lock(&registry);
    const bool last = atomic_load(&local->references) == 1;
    if (last)
        remove_joinable(local);
    if (!last || last_too)
        (void)atomic_fetch_sub(&local->references, 1);
    pthread_mutex_unlock(&registry);
    return last;
}
