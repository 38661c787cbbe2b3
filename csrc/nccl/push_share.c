/* Push between processes of one host, each with one rank: every rank allocates its own memory, and maps
 * what the others export. Of those it has no transport, and nothing but scratch. */
#include <stdlib.h>
#include <string.h>

#include "csrc/base/descriptor.h"
#include "csrc/base/machine.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/push_inside.h"
#include "kernels/cuda/kernels_cuda.h"

enum { BUS_ID = 16 };

/* A rank as the others need to know it. */
struct offer {
    uint64_t host;            /* equal on the ranks of one */
    uint64_t budget;          /* bytes of its device, at most */
    uint64_t granularity;     /* of its device's memory */
    uint32_t nvlink;          /* 1: from its device to every other one that it sees */
    uint32_t multiprocessors; /* of its device */
    char device[BUS_ID];      /* on the PCI bus, which tells the devices of a host apart */
};
_Static_assert(sizeof(struct offer) <= sizeof(struct tri_words), "core hands it on");

/* ----------------------------------------------------------------------------------- what is offered */

/* NULL, or why this rank takes no part. */
static const char *refusal(const struct tri_transport *transport)
{
    if (transport->config.peer_bytes == 0)
        return TRI_NCCL_NO_PEERS;
    if (tri_kernels_cuda.push == NULL || !tri_nccl_peer_can_export())
        return "the driver exports no memory to other processes";
    return tri_nccl_push_refusal(transport->local);
}

/* A device that this process does not see may be connected in any way. */
static bool sees_nvlink_only(int32_t device)
{
    const int32_t n = tri_nccl_device_count();
    for (int32_t other = 0; other < n; other++)
        if (other != device && !tri_nccl_is_nvlink(device, other))
            return false;
    return n > 1;
}

/* NULL, or why it cannot be told. */
static const char *describe(struct offer *out, const struct tri_transport *transport)
{
    *out = (struct offer){.host = tri_machine_host(),
                          .budget = transport->config.peer_bytes,
                          .granularity = tri_nccl_peer_granularity(transport->device),
                          .nvlink = sees_nvlink_only(transport->device),
                          .multiprocessors = (uint32_t)tri_nccl_multiprocessors(transport->device)};
    if (out->granularity == 0)
        return "its device has no memory of that kind";
    return cudaDeviceGetPCIBusId(out->device, sizeof out->device, transport->device) == cudaSuccess
               ? NULL
               : "CUDA does not tell where its device is";
}

static trib_status offer(struct tri_transport *transport, struct tri_words *out)
{
    struct offer own;
    const char *why = refusal(transport);
    if (why == NULL)
        why = describe(&own, transport);
    if (why != NULL) {
        (void)cudaGetLastError();
        return tri_fail(TRIB_ERR_UNSUPPORTED, "%s", why);
    }
    memset(out, 0, sizeof *out);
    memcpy(out, &own, sizeof own);
    return TRIB_OK;
}

/* ------------------------------------------------------------------------------------------ steps */

/* A step, with the rank's device current and no capture disturbed. */
struct step {
    struct tri_transport *transport;
    struct tri_nccl_visit visit;
    struct tri_nccl_push_ranks ranks; /* this one alone is here */
};

/* Registered with the abort state, so that nothing is freed meanwhile. */
static trib_status begin(struct step *step, struct tri_transport *transport)
{
    struct trib_abort *state = transport->local->state;
    *step = (struct step){.transport = transport};
    if (!tri_abort_register(state))
        return tri_abort_status(state);
    const trib_status status = tri_nccl_visit_begin(&step->visit, transport->device);
    if (status != TRIB_OK) {
        tri_abort_unregister(state);
        return status;
    }
    step->ranks.of[transport->rank] = transport;
    step->ranks.devices[transport->rank] = transport->device;
    step->ranks.guard = &step->visit.guard;
    return TRIB_OK;
}

/* `why`: what went wrong, or NULL. */
static trib_status end(struct step *step, const char *why)
{
    if (why != NULL)
        (void)cudaGetLastError();
    tri_nccl_visit_end(&step->visit);
    tri_abort_unregister(step->transport->local->state);
    return why == NULL ? TRIB_OK : tri_fail(TRIB_ERR_UNSUPPORTED, "%s", why);
}

/* Can the device reach that of another rank? One that this process does not see is for the driver to
 * refuse, and for the trial. */
static bool may_reach(int32_t device, const struct offer *other)
{
    int peer = 0;
    if (cudaDeviceGetByPCIBusId(&peer, other->device) != cudaSuccess) {
        (void)cudaGetLastError();
        return true;
    }
    return tri_nccl_reaches(device, peer);
}

