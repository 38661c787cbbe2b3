/* Symmetric memory of nccl. */
#include "csrc/nccl/symmetric.h"

#include <stdlib.h>

#include "csrc/base/descriptor.h"
#include "csrc/base/size.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/push_inside.h"

static void end(const struct tri_nccl_visit *visit, bool good)
{
    if (!good)
        (void)cudaGetLastError(); /* which is reported */
    tri_nccl_visit_end(visit);
}

static trib_status fail(const struct tri_transport *transport, size_t bytes, const char *why)
{
    return tri_fail(TRIB_ERR_OUT_OF_MEMORY,
                    "rank %d on device %d: no %zu bytes of symmetric memory: %s",
                    (int)transport->rank, (int)transport->device, bytes, why);
}

/* ---------------------------------------------------------------------------------- what there is */

static bool is_elsewhere(const struct tri_transport *transport)
{
    return transport->push != NULL && transport->push->apart;
}

/* What the bytes of each rank are a multiple of; 0: there is none. */
static size_t granularity_of(const struct tri_transport *transport)
{
    return transport->push != NULL ? transport->push->granularity
                                   : tri_nccl_peer_granularity(transport->device);
}

static const char *refuses(struct tri_transport *transport)
{
    if (transport->size > 1 && transport->push == NULL)
        return "the kernels of PEERS serve none of this communicator's calls: its ranks do not "
               "reach each other's memory, or may not; TRIB_LOG_INFO says why when it is created";
    return granularity_of(transport) == 0 ? "the driver maps no memory for several devices" : NULL;
}

/* Push brings less as fast, over NVLink on H100. */
enum { NEAR = 512 * 1024 };

static size_t near_from(const struct tri_transport *transport)
{
    const struct tri_nccl_push *push = transport->push;
    return push != NULL && push->nvlink && push->size <= TRI_NCCL_MEASURED ? NEAR : SIZE_MAX;
}

static bool serves(struct tri_transport *transport, size_t count, trib_dtype dtype)
{
    const struct tri_call call = {.kind = TRI_ALLREDUCE,
                                  .transport = transport,
                                  .count = count,
                                  .dtype = dtype,
                                  .op = TRIB_SUM};
    return tri_nccl_pull_prefers_mapped(&call) && !tri_nccl_push_serves(&call);
}

static size_t wants(struct tri_transport *transport)
{
    const struct tri_nccl_push *push = transport->push;
    return push != NULL && push->wants_pull ? TRI_NCCL_PULL_BYTES : 0;
}

static void set_part(struct tri_symmetric *memory, int32_t rank,
                     const struct tri_nccl_peer_memory *part)
{
    memory->of[rank].here = (char *)(uintptr_t)part->address; /* NOLINT: as the driver has it */
    memory->of[rank].handle = part->handle;
}

/* ----------------------------------------------------------------------------------------- steps */

