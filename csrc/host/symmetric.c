/* Symmetric memory of host: what every rank allocates, all of them reach. */
#include <string.h>

#include "csrc/host/local.h"
#include "csrc/host/ops.h"

static const char *refuses(struct tri_transport *self)
{
    (void)self;
    return NULL;
}

/* Of small packets a call takes 1 us longer than with copies, and of others no longer; the code is one. */
static size_t near_from(const struct tri_transport *self)
{
    (void)self;
    return 0;
}

static trib_status alloc(struct tri_transport *self, struct tri_symmetric *memory, int *out_fd)
{
    void *data = NULL;
    *out_fd = -1;
    const trib_status status = tri_host_alloc(self->device, &data, memory->bytes);
    if (status == TRIB_OK)
        memset(data, 0, memory->bytes); /* as on a device */
    memory->of[self->rank].here = data;
    return status;
}

static void release(struct tri_transport *self, struct tri_symmetric *memory)
{
    (void)tri_host_free(self->device, memory->of[self->rank].here);
}

static struct tri_symmetric **list(struct tri_transport *self)
{
    return &self->symmetric;
}

uint64_t tri_host_symmetric_bytes(const struct tri_transport *self)
{
    return tri_symmetric_bytes(self->symmetric);
}

const struct tri_symmetric_ops tri_host_symmetric = {
    .refuses = refuses, .near_from = near_from, .alloc = alloc, .release = release, .list = list};
