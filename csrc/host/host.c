/* The host backend: ranks are threads of this process, devices are parts of its memory. */
#include "csrc/host/ops.h"

#include <stddef.h>

#include "csrc/host/local.h"
#include "kernels/cpu/kernels_cpu.h"

static int32_t count(void)
{
    return TRI_HOST_MAX_RANKS;
}

static trib_status version(uint32_t *out)
{
    *out = TRIB_VERSION;
    return TRIB_OK;
}

static int32_t rank(const struct tri_transport *transport)
{
    return transport->rank;
}

static int32_t size(const struct tri_transport *transport)
{
    return transport->local->size;
}

static int32_t here(struct tri_transport *transport)
{
    return transport->local->size;
}

static struct trib_abort *abort_state(struct tri_transport *transport)
{
    return transport->local->abort;
}

static const uint32_t *abort_flag(struct tri_transport *transport)
{
    return &transport->local->abort_flag;
}

static void destroy(struct tri_transport *transport)
{
    tri_host_local_release(transport->local);
}

/* The side channel is for other processes, and there are none. */
static uint32_t capabilities(void)
{
    return TRIB_CAN_HOST_MEMORY | TRIB_CAN_COMPARE | TRIB_CAN_INTERRUPT | TRIB_CAN_HEAR;
}

static const struct tri_device_ops device_ops = {
    .count = count,
    .version = version,
    .alloc = tri_host_alloc,
    .free = tri_host_free,
    .alloc_pinned = tri_host_alloc_pinned,
    .free_pinned = tri_host_free_pinned,
    .copy = tri_host_copy,
    .fetch = tri_host_fetch,
    .check_buffer = tri_host_check_buffer,
    .check_stream = tri_host_check_stream,
    .stream_create = tri_host_stream_create,
    .stream_wait = tri_host_stream_wait,
    .stream_query = tri_host_stream_query,
    .stream_wait_event = tri_host_stream_wait_event,
    .stream_submit = tri_host_stream_submit,
    .stream_destroy = tri_host_stream_destroy,
    .event_create = tri_host_event_create,
    .event_record = tri_host_event_record,
    .event_wait = tri_host_event_wait,
    .event_query = tri_host_event_query,
    .event_elapsed = tri_host_event_elapsed,
    .event_destroy = tri_host_event_destroy,
};

static const struct tri_transport_ops transport_ops = {
    .id_create = tri_host_id_create,
    .id_is_mine = tri_host_id_is_mine,
    .open = tri_host_open,
    .open_group = tri_host_open_group,
    .split = tri_host_split,
    .rank = rank,
    .size = size,
    .here = here,
    .symmetric = &tri_host_symmetric,
    .peer_bytes = tri_host_symmetric_bytes,
    .abort_state = abort_state,
    .abort_flag = abort_flag,
    .submit = tri_host_submit,
    .progress = tri_host_progress,
    .collective = tri_host_collective,
    .collective_list = tri_host_collective_list,
    .poll = NULL,
    .close = tri_host_close,
    .destroy = destroy,
};

const struct tri_backend tri_backend_host = {
    .name = "host",
    .capabilities = capabilities,
    .max_ranks = TRI_HOST_MAX_RANKS,
    .native = 1u << TRI_ALLREDUCE | 1u << TRI_BROADCAST | 1u << TRI_REDUCE | 1u << TRI_ALLGATHER |
              1u << TRI_REDUCE_SCATTER | 1u << TRI_SEND | 1u << TRI_RECV | 1u << TRI_BARRIER,
    .compares = true,
    .device = &device_ops,
    .transport = &transport_ops,
    .kernels = &tri_kernels_cpu,
    /* measured with two ranks on two cores */
    .speed = {.copy = 17e9, .select = 8e9, .bandwidth = 20e9, .latency = 5e-6},
};
