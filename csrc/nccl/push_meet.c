/* Push inside one process: all ranks are here, and the last one that comes makes its memory. */
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/push_inside.h"
#include "kernels/cuda/kernels_cuda.h"

enum { NAP_NS = 50000 };

/* Does `holds` hold from every device to every other one? */
static bool for_all_pairs(const int32_t *devices, int32_t n,
                          bool (*holds)(int32_t from, int32_t to))
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < n; j++)
            if (i != j && !holds(devices[i], devices[j]))
                return false;
    return true;
}

/* That of all devices; 0: one has no memory of that kind. */
static size_t granularity_of(const int32_t *devices, int32_t n)
{
    size_t granularity = 1;
    for (int32_t i = 0; i < n; i++) {
        const size_t own = tri_nccl_peer_granularity(devices[i]);
        if (own == 0)
            return 0;
        granularity = own > granularity ? own : granularity;
    }
    return granularity;
}

static int32_t fewest_multiprocessors(const int32_t *devices, int32_t n)
{
    int32_t fewest = tri_nccl_multiprocessors(devices[0]);
    for (int32_t i = 1; i < n; i++) {
        const int32_t own = tri_nccl_multiprocessors(devices[i]);
        fewest = own < fewest ? own : fewest;
    }
    return fewest;
}

static bool allocate(struct tri_nccl_push *push, const struct tri_nccl_push_ranks *ranks,
                     size_t bytes)
{
    for (int32_t i = 0; i < push->size; i++)
        if (!tri_nccl_push_switch(ranks, i) || tri_nccl_push_alloc_own(push, i) != cudaSuccess ||
            tri_nccl_peer_alloc(&push->scratch[i], ranks->devices, push->size, i, bytes, false) !=
                CUDA_SUCCESS)
            return false;
    return true;
}

/* NULL, or why there is none. */
static const char *make(struct tri_nccl_push *push, const struct tri_nccl_push_ranks *ranks,
                        size_t budget, uint32_t *abort_flag)
{
    if (!for_all_pairs(ranks->devices, push->size, tri_nccl_reaches))
        return "its devices cannot access each other's memory";
    push->nvlink = for_all_pairs(ranks->devices, push->size, tri_nccl_is_nvlink);
    push->granularity = granularity_of(ranks->devices, push->size);
    push->multiprocessors = fewest_multiprocessors(ranks->devices, push->size);
    const bool pulls = tri_nccl_pull_is_for(push, budget);
    const size_t room = budget - (pulls ? TRI_NCCL_PULL_BYTES : 0);
    const size_t bytes = push->granularity == 0 ? 0 : tri_nccl_push_lay_out(push, room);
    if (bytes == 0)
        return "its devices have no memory of that kind, or `peer_bytes` is too small";
    if (!allocate(push, ranks, bytes))
        return "its devices had no memory for that";
    const cudaError_t error = tri_nccl_push_empty(push, ranks);
    if (error != cudaSuccess)
        return cudaGetErrorString(error);
    const char *why = tri_nccl_push_prove(push, ranks, abort_flag);
    if (why != NULL)
        return why;
    if (pulls)
        push->pull = tri_nccl_pull_make(push, ranks, abort_flag);
    return NULL;
}

static void log_refusal(int32_t size, const char *why)
{
    tri_log(TRIB_LOG_INFO, "NCCL serves all calls of a communicator of %d ranks: %s", (int)size,
            why);
}

/* All ranks have come, and none of them makes a call yet. */
static struct tri_nccl_push *set_up(int32_t size, const struct tri_nccl_push_ranks *ranks,
                                    size_t budget)
{
    struct tri_nccl_push *push = calloc(1, sizeof *push);
    void *flag = NULL;
    const char *why = "no memory";
    const enum cudaStreamCaptureMode before = tri_nccl_relax_capture();
    if (push != NULL && tri_nccl_alloc_pinned(&flag, sizeof(uint32_t)) == TRIB_OK) {
        push->size = size;
        why = make(push, ranks, budget, flag);
        if (why != NULL)
            tri_nccl_push_release(push);
    }
    tri_nccl_restore_capture(before);
    tri_nccl_free_pinned(flag);
    if (why == NULL) {
        tri_nccl_push_log(push);
        return push;
    }
    free(push);
    (void)cudaGetLastError();
    log_refusal(size, why);
    return NULL;
}

/* NULL, or why there is no push among `size` ranks of this process, the same for all of them. */
static const char *refusal(const struct tri_nccl_local *local, int32_t size)
{
    if (size > TRI_PUSH_RANKS)
        return "it has more than 8";
    if (tri_kernels_cuda.push == NULL)
        return "the library has no kernels for others";
    return tri_nccl_push_refusal(local);
}

/* On the thread of the rank that came last. */
static void make_for_all(const struct tri_transport *self)
{
    struct tri_nccl_local *local = self->local;
    struct tri_nccl_device_guard guard;
    struct tri_nccl_push_ranks ranks = {.guard = &guard};
    struct tri_nccl_push *push = NULL;
    uint64_t budget = SIZE_MAX;
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next) {
        ranks.of[rank->rank] = rank;
        ranks.devices[rank->rank] = rank->device;
        budget = rank->config.peer_bytes < budget ? rank->config.peer_bytes : budget;
    }
    if (budget == 0) {
        log_refusal(self->size, TRI_NCCL_NO_PEERS);
    } else if (tri_nccl_push_device(&guard, self->device) == TRIB_OK) {
        push = set_up(self->size, &ranks, (size_t)budget);
        tri_nccl_pop_device(&guard);
    }
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        tri_nccl_push_give(rank, push);
    local->push = push;
}

trib_status tri_nccl_push_meet(const struct tri_transport *self, int32_t n)
{
    struct tri_nccl_local *local = self->local;
    const char *const why = refusal(local, self->size);
    pthread_mutex_lock(&local->lock);
    const bool all_here =
        self->size >= 2 && local->joined == self->size; /* once NCCL has connected them */
    local->met += n;
    const bool last = local->met == self->size;
    pthread_mutex_unlock(&local->lock);
    if (all_here && last && why != NULL)
        log_refusal(self->size, why);
    if (!all_here || why != NULL)
        return TRIB_OK;
    if (last) {
        make_for_all(self);
        atomic_store_explicit(&local->push_made, true, memory_order_release);
    }
    while (!atomic_load_explicit(&local->push_made, memory_order_acquire)) {
        if (!tri_abort_live(local->state))
            return tri_abort_status(local->state);
        tri_nap_ns(NAP_NS);
    }
    return TRIB_OK;
}