/* NULL, or why ranks with these offers share nothing. `*out`: what all of them have. */
static const char *combine(struct offer *out, const struct tri_transport *transport,
                           const struct tri_words *all)
{
    memcpy(out, &all[transport->rank], sizeof *out);
    const struct offer own = *out;
    for (int32_t i = 0; i < transport->size; i++) {
        struct offer other;
        memcpy(&other, &all[i], sizeof other);
        if (other.host != own.host)
            return "its ranks are on several hosts, or NCCL_HOSTID says so";
        if (i != transport->rank && memcmp(other.device, own.device, sizeof own.device) == 0)
            return "two of its ranks are on one device";
        if (i != transport->rank && !may_reach(transport->device, &other))
            return "its devices cannot access each other's memory";
        out->budget = other.budget < out->budget ? other.budget : out->budget;
        out->granularity =
            other.granularity > out->granularity ? other.granularity : out->granularity;
        out->nvlink = out->nvlink & other.nvlink;
        if (other.multiprocessors < out->multiprocessors)
            out->multiprocessors = other.multiprocessors;
    }
    return NULL;
}

/* NULL, or why there is no memory. */
static const char *make(struct tri_nccl_push *push, const struct step *step,
                        const struct tri_words *all, int *out_fd)
{
    struct offer shared;
    const struct tri_transport *transport = step->transport;
    const char *why = combine(&shared, transport, all);
    if (why != NULL)
        return why;
    push->apart = true;
    push->granularity = (size_t)shared.granularity;
    push->nvlink = shared.nvlink != 0;
    push->multiprocessors = (int32_t)shared.multiprocessors;
    push->wants_pull = tri_nccl_pull_is_for(push, (size_t)shared.budget);
    const size_t bytes = tri_nccl_push_lay_out(
        push, (size_t)shared.budget - (push->wants_pull ? TRI_NCCL_PULL_BYTES : 0));
    if (bytes == 0)
        return "`peer_bytes` is too small";
    if (tri_nccl_push_alloc_own(push, transport->rank) != cudaSuccess ||
        tri_nccl_peer_export(&push->scratch[transport->rank], out_fd, transport->device, bytes) !=
            CUDA_SUCCESS)
        return "its device had no memory for that";
    const cudaError_t error = tri_nccl_push_empty(push, &step->ranks);
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}

static trib_status allocate(struct tri_transport *transport, const struct tri_words *all,
                            int *out_fd)
{
    struct step step;
    *out_fd = -1;
    TRI_TRY(begin(&step, transport));
    transport->sharing = calloc(1, sizeof *transport->sharing);
    if (transport->sharing == NULL)
        return end(&step, "no memory");
    transport->sharing->size = transport->size;
    const char *why = make(transport->sharing, &step, all, out_fd);
    if (why != NULL)
        tri_descriptor_close(out_fd);
    return end(&step, why);
}

static trib_status map(struct tri_transport *transport, const int *fds)
{
    struct step step;
    struct tri_nccl_push *push = transport->sharing;
    CUresult result = CUDA_SUCCESS;
    TRI_TRY(begin(&step, transport));
    for (int32_t i = 0; i < push->size && result == CUDA_SUCCESS; i++)
        if (i != transport->rank)
            result = tri_nccl_peer_import(&push->scratch[i], fds[i], transport->device,
                                          push->scratch[transport->rank].bytes);
    return end(&step,
               result == CUDA_SUCCESS ? NULL : "the driver maps no memory of other processes");
}

/* NULL, or what went wrong. */
static const char *prove(const struct tri_nccl_push *push, const struct step *step)
{
    void *flag = NULL;
    if (tri_nccl_alloc_pinned(&flag, sizeof(uint32_t)) != TRIB_OK)
        return "no pinned memory";
    const char *why = tri_nccl_push_prove(push, &step->ranks, flag);
    tri_nccl_free_pinned(flag);
    return why;
}

static trib_status try(struct tri_transport *transport)
{
    struct step step;
    TRI_TRY(begin(&step, transport));
    return end(&step, prove(transport->sharing, &step));
}

static void drop(struct tri_transport *transport)
{
    struct tri_nccl_visit visit;
    struct tri_nccl_push *push = transport->sharing;
    if (push == NULL)
        return;
    if (tri_nccl_visit_begin(&visit, transport->device) == TRIB_OK) {
        tri_nccl_push_release(push);
        tri_nccl_visit_end(&visit);
    }
    free(push);
    transport->sharing = NULL;
}

/* After an abort nobody would free it but this call. */
static void use(struct tri_transport *transport)
{
    struct tri_nccl_local *local = transport->local;
    if (!tri_abort_register(local->state)) {
        drop(transport);
        return;
    }
    if (!transport->sharing->wants_pull) /* or once that is settled */
        tri_nccl_push_log(transport->sharing);
    tri_nccl_push_give(transport, transport->sharing);
    local->push = transport->sharing;
    transport->sharing = NULL;
    tri_abort_unregister(local->state);
}

const struct tri_share_ops tri_nccl_push_share = {.max_ranks = TRI_PUSH_RANKS,
                                                  .offer = offer,
                                                  .allocate = allocate,
                                                  .map = map,
                                                  .try = try,
                                                  .use = use,
                                                  .drop = drop};
