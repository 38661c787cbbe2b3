/* The backend "nccl": ranks are GPUs that communicate through NCCL. */
#include <nccl.h>

#include "csrc/backend.h"
#include "csrc/nccl/config.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/poll.h"
#include "csrc/nccl/prober.h"
#include "csrc/nccl/pull.h"
#include "csrc/nccl/push.h"
#include "csrc/nccl/quiesce.h"
#include "csrc/nccl/ras.h"
#include "csrc/nccl/symmetric.h"
#include "csrc/nccl/teardown.h"
#include "csrc/nccl/windows.h"
#include "kernels/cuda/kernels_cuda.h"

static trib_status version(uint32_t *out)
{
    int found = 0;
    ncclResult_t result = ncclGetVersion(&found);
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "querying the version", -1, -1);
    *out = (uint32_t)found;
    return TRIB_OK;
}

static uint32_t capabilities(void)
{
    uint32_t found = 0;
    uint32_t can = TRIB_CAN_PROCESSES | TRIB_CAN_CAPTURE | TRIB_CAN_INTERRUPT | TRIB_CAN_HEAR |
                   TRIB_CAN_CONFIGURE | TRIB_CAN_ADOPT | TRIB_CAN_PEERS | TRIB_CAN_PEERS_LARGE;
    if (tri_nccl_has_policy(TRIB_CTA_EFFICIENCY))
        can |= TRIB_CAN_CTA_EFFICIENCY;
    if (tri_nccl_has_policy(TRIB_CTA_ZERO))
        can |= TRIB_CAN_CTA_ZERO;
    if (tri_nccl_aborts_windows())
        can |= TRIB_CAN_WINDOWS;
    if (version(&found) == TRIB_OK && found >= TRI_NCCL_RAS_SINCE)
        can |= TRIB_CAN_ASK_RAS;
    return can;
}

/* An NCCL id is 128 bytes without a mark: every id that no other backend has marked is ours. */
static bool id_is_mine(const trib_id *id)
{
    (void)id;
    return true;
}

static int32_t rank_of(const struct tri_transport *transport)
{
    return transport->rank;
}

static int32_t size_of(const struct tri_transport *transport)
{
    return transport->size;
}

static int32_t here(struct tri_transport *transport)
{
    pthread_mutex_lock(&transport->local->lock);
    const int32_t joined = transport->local->joined;
    pthread_mutex_unlock(&transport->local->lock);
    return joined;
}

static struct trib_abort *abort_state(struct tri_transport *transport)
{
    return transport->local->state;
}

static const uint32_t *abort_flag(struct tri_transport *transport)
{
    return transport->local->abort_flag;
}

static trib_status push_device(int32_t device, uintptr_t *previous)
{
    struct tri_nccl_device_guard guard;
    trib_status status = tri_nccl_push_device(&guard, device);
    *previous = status == TRIB_OK ? (uintptr_t)guard.saved : 0;
    return status;
}

static void pop_device(uintptr_t previous)
{
    /* The current context does not matter, only the restored one. */
    (void)tri_nccl_driver.set_current((CUcontext)previous);
}

static bool mark(struct tri_transport *transport, uint64_t number, trib_stream stream,
                 enum tri_mark when)
{
    return tri_nccl_marks_record(&transport->marks, number, stream, when);
}

static void progress(struct tri_transport *transport, struct tri_progress *out)
{
    if (!tri_nccl_marks_read(&transport->marks, out))
        tri_nccl_prober_ask();
}

/* A communicator of one rank is not NCCL's. */
static void diagnose(struct tri_transport *transport)
{
    int found = 0;
    if (transport->size > 1 && ncclGetVersion(&found) == ncclSuccess && found >= TRI_NCCL_RAS_SINCE)
        tri_nccl_ras_ask();
}

/* The local ranks free the memory: a background job may still need it. */
static void destroy(struct tri_transport *transport)
{
    tri_nccl_release(transport->local);
}

static const struct tri_device_ops device_ops = {
    .count = tri_nccl_device_count,
    .version = version,
    .alloc = tri_nccl_alloc,
    .free = tri_nccl_free,
    .free_later = tri_nccl_free_later,
    .alloc_pinned = tri_nccl_alloc_pinned,
    .free_pinned = tri_nccl_free_pinned,
    .copy = tri_nccl_copy,
    .fetch = tri_nccl_fetch,
    .check_buffer = tri_nccl_check_buffer,
    .check_stream = tri_nccl_check_stream,
    .push_device = push_device,
    .pop_device = pop_device,
    .stream_create = tri_nccl_stream_create,
    .stream_wait = tri_nccl_stream_wait,
    .stream_query = tri_nccl_stream_query,
    .stream_wait_event = tri_nccl_stream_wait_event,
    .stream_submit = tri_nccl_stream_submit,
    .stream_destroy = tri_nccl_stream_destroy,
    .capturing = tri_nccl_capturing,
    .keep = tri_nccl_keep,
    .event_create = tri_nccl_event_create,
    .event_record = tri_nccl_event_record,
    .event_wait = tri_nccl_event_wait,
    .event_query = tri_nccl_event_query,
    .event_elapsed = tri_nccl_event_elapsed,
    .event_destroy = tri_nccl_event_destroy,
};

static const struct tri_transport_ops transport_ops = {
    .id_create = tri_nccl_id_create,
    .id_is_mine = id_is_mine,
    .open = tri_nccl_open,
    .open_group = tri_nccl_open_group,
    .split = tri_nccl_split,
    .inspect = tri_nccl_inspect,
    .adopt = tri_nccl_adopt,
    .rank = rank_of,
    .size = size_of,
    .here = here,
    .share = &tri_nccl_push_share,
    .symmetric = &tri_nccl_symmetric,
    .open_window = tri_nccl_open_window,
    .close_window = tri_nccl_close_window,
    .peer_bytes = tri_nccl_push_bytes,
    .lacks = tri_nccl_push_lacks,
    .abort_state = abort_state,
    .abort_flag = abort_flag,
    .submit = NULL,
    .collective = tri_nccl_collective,
    .word = tri_nccl_push_word,
    .refuses = tri_nccl_refuses,
    .packs_itself = tri_nccl_packs_itself,
    .stages = tri_nccl_stages,
    .staged = tri_nccl_pull_staged,
    .mark = mark,
    .progress = progress,
    .poll = tri_nccl_poll,
    .diagnose = diagnose,
    .close = tri_nccl_close,
    .destroy = destroy,
};

extern const struct tri_backend tri_backend_nccl;
const struct tri_backend tri_backend_nccl = {
    .name = "nccl",
    .quiesce = tri_nccl_quiesce,
    .capabilities = capabilities,
    .max_ranks = INT32_MAX,
    .native = 1u << TRI_ALLREDUCE | 1u << TRI_BROADCAST | 1u << TRI_REDUCE | 1u << TRI_ALLGATHER |
              1u << TRI_REDUCE_SCATTER | 1u << TRI_SEND | 1u << TRI_RECV | 1u << TRI_ALLTOALL,
    .compares = false,
    .device = &device_ops,
    .transport = &transport_ops,
    .kernels = &tri_kernels_cuda,
    /* H200, NVLink */
    .speed = {.copy = 3.7e12, .select = 3.2e12, .bandwidth = 356e9, .latency = 12e-6},
};
