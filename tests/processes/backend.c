/* The table of backends of a test: host, with the ranks of a communicator in several processes.
 * Memory, streams and kernels are host's own. */
#include "tests/processes/backend.h"

#include <string.h>

#include "tests/processes/symmetric.h"
#include "tests/processes/transport.h"

trib_status processes_wait(const struct tri_transport *self, bool (*holds)(void *context),
                           void *context)
{
    return place_wait(holds, context, self->flag, 0) ? TRIB_OK : tri_abort_status(self->state);
}

static int32_t rank_of(const struct tri_transport *self)
{
    return self->rank;
}

static int32_t size_of(const struct tri_transport *self)
{
    return self->size;
}

static int32_t here(struct tri_transport *self)
{
    return self->here;
}

static struct trib_abort *abort_state(struct tri_transport *self)
{
    return self->state;
}

static const uint32_t *abort_flag(struct tri_transport *self)
{
    return self->flag;
}

static trib_status submit(struct tri_transport *self, void (*function)(void *argument),
                          const void *argument, size_t bytes, trib_stream stream)
{
    return tri_backend_host.transport->submit(self->inner, function, argument, bytes, stream);
}

static void progress(struct tri_transport *self, struct tri_progress *out)
{
    tri_backend_host.transport->progress(self->inner, out);
}

static trib_status close_rank(struct tri_transport *self, uint32_t timeout_ms)
{
    return tri_backend_host.transport->close(self->inner, timeout_ms);
}

static const struct tri_share_ops *share; /* NULL: processes share no memory */
static uint64_t (*share_bytes)(const struct tri_transport *self);

static uint64_t peer_bytes(const struct tri_transport *self)
{
    return tri_symmetric_bytes(self->symmetric) + (share_bytes == NULL ? 0 : share_bytes(self));
}

static void destroy(struct tri_transport *self)
{
    if (self->shared != NULL)
        share->drop(self);
    processes_symmetric_end(self);
    tri_backend_host.transport->destroy(self->inner);
}

static struct tri_transport_ops transport_ops = {
    .id_create = processes_id_create,
    .id_is_mine = processes_id_is_mine,
    .open = processes_open,
    .open_group = processes_open_group,
    .split = processes_split,
    .rank = rank_of,
    .size = size_of,
    .here = here,
    .symmetric = &processes_symmetric,
    .peer_bytes = peer_bytes,
    .abort_state = abort_state,
    .abort_flag = abort_flag,
    .submit = submit,
    .collective = processes_collective,
    .progress = progress,
    .close = close_rank,
    .destroy = destroy,
};

void processes_share(const struct tri_share_ops *ops,
                     uint64_t (*bytes)(const struct tri_transport *self))
{
    share = ops;
    transport_ops.share = ops;
    share_bytes = bytes;
}

static struct tri_backend backend = {.name = "processes"};

/* In place of csrc/backends.c, which the linker then leaves out. */
const struct tri_backend *const tri_backends[] = {&backend, NULL};

static struct tri_device_ops device_ops; /* host's, but for their number */
static int32_t devices;                  /* 0: as many as host has */

static int32_t device_count(void)
{
    return devices > 0 ? devices : tri_backend_host.device->count();
}

void processes_devices(int32_t n)
{
    devices = n;
}

static uint32_t capabilities(void)
{
    return tri_backend_host.capabilities() | TRIB_CAN_PROCESSES;
}

/* host's table is no constant expression. */
__attribute__((constructor)) static void fill_backend(void)
{
    backend.capabilities = capabilities;
    backend.max_ranks = tri_backend_host.max_ranks;
    backend.native = tri_backend_host.native;
    device_ops = *tri_backend_host.device;
    device_ops.count = device_count;
    backend.device = &device_ops;
    backend.transport = &transport_ops;
    backend.kernels = tri_backend_host.kernels;
    backend.speed = tri_backend_host.speed;
}

const struct tri_backend *tri_backend_find(const char *name)
{
    return strcmp(name, backend.name) == 0 ? &backend : NULL;
}