/* By rank. Returns how many: the size. */
static int32_t devices_of(int32_t *out, const struct tri_transport *transport)
{
    struct tri_nccl_local *local = transport->local;
    pthread_mutex_lock(&local->lock);
    for (const struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        out[rank->rank] = rank->device;
    pthread_mutex_unlock(&local->lock);
    return transport->size;
}

static CUresult create(struct tri_nccl_peer_memory *out, const struct tri_transport *transport,
                       size_t bytes, int *out_fd)
{
    int32_t devices[TRI_NCCL_MAX_DEVICES];
    if (is_elsewhere(transport))
        return tri_nccl_peer_export(out, out_fd, transport->device, bytes);
    const int32_t n = devices_of(devices, transport);
    return tri_nccl_peer_alloc(out, devices, n, transport->rank, bytes, transport->config.windows);
}

/* Zeros: pull relies on them, and nobody sees what was there. */
static cudaError_t clear(const struct tri_nccl_peer_memory *part,
                         const struct tri_transport *transport)
{
    const cudaError_t error = cudaMemsetAsync((void *)(uintptr_t)part->address, 0, part->bytes,
                                              transport->stream); /* NOLINT: as the driver has it */
    return error == cudaSuccess ? cudaStreamSynchronize(transport->stream) : error;
}

static trib_status alloc(struct tri_transport *transport, struct tri_symmetric *memory, int *out_fd)
{
    struct tri_nccl_visit visit;
    struct tri_nccl_peer_memory part;
    *out_fd = -1;
    TRI_TRY(tri_nccl_visit_begin(&visit, transport->device));
    memory->mapped = tri_round_up(memory->bytes, granularity_of(transport));
    const bool made = create(&part, transport, memory->mapped, out_fd) == CUDA_SUCCESS;
    if (made)
        set_part(memory, transport->rank, &part);
    const cudaError_t cleared = made ? clear(&part, transport) : cudaSuccess;
    end(&visit, made && cleared == cudaSuccess);
    if (!made)
        return fail(transport, memory->bytes, "the driver has none");
    if (cleared == cudaSuccess)
        return TRIB_OK;
    tri_descriptor_close(out_fd);
    return fail(transport, memory->bytes, cudaGetErrorString(cleared));
}

static trib_status map(struct tri_transport *transport, struct tri_symmetric *memory,
                       const int *fds)
{
    struct tri_nccl_visit visit;
    CUresult result = CUDA_SUCCESS;
    TRI_TRY(tri_nccl_visit_begin(&visit, transport->device));
    for (int32_t rank = 0; rank < memory->size && result == CUDA_SUCCESS; rank++) {
        struct tri_nccl_peer_memory part;
        if (rank == transport->rank)
            continue;
        result = tri_nccl_peer_import(&part, fds[rank], transport->device, memory->mapped);
        if (result == CUDA_SUCCESS)
            set_part(memory, rank, &part);
    }
    end(&visit, result == CUDA_SUCCESS);
    return result == CUDA_SUCCESS
               ? TRIB_OK
               : fail(transport, memory->bytes, "the driver maps no memory of other processes");
}

static void release(struct tri_transport *transport, struct tri_symmetric *memory)
{
    struct tri_nccl_visit visit;
    if (tri_nccl_visit_begin(&visit, transport->device) != TRIB_OK)
        return; /* CUDA is over, and so is the memory */
    for (int32_t rank = 0; rank < memory->size; rank++) {
        struct tri_nccl_peer_memory part = tri_nccl_peer_part(memory, rank);
        if (part.handle != 0) /* what other ranks of this process have, they free */
            tri_nccl_peer_free(&part);
    }
    end(&visit, true);
}

/* ---------------------------------------------------------------------------------- pull's memory */

static trib_status begin_wanted(struct tri_transport *transport)
{
    struct tri_nccl_push *push = transport->local->push;
    const char *why = tri_nccl_pull_begin(&push->coming, push, transport->device);
    return why == NULL ? TRIB_OK : tri_fail(TRIB_ERR_UNSUPPORTED, "%s", why);
}

/* NULL, or what went wrong. */
static const char *finish_pull(struct tri_transport *transport, const struct tri_symmetric *memory,
                               struct tri_nccl_visit *visit)
{
    const struct tri_nccl_push *push = transport->push;
    struct tri_nccl_push_ranks ranks = {.guard = &visit->guard};
    void *flag = NULL;
    ranks.of[transport->rank] = transport;
    ranks.devices[transport->rank] = transport->device;
    if (tri_nccl_alloc_pinned(&flag, sizeof(uint32_t)) != TRIB_OK)
        return "no pinned memory";
    const char *why = tri_nccl_pull_finish(push->coming, push, memory, &ranks, flag);
    tri_nccl_free_pinned(flag);
    return why;
}

static trib_status try_wanted(struct tri_transport *transport, struct tri_symmetric *memory)
{
    struct tri_nccl_visit visit;
    TRI_TRY(tri_nccl_visit_begin(&visit, transport->device));
    const char *why = finish_pull(transport, memory, &visit);
    end(&visit, why == NULL);
    return why == NULL ? TRIB_OK : tri_fail(TRIB_ERR_UNSUPPORTED, "%s", why);
}

static void settle_wanted(struct tri_transport *transport, struct tri_symmetric *memory,
                          bool by_all)
{
    struct tri_nccl_push *push = transport->local->push;
    push->wants_pull = false;
    if (by_all)
        push->pull = push->coming;
    else
        tri_nccl_pull_give_up(push->coming);
    push->coming = NULL;
    if (!by_all && memory != NULL)
        release(transport, memory);
    tri_nccl_push_log(push);
    free(memory);
}

/* ------------------------------------------------------------------------------------------- all */

static struct tri_symmetric **list(struct tri_transport *transport)
{
    return &transport->symmetric;
}

static void keep(struct tri_transport *transport)
{
    transport->keeps = true;
}

void tri_nccl_symmetric_end(struct tri_nccl_local *local)
{
    struct tri_symmetric *memory;
    for (struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        while ((memory = tri_symmetric_pop(&rank->symmetric)) != NULL) {
            if (!local->kept && !rank->keeps)
                release(rank, memory);
            free(memory);
        }
}

const struct tri_symmetric_ops tri_nccl_symmetric = {.refuses = refuses,
                                                     .near_from = near_from,
                                                     .serves = serves,
                                                     .wants = wants,
                                                     .begin_wanted = begin_wanted,
                                                     .alloc = alloc,
                                                     .map = map,
                                                     .try_wanted = try_wanted,
                                                     .settle_wanted = settle_wanted,
                                                     .release = release,
                                                     .list = list,
                                                     .keep = keep};
